package discovery

import (
	"github.com/munnerz/goautoneg"
)

// The media types of the answers. JSON is the default.
const (
	typeJSON     = "application/json"
	typeYAML     = "application/yaml"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
	typeCBOR     = "application/cbor"
)

var mediaTypes = []string{typeJSON, typeYAML, typeProtobuf, typeCBOR}

// media is how a document is answered: its encoding and, for an aggregated one, the version of apidiscovery.k8s.io.
type media struct {
	encoding   string
	aggregated string // "v2", "v2beta1"; empty for the unaggregated form
}

func (m media) contentType() string {
	if m.aggregated == "" {
		return m.encoding
	}
	return m.encoding + ";g=apidiscovery.k8s.io;v=" + m.aggregated + ";as=APIGroupDiscoveryList"
}

// negotiate picks the first acceptable form in the client's order of preference. ok is false if there is none.
func negotiate(accept string, aggregatable bool) (m media, ok bool) {
	if accept == "" {
		return media{encoding: typeJSON}, true
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		encoding, known := encodingOf(clause)
		if !known || clause.Q == 0 {
			continue
		}
		as, group, version := clause.Params["as"], clause.Params["g"], clause.Params["v"]
		if as == "" {
			return media{encoding: encoding}, true
		}
		if aggregatable && as == "APIGroupDiscoveryList" && group == "apidiscovery.k8s.io" && (version == "v2" || version == "v2beta1") {
			return media{encoding: encoding, aggregated: version}, true
		}
	}
	return media{}, false
}

func encodingOf(clause goautoneg.Accept) (string, bool) {
	switch {
	case clause.Type == "*" && clause.SubType == "*":
		return typeJSON, true
	case clause.Type != "application":
		return "", false
	}
	switch clause.SubType {
	case "*", "json":
		return typeJSON, true
	case "yaml":
		return typeYAML, true
	case "vnd.kubernetes.protobuf":
		return typeProtobuf, true
	case "cbor":
		return typeCBOR, true
	}
	return "", false
}
