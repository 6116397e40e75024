package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Remote is what another server says of a group version that it serves: JSON, compressed with gzip.
type Remote struct {
	schema.GroupVersion
	// V2 describes that group version alone; empty if the server has no such document.
	V2 []byte
	// V3 is its document, with a hash of it; empty likewise.
	V3   []byte
	Hash string
}

// hashRemote adds the hashes of what others serve. They go before this server's own of the same version: requests go there too.
func (s *state) hashRemote(everything *strings.Builder) {
	for _, r := range s.remote {
		delete(s.hashes, indexPath(r.GroupVersion))
		if len(r.V3) > 0 {
			s.hashes[indexPath(r.GroupVersion)] = r.Hash
			everything.WriteString(r.Hash)
		}
		fmt.Fprintf(everything, "%X", sha512.Sum512(r.V2))
	}
}

// remoteV3 is the document of another server; nil if this one serves the path.
func (s *state) remoteV3(path string) ([]byte, error) {
	for _, r := range s.remote {
		if indexPath(r.GroupVersion) == path {
			return unpack(r.V3)
		}
	}
	return nil, nil
}

// withRemote adds to this server's document of version 2 those of the others. A definition whose name is taken by a different one gets a new name.
func (s *state) withRemote(body []byte) ([]byte, error) {
	var others []*spec.Swagger
	for _, r := range s.remote {
		if len(r.V2) == 0 {
			continue
		}
		text, err := unpack(r.V2)
		if err != nil {
			return nil, err
		}
		doc := &spec.Swagger{}
		if err := json.Unmarshal(text, doc); err != nil {
			return nil, fmt.Errorf("OpenAPI v2 of %s: %w", r.GroupVersion, err)
		}
		others = append(others, doc)
	}
	if len(others) == 0 {
		return body, nil
	}
	all := &spec.Swagger{}
	if err := json.Unmarshal(body, all); err != nil {
		return nil, fmt.Errorf("merge OpenAPI v2: %w", err)
	}
	s.dropReplaced(all)
	for _, doc := range others {
		if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(all, doc); err != nil {
			return nil, fmt.Errorf("merge OpenAPI v2: %w", err)
		}
	}
	return json.Marshal(all)
}

// dropReplaced takes out the paths that another server serves in this one's place.
func (s *state) dropReplaced(doc *spec.Swagger) {
	for _, r := range s.remote {
		for path := range doc.Paths.Paths {
			if strings.HasPrefix(path, "/"+indexPath(r.GroupVersion)+"/") {
				delete(doc.Paths.Paths, path)
			}
		}
	}
}

func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI: %w", err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI: %w", err)
	}
	return out, nil
}
