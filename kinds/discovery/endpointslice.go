package discovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[discoveryv1.EndpointSlice]{
	Names:    kind.Names{Plural: "endpointslices"},
	Default:  defaultSlice,
	Prepare:  prepareSlice,
	Validate: validateSlice,
	Warn:     warnSlice,
	SpecOf:   func(s *discoveryv1.EndpointSlice) any { return &counted{s.AddressType, s.Endpoints, s.Ports, s.Labels} },
	Columns: []kind.Column[discoveryv1.EndpointSlice]{
		{Name: "AddressType", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["addressType"],
			Value: func(s *discoveryv1.EndpointSlice, _ time.Time) any { return string(s.AddressType) }},
		{Name: "Ports", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["ports"],
			Value: func(s *discoveryv1.EndpointSlice, _ time.Time) any { return ports(s.Ports) }},
		{Name: "Endpoints", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["endpoints"],
			Value: func(s *discoveryv1.EndpointSlice, _ time.Time) any { return endpoints(s.Endpoints) }},
	},
})

// counted is what a slice's generation counts changes of: consumers read the labels too. Its fields are exported for the
// comparison, which reflects.
type counted struct {
	AddressType discoveryv1.AddressType
	Endpoints   []discoveryv1.Endpoint
	Ports       []discoveryv1.EndpointPort
	Labels      map[string]string
}

// shown bounds the columns that list ports and addresses.
const shown = 3

func ports(ports []discoveryv1.EndpointPort) string {
	var list []string
	for _, p := range ports {
		switch {
		case p.Port != nil:
			list = append(list, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			list = append(list, *p.Name)
		default:
			list = append(list, "*")
		}
	}
	return shorten(list)
}

func endpoints(endpoints []discoveryv1.Endpoint) string {
	var list []string
	for i := range endpoints {
		list = append(list, endpoints[i].Addresses...)
	}
	return shorten(list)
}

func shorten(list []string) string {
	switch more := len(list) - shown; {
	case len(list) == 0:
		return cell.Unset
	case more > 0:
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:shown], ","), more)
	}
	return strings.Join(list, ",")
}

func defaultSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		if s.Ports[i].Name == nil {
			s.Ports[i].Name = ptr.To("")
		}
		if s.Ports[i].Protocol == nil {
			s.Ports[i].Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

// prepareSlice drops deprecatedTopology, which v1 shows but does not take. An endpoint that was written with its node there keeps the node.
func prepareSlice(s, old *discoveryv1.EndpointSlice) {
	var known []string
	if old != nil {
		if equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
			return
		}
		for i := range old.Endpoints {
			if node := old.Endpoints[i].DeprecatedTopology[corev1.LabelHostname]; node != "" {
				known = append(known, node)
			}
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if node := e.DeprecatedTopology[corev1.LabelHostname]; e.NodeName == nil && slices.Contains(known, node) && len(validation.IsDNS1123Subdomain(node)) == 0 {
			e.NodeName = &node
		}
		e.DeprecatedTopology = nil
	}
}

func warnSlice(s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, "spec.addressType: FQDN endpoints are deprecated")
	}
	if s.Labels[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return warnings // written by a controller that normalizes addresses
	}
	for i := range s.Endpoints {
		for j, a := range s.Endpoints[i].Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), a)...)
		}
	}
	return warnings
}

// The limits of a slice.
const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxTopology  = 16
	maxHints     = 8
)

func validateSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	path := field.NewPath("addressType")
	errs := rule.RequiredOneOf(s.AddressType, path, "", discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	errs = append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
	if old != nil {
		errs = append(errs, rule.Immutable(s.AddressType, old.AddressType, path)...)
	}
	problems := validateEndpoints(s.Endpoints, s.AddressType, field.NewPath("endpoints"))
	// Endpoints from before a rule was made stay as they are.
	if len(problems) > 0 && old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return errs
	}
	return append(errs, problems...)
}

func validatePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxPorts)}
	}
	var errs field.ErrorList
	seen := make(map[string]bool, len(ports))
	for i, p := range ports {
		at, name := path.Index(i), ptr.Deref(p.Name, "")
		if name != "" {
			errs = append(errs, rule.Label(name, at.Child("name"))...)
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		seen[name] = true
		errs = append(errs, rule.OneOf(ptr.Deref(p.Protocol, ""), at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		if p.AppProtocol != nil {
			errs = append(errs, rule.QualifiedName(*p.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}

func validateEndpoints(endpoints []discoveryv1.Endpoint, family discoveryv1.AddressType, path *field.Path) field.ErrorList {
	if len(endpoints) > maxEndpoints {
		return field.ErrorList{field.TooMany(path, len(endpoints), maxEndpoints)}
	}
	var errs field.ErrorList
	for i := range endpoints {
		e, at := &endpoints[i], path.Index(i)
		errs = append(errs, validateAddresses(e.Addresses, family, at.Child("addresses"))...)
		if e.NodeName != nil {
			errs = append(errs, rule.Subdomain(*e.NodeName, at.Child("nodeName"))...)
		}
		if n := len(e.DeprecatedTopology); n > maxTopology {
			errs = append(errs, field.TooMany(at.Child("deprecatedTopology"), n, maxTopology))
		}
		errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, at.Child("deprecatedTopology"))...)
		if e.Hostname != nil {
			errs = append(errs, rule.Label(*e.Hostname, at.Child("hostname"))...)
		}
		if e.Hints != nil {
			errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
		}
	}
	return errs
}

func validateAddresses(addresses []string, family discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch n := len(addresses); {
	case n == 0:
		errs = append(errs, field.Required(path, "must contain at least 1 address"))
	case n > maxAddresses:
		errs = append(errs, field.TooMany(path, n, maxAddresses))
	}
	for i, a := range addresses {
		at := path.Index(i)
		switch family {
		case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
			errs = append(errs, validateAddress(a, family, path, at)...)
		case discoveryv1.AddressTypeFQDN:
			errs = append(errs, validation.IsFullyQualifiedDomainName(at, a)...)
		}
	}
	return errs
}

func validateAddress(a string, family discoveryv1.AddressType, list, path *field.Path) field.ErrorList {
	if errs := validation.IsValidIP(path, a); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	if v6 := netutils.IsIPv6String(a); v6 != (family == discoveryv1.AddressTypeIPv6) {
		errs = append(errs, field.Invalid(list, a, fmt.Sprintf("must be an %s address", family)))
	}
	ip := netutils.ParseIPSloppy(a)
	if ip.IsUnspecified() {
		errs = append(errs, field.Invalid(path, a, fmt.Sprintf("may not be unspecified (%s)", a)))
	}
	if ip.IsLoopback() {
		errs = append(errs, field.Invalid(path, a, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if ip.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(path, a, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if ip.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(path, a, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}

func validateHints(h *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	var zones, nodes []string
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	errs := validateHintNames(zones, validation.IsValidLabelValue, path.Child("forZones"))
	return append(errs, validateHintNames(nodes, validation.IsDNS1123Subdomain, path.Child("forNodes"))...)
}

func validateHintNames(names []string, check func(string) []string, path *field.Path) field.ErrorList {
	if len(names) > maxHints {
		return field.ErrorList{field.TooMany(path, len(names), maxHints)}
	}
	var errs field.ErrorList
	for i, name := range names {
		at := path.Index(i).Child("name")
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		errs = append(errs, rule.Invalid(name, at, check(name))...)
	}
	return errs
}
