package dra

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

// extended is what a pod asks of extended resources that device classes stand for (KEP-5004). On a node that has none of such a resource by itself, a claim that is
// made for the pod takes its place.
type extended struct {
	claim   *resourcev1.ResourceClaim // to be made
	stale   *resourcev1.ResourceClaim // left of an earlier attempt: it must go first
	asked   []int                     // resources, by number
	classes []*resourcev1.DeviceClass // of each
	names   []corev1.ResourceName
	demands map[string]*backed // by which of them a node has not
}

// backed is the claim for some of the resources.
type backed struct {
	demand   *demand
	refusal  string
	spec     string // of all demands with this
	mappings []corev1.ContainerExtendedResourceRequest
}

// extendedOf finds what a pod asks for that classes stand for; nil if nothing. The book is locked.
func (b *Book) extendedOf(c *framework.Cycle) *extended {
	if len(b.backing) == 0 {
		return nil
	}
	e := &extended{demands: map[string]*backed{}}
	for _, a := range c.Pod.Requests {
		name := corev1.ResourceName(c.Nodes.ResourceName(a.Resource))
		if class := b.backing[name]; class != nil && a.Value > 0 {
			e.asked, e.classes, e.names = append(e.asked, a.Resource), append(e.classes, class), append(e.names, name)
		}
	}
	if len(e.asked) == 0 {
		return nil
	}
	pod := c.Pod.Object
	if key, ok := b.made[pod.UID]; ok {
		e.stale = b.claims[key].claim
	}
	e.claim = &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, UID: types.UID(uuid.NewString()), GenerateName: pod.Name + "-extended-resources-",
		Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr.To(true)}}}}
	return e
}

// backsAny tells whether classes stand for anything that a pod asks for.
func (b *Book) backsAny(c *framework.Cycle) bool {
	for _, a := range c.Pod.Requests {
		if a.Resource > framework.EphemeralStorage && b.Backs(c.Nodes.ResourceName(a.Resource)) {
			return true
		}
	}
	return false
}

// lacks says which of the resources a node has nothing of by itself.
func (e *extended) lacks(c *framework.Cycle, i int) string {
	key := make([]byte, len(e.asked))
	for k, r := range e.asked {
		key[k] = '0'
		if c.Nodes.Allocatable[r][i] == 0 {
			key[k] = '1'
		}
	}
	return string(key)
}

// specOf is specOf for demands of which the last is for extended resources.
func (e *extended) specOf(demands []*demand) string {
	last := demands[len(demands)-1]
	for _, one := range e.demands {
		if one.demand != last {
			continue
		}
		if one.spec == "" {
			one.spec = specOf(demands)
		}
		return one.spec
	}
	return ""
}

func (e *extended) demand(c *framework.Cycle, i int) *demand {
	if b := e.demands[e.lacks(c, i)]; b != nil {
		return b.demand
	}
	return nil
}

// demandsOn lists the claims that must get devices on a node. The book is locked.
func (b *Book) demandsOn(c *framework.Cycle, s *state, i int) ([]*demand, *framework.Status) {
	e := s.extended
	if e == nil {
		return s.demands, nil
	}
	key := e.lacks(c, i)
	if !strings.Contains(key, "1") {
		return s.demands, nil
	}
	if e.stale != nil {
		return nil, refuse("cannot schedule extended resource claim")
	}
	one := e.demands[key]
	if one == nil {
		one = e.back(c.Pod.Object, key, b.class)
		e.demands[key] = one
	}
	if one.refusal != "" {
		return nil, refuse(one.refusal)
	}
	return append(slices.Clip(s.demands), one.demand), nil
}

func (e *extended) back(pod *corev1.Pod, key string, class func(string) (*resourcev1.DeviceClass, bool)) *backed {
	classes := map[corev1.ResourceName]string{}
	for k := range e.asked {
		if key[k] == '1' {
			classes[e.names[k]] = e.classes[k].Name
		}
	}
	out := &backed{}
	claim := e.claim.DeepCopy()
	claim.Spec.Devices.Requests, out.mappings = requestsFor(pod, classes)
	out.demand, out.refusal = newDemand(claim, class)
	return out
}

// requestsFor writes the extended resources of a pod's containers as requests for devices, and says which containers get which. Init containers that end use the
// devices of those that come after them; what they need beyond that they share.
func requestsFor(pod *corev1.Pod, classes map[corev1.ResourceName]string) ([]resourcev1.DeviceRequest, []corev1.ContainerExtendedResourceRequest) {
	all := append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...)
	inits := len(pod.Spec.InitContainers)
	var names []corev1.ResourceName
	for name := range classes {
		names = append(names, name)
	}
	slices.Sort(names)
	var requests []resourcev1.DeviceRequest
	var mappings []corev1.ContainerExtendedResourceRequest
	for _, name := range names {
		lasting := make([]*resourcev1.DeviceRequest, len(all))
		var brief *resourcev1.DeviceRequest
		var briefs []corev1.ContainerExtendedResourceRequest
		extra := map[int]bool{} // the mappings in briefs to what is shared
		for i := range all {
			want := asks(&all[i], name)
			if want == 0 || ends(&all[i], i < inits) {
				continue
			}
			lasting[i] = newRequest(&all[i], i, name, classes[name], want)
			mappings = append(mappings, mapping(&all[i], name, lasting[i].Name))
		}
		for i := 0; i < inits; i++ {
			want := asks(&all[i], name)
			if want == 0 || !ends(&all[i], true) {
				continue
			}
			for _, r := range lasting[i:] {
				if r != nil && want > 0 {
					want -= r.Exactly.Count
					briefs = append(briefs, mapping(&all[i], name, r.Name))
				}
			}
			if want > 0 {
				r := newRequest(&all[i], i, name, classes[name], want)
				if brief == nil || brief.Exactly.Count < want {
					brief = r
				}
				extra[len(briefs)] = true
				briefs = append(briefs, mapping(&all[i], name, r.Name))
			}
		}
		for k := range extra {
			briefs[k].RequestName = brief.Name
		}
		if brief != nil {
			requests = append(requests, *brief)
		}
		for _, r := range lasting {
			if r != nil {
				requests = append(requests, *r)
			}
		}
		mappings = append(mappings, briefs...)
	}
	slices.SortFunc(requests, func(a, b resourcev1.DeviceRequest) int { return strings.Compare(a.Name, b.Name) })
	return requests, mappings
}

func asks(c *corev1.Container, name corev1.ResourceName) int64 {
	q := c.Resources.Requests[name]
	return q.Value()
}

// ends tells init containers that end before others start.
func ends(c *corev1.Container, init bool) bool {
	return init && ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways
}

// newRequest names a request by the numbers of the container and, among all that it asks for, of the resource.
func newRequest(c *corev1.Container, i int, name corev1.ResourceName, class string, count int64) *resourcev1.DeviceRequest {
	var all []string
	for n := range c.Resources.Requests {
		all = append(all, string(n))
	}
	slices.Sort(all)
	return &resourcev1.DeviceRequest{Name: fmt.Sprintf("container-%d-request-%d", i, slices.Index(all, string(name))),
		Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}}
}

func mapping(c *corev1.Container, name corev1.ResourceName, request string) corev1.ContainerExtendedResourceRequest {
	return corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(name), RequestName: request}
}
