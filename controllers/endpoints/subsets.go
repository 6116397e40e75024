package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/controllers/selection"
)

// capacity is the most addresses that an Endpoints holds.
const capacity = 1000

// subsets groups the pods of a Service by the ports that they offer, each address once, ready or not.
func subsets(s *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	byPorts := map[string]*corev1.EndpointSubset{}
	for _, p := range pods {
		address, ok := addressOf(s, p)
		if !ok {
			continue
		}
		ports := portsOf(s, p)
		if len(ports) == 0 && (len(s.Spec.Ports) > 0 || s.Spec.ClusterIP != corev1.ClusterIPNone) {
			continue
		}
		key := portKey(ports)
		subset := byPorts[key]
		if subset == nil {
			subset = &corev1.EndpointSubset{Ports: ports}
			byPorts[key] = subset
		}
		if pod.Ready(p) || s.Spec.PublishNotReadyAddresses {
			subset.Addresses = append(subset.Addresses, address)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	var out []corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		subset := byPorts[key]
		slices.SortFunc(subset.Addresses, byAddress)
		slices.SortFunc(subset.NotReadyAddresses, byAddress)
		out = append(out, *subset)
	}
	return out
}

func byAddress(a, b corev1.EndpointAddress) int {
	return cmp.Or(strings.Compare(a.IP, b.IP), strings.Compare(string(a.TargetRef.UID), string(b.TargetRef.UID)))
}

func addressOf(s *corev1.Service, p *corev1.Pod) (corev1.EndpointAddress, bool) {
	if !selection.Counts(p) || p.DeletionTimestamp != nil && !s.Spec.PublishNotReadyAddresses {
		return corev1.EndpointAddress{}, false
	}
	six := len(s.Spec.IPFamilies) > 0 && s.Spec.IPFamilies[0] == corev1.IPv6Protocol || len(s.Spec.IPFamilies) == 0 && strings.Contains(s.Spec.ClusterIP, ":")
	ip := ""
	for _, candidate := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		if candidate.IP != "" && strings.Contains(candidate.IP, ":") == six {
			ip = candidate.IP
			break
		}
	}
	if ip == "" {
		return corev1.EndpointAddress{}, false
	}
	a := corev1.EndpointAddress{IP: ip, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	if p.Spec.NodeName != "" {
		a.NodeName = &p.Spec.NodeName
	}
	if selection.HasName(p, s) {
		a.Hostname = p.Spec.Hostname
	}
	return a, true
}

func portsOf(s *corev1.Service, p *corev1.Pod) []corev1.EndpointPort {
	var out []corev1.EndpointPort
	for i := range s.Spec.Ports {
		sp := &s.Spec.Ports[i]
		if n, ok := selection.Port(p, sp); ok {
			protocol := cmp.Or(sp.Protocol, corev1.ProtocolTCP)
			out = append(out, corev1.EndpointPort{Name: sp.Name, Port: n, Protocol: protocol, AppProtocol: sp.AppProtocol})
		}
	}
	return out
}

// truncate cuts down to capacity: what is not ready first, and evenly over the subsets.
func truncate(in []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	ready, unready := 0, 0
	for _, s := range in {
		ready += len(s.Addresses)
		unready += len(s.NotReadyAddresses)
	}
	if ready+unready <= capacity {
		return in, false
	}
	keepReady := min(ready, capacity)
	keepUnready := capacity - keepReady
	var out []corev1.EndpointSubset
	for _, s := range in {
		s.Addresses = s.Addresses[:portion(len(s.Addresses), ready, keepReady)]
		s.NotReadyAddresses = s.NotReadyAddresses[:portion(len(s.NotReadyAddresses), unready, keepUnready)]
		if len(s.Addresses)+len(s.NotReadyAddresses) > 0 {
			out = append(out, s)
		}
	}
	return out, true
}

func portion(part, whole, keep int) int {
	if whole == 0 {
		return 0
	}
	return part * keep / whole
}

// portKey is equal for equal ports.
func portKey(ports []corev1.EndpointPort) string {
	var b strings.Builder
	for _, p := range ports {
		app := ""
		if p.AppProtocol != nil {
			app = *p.AppProtocol
		}
		fmt.Fprintf(&b, "%s %s %d %s;", p.Name, p.Protocol, p.Port, app)
	}
	return b.String()
}
