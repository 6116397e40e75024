package endpointslice

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/controllers/owned"
)

// perSlice is the most endpoints that a slice holds.
const perSlice = 100

// plan is what makes the slices that exist say what is wanted.
type plan struct {
	create, update, remove []*discoveryv1.EndpointSlice
}

// pack decides which slices to change so that few are: endpoints stay where they are, and new ones go where there is room.
func pack(s *corev1.Service, w wanted, have []*discoveryv1.EndpointSlice) plan {
	var p plan
	byGroup := map[group][]*discoveryv1.EndpointSlice{}
	for _, slice := range have {
		if slice.DeletionTimestamp == nil {
			g := group{slice.AddressType, portKey(slice.Ports)}
			byGroup[g] = append(byGroup[g], slice)
		}
	}
	served := map[discoveryv1.AddressType]bool{}
	for g, endpoints := range w.endpoints {
		p.group(s, g, w.ports[g], endpoints, byGroup[g])
		delete(byGroup, g)
		served[g.family] = true
	}
	for _, family := range w.families {
		if !served[family] {
			p.placeholder(s, family, byGroup)
		}
	}
	for _, rest := range byGroup {
		p.remove = append(p.remove, rest...)
	}
	return p
}

// placeholder keeps or makes the one slice that says "no endpoints".
func (p *plan) placeholder(s *corev1.Service, family discoveryv1.AddressType, byGroup map[group][]*discoveryv1.EndpointSlice) {
	groups := slices.SortedFunc(maps.Keys(byGroup), func(a, b group) int { return strings.Compare(a.ports, b.ports) })
	for _, g := range groups {
		if g.family != family {
			continue
		}
		kept := byGroup[g][0]
		byGroup[g] = byGroup[g][1:]
		p.put(s, kept, []discoveryv1.EndpointPort{}, nil)
		return
	}
	p.create = append(p.create, newSlice(s, family, []discoveryv1.EndpointPort{}, nil))
}

func (p *plan) group(s *corev1.Service, g group, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint, have []*discoveryv1.EndpointSlice) {
	missing := map[string]discoveryv1.Endpoint{}
	for _, e := range endpoints {
		missing[identity(e)] = e
	}
	slices.SortFunc(have, func(a, b *discoveryv1.EndpointSlice) int { // the fullest first: the emptiest is the one to dissolve
		return cmp.Or(cmp.Compare(len(b.Endpoints), len(a.Endpoints)), strings.Compare(a.Name, b.Name))
	})
	content := make([][]discoveryv1.Endpoint, len(have))
	for i, slice := range have {
		for _, old := range slice.Endpoints {
			if e, ok := missing[identity(old)]; ok {
				content[i] = append(content[i], e)
				delete(missing, identity(old))
			}
		}
	}
	rest := slices.SortedFunc(maps.Values(missing), func(a, b discoveryv1.Endpoint) int { return strings.Compare(identity(a), identity(b)) })
	changing := func(i int) bool { return len(content[i]) != len(have[i].Endpoints) }
	for _, onlyChanging := range []bool{true, false} { // slices that must be rewritten anyway take new endpoints first
		for i := range have {
			if room := min(perSlice-len(content[i]), len(rest)); room > 0 && (changing(i) || !onlyChanging) {
				content[i] = append(content[i], rest[:room]...)
				rest = rest[room:]
			}
		}
	}
	for i, slice := range have {
		if len(content[i]) == 0 {
			p.remove = append(p.remove, slice)
		} else {
			p.put(s, slice, ports, content[i])
		}
	}
	for part := range slices.Chunk(rest, perSlice) {
		p.create = append(p.create, newSlice(s, g.family, ports, part))
	}
}

// identity of an endpoint is its pod and address: the same one keeps its place when its condition changes.
func identity(e discoveryv1.Endpoint) string {
	id := strings.Join(e.Addresses, ",")
	if e.TargetRef != nil {
		id += " " + string(e.TargetRef.UID)
	}
	return id
}

// put updates a slice if it says something else.
func (p *plan) put(s *corev1.Service, slice *discoveryv1.EndpointSlice, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) {
	labels := labelsFor(s)
	if equality.Semantic.DeepEqual(slice.Endpoints, endpoints) && equality.Semantic.DeepEqual(slice.Ports, ports) && maps.Equal(slice.Labels, labels) {
		return
	}
	slice = slice.DeepCopy()
	slice.Endpoints, slice.Ports, slice.Labels = endpoints, ports, labels
	if slice.Endpoints == nil {
		slice.Endpoints = []discoveryv1.Endpoint{}
	}
	p.update = append(p.update, slice)
}

func newSlice(s *corev1.Service, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	if endpoints == nil {
		endpoints = []discoveryv1.Endpoint{}
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: s.Name + "-", Labels: labelsFor(s),
			OwnerReferences: []metav1.OwnerReference{*owned.Owner(s, corev1.SchemeGroupVersion.WithKind("Service"))}},
		AddressType: family, Ports: ports, Endpoints: endpoints,
	}
}

// labelsFor are the Service's own labels and the ones by which slices are found.
func labelsFor(s *corev1.Service) map[string]string {
	out := maps.Clone(s.Labels)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, corev1.IsHeadlessService)
	out[discoveryv1.LabelServiceName], out[discoveryv1.LabelManagedBy] = s.Name, ManagedBy
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		out[corev1.IsHeadlessService] = ""
	}
	return out
}
