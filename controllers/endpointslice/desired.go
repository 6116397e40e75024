package endpointslice

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/controllers/selection"
)

// group is what slices must agree in: all endpoints of a slice share one address family and one list of ports.
type group struct {
	family discoveryv1.AddressType
	ports  string // portKey
}

// wanted is what a Service's slices should say, by group.
type wanted struct {
	families  []discoveryv1.AddressType
	ports     map[group][]discoveryv1.EndpointPort
	endpoints map[group][]discoveryv1.Endpoint
}

// desired computes the endpoints of a Service from the pods that it selects. zone gives a node's.
func desired(s *corev1.Service, pods []*corev1.Pod, zone func(node string) string) wanted {
	w := wanted{families: families(s), ports: map[group][]discoveryv1.EndpointPort{}, endpoints: map[group][]discoveryv1.Endpoint{}}
	for _, p := range pods {
		if !selection.Counts(p) {
			continue
		}
		ports, ok := portsOf(s, p)
		if !ok {
			continue
		}
		for _, family := range w.families {
			addresses := addressesOf(p, family)
			if len(addresses) == 0 {
				continue
			}
			g := group{family, portKey(ports)}
			w.ports[g] = ports
			w.endpoints[g] = append(w.endpoints[g], endpoint(s, p, addresses, zone))
		}
	}
	return w
}

func families(s *corev1.Service) []discoveryv1.AddressType {
	var out []discoveryv1.AddressType
	for _, f := range s.Spec.IPFamilies {
		if f == corev1.IPv6Protocol {
			out = append(out, discoveryv1.AddressTypeIPv6)
		} else {
			out = append(out, discoveryv1.AddressTypeIPv4)
		}
	}
	if len(out) > 0 {
		return out
	}
	if strings.Contains(s.Spec.ClusterIP, ":") {
		return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	}
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
}

func addressesOf(p *corev1.Pod, family discoveryv1.AddressType) []string {
	all := p.Status.PodIPs
	if len(all) == 0 {
		all = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
	var out []string
	for _, ip := range all {
		if ip.IP != "" && strings.Contains(ip.IP, ":") == (family == discoveryv1.AddressTypeIPv6) {
			out = append(out, ip.IP)
		}
	}
	return out
}

// portsOf resolves a Service's ports for a pod. False: the Service has ports but none of them exists on this pod.
func portsOf(s *corev1.Service, p *corev1.Pod) ([]discoveryv1.EndpointPort, bool) {
	ports := []discoveryv1.EndpointPort{}
	for i := range s.Spec.Ports {
		sp := &s.Spec.Ports[i]
		n, ok := selection.Port(p, sp)
		if !ok {
			continue
		}
		protocol := sp.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		ports = append(ports, discoveryv1.EndpointPort{Name: &sp.Name, Port: &n, Protocol: &protocol, AppProtocol: sp.AppProtocol})
	}
	return ports, len(ports) > 0 || len(s.Spec.Ports) == 0 && s.Spec.ClusterIP == corev1.ClusterIPNone
}

// portKey is equal for equal ports.
func portKey(ports []discoveryv1.EndpointPort) string {
	var b strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&b, "%s %s %d %s;", deref(p.Name), deref(p.Protocol), deref(p.Port), deref(p.AppProtocol))
	}
	return b.String()
}

func deref[T any](p *T) T {
	var none T
	if p == nil {
		return none
	}
	return *p
}

func endpoint(s *corev1.Service, p *corev1.Pod, addresses []string, zone func(string) string) discoveryv1.Endpoint {
	serving, terminating := pod.Ready(p), p.DeletionTimestamp != nil
	ready := s.Spec.PublishNotReadyAddresses || serving && !terminating
	e := discoveryv1.Endpoint{
		Addresses:  addresses,
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}
	if p.Spec.NodeName != "" {
		e.NodeName = &p.Spec.NodeName
		if z := zone(p.Spec.NodeName); z != "" {
			e.Zone = &z
		}
	}
	if selection.HasName(p, s) {
		e.Hostname = &p.Spec.Hostname
	}
	if ready {
		e.Hints = hints(s, e.NodeName, e.Zone)
	}
	return e
}

// hints tells proxies which nodes or zones an endpoint is meant for (Service.spec.trafficDistribution).
func hints(s *corev1.Service, node, zone *string) *discoveryv1.EndpointHints {
	switch deref(s.Spec.TrafficDistribution) {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		if zone == nil {
			return nil
		}
		return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *zone}}}
	case corev1.ServiceTrafficDistributionPreferSameNode:
		if node == nil {
			return nil
		}
		h := &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: *node}}}
		if zone != nil {
			h.ForZones = []discoveryv1.ForZone{{Name: *zone}}
		}
		return h
	}
	return nil
}
