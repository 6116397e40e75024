package framework

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	corehelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/yare-project/yare/internal/csimigration"
)

// What a container that requests no CPU or memory counts for when nodes are scored, as in Kubernetes.
const (
	DefaultMilliCPU = 100
	DefaultMemory   = 200 << 20 // bytes
)

// Amount is a quantity of one resource: thousandths of a CPU, else units or bytes.
type Amount struct {
	Resource int // as Nodes.Resource numbers them
	Value    int64
}

// HostPort is a port of a node that a pod occupies. IP is "0.0.0.0" for all addresses.
type HostPort struct {
	IP       string
	Protocol corev1.Protocol
	Port     int32
}

// Conflicts tells whether two pods with these ports can't share a node.
func (p HostPort) Conflicts(o HostPort) bool {
	return p.Port == o.Port && p.Protocol == o.Protocol && (p.IP == o.IP || p.IP == anyIP || o.IP == anyIP)
}

const anyIP = "0.0.0.0"

// Pod is a pod with all that decisions need of it, worked out once. It is immutable but for its place.
type Pod struct {
	Object     *corev1.Pod
	Priority   int32
	Requests   []Amount // without zeros
	NonZeroCPU int64    // requests with defaults for containers that have none
	NonZeroMem int64
	Ports      []HostPort
	Volumes    []string // names of the claims it mounts
	Disks      []Disk   // cloud volumes that stand in its spec

	RequiredAffinity, RequiredAntiAffinity   []Term
	PreferredAffinity, PreferredAntiAffinity []WeightedTerm

	template *template
	node, at int // slot and place in its list of pods; node is -1 when it is nowhere
}

// Disk is a volume of an in-tree plugin for clouds in a pod's spec, as the CSI driver knows it that took the plugin over.
type Disk struct {
	Plugin, Driver, Handle string
	Err                    error // why the driver can't handle it
}

func newDisk(plugin string, v *corev1.Volume, namespace string) Disk {
	d := Disk{Plugin: plugin, Driver: csimigration.Driver(plugin)}
	if pv, err := csimigration.TranslateInline(v, namespace); err != nil {
		d.Err = err
	} else {
		d.Handle = pv.Spec.CSI.VolumeHandle
	}
	return d
}

// NewPod parses a pod. A pod that can't be parsed is refused with the field and the reason.
func NewPod(obj *corev1.Pod, n *Nodes) (*Pod, error) {
	t, err := n.templateOf(obj)
	if err != nil {
		return nil, err
	}
	p := &Pod{Object: obj, Priority: corehelper.PodPriority(obj), Requests: t.requests, NonZeroCPU: t.nonZeroCPU, NonZeroMem: t.nonZeroMem, Ports: t.ports,
		RequiredAffinity: t.requiredAffinity, RequiredAntiAffinity: t.requiredAntiAffinity, PreferredAffinity: t.preferredAffinity, PreferredAntiAffinity: t.preferredAntiAffinity,
		template: t, node: -1}
	for i := range obj.Spec.Volumes {
		if name := ClaimOf(obj, &obj.Spec.Volumes[i]); name != "" {
			p.Volumes = append(p.Volumes, name)
		} else if plugin := csimigration.PluginOfInline(&obj.Spec.Volumes[i]); plugin != "" {
			p.Disks = append(p.Disks, newDisk(plugin, &obj.Spec.Volumes[i], obj.Namespace))
		}
	}
	if obj.Spec.NodeName != "" && reportsResources(&obj.Status) {
		p.Requests, p.NonZeroCPU, p.NonZeroMem = measure(obj, n, true)
	}
	return p, nil
}

// reportsResources tells whether the node says something of its own about a pod's resources.
func reportsResources(s *corev1.PodStatus) bool {
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			if list[i].Resources != nil || len(list[i].AllocatedResources) > 0 {
				return true
			}
		}
	}
	return s.Resources != nil || len(s.AllocatedResources) > 0
}

// parse works out what a template's pods ask for.
func (t *template) parse(obj *corev1.Pod, n *Nodes) error {
	t.requests, t.nonZeroCPU, t.nonZeroMem = measure(obj, n, false)
	t.ports = hostPorts(&obj.Spec)
	if err := t.parseAffinity(obj); err != nil {
		return err
	}
	for k := range t.requiredAffinity {
		t.terms = append(t.terms, n.intern(RequiredAffinity, &t.requiredAffinity[k], 0))
	}
	for k := range t.requiredAntiAffinity {
		t.terms = append(t.terms, n.intern(RequiredAntiAffinity, &t.requiredAntiAffinity[k], 0))
	}
	for k := range t.preferredAffinity {
		t.terms = append(t.terms, n.intern(PreferredAffinity, &t.preferredAffinity[k].Term, t.preferredAffinity[k].Weight))
	}
	for k := range t.preferredAntiAffinity {
		t.terms = append(t.terms, n.intern(PreferredAntiAffinity, &t.preferredAntiAffinity[k].Term, t.preferredAntiAffinity[k].Weight))
	}
	return nil
}

// ClaimOf names the PersistentVolumeClaim behind a volume; empty if there is none.
func ClaimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// measure works out the requests: init containers, sidecars, overhead and pod-level resources as the Pod API defines them; reported ones count while a pod is resized.
func measure(obj *corev1.Pod, n *Nodes, reported bool) (requests []Amount, nonZeroCPU, nonZeroMem int64) {
	opts := resourcehelper.PodResourcesOptions{UseStatusResources: reported, InPlacePodLevelResourcesVerticalScalingEnabled: reported}
	list := resourcehelper.PodRequests(obj, opts)
	requests = make([]Amount, 0, len(list))
	for name, q := range list {
		if v := valueOf(name, q); v != 0 {
			requests = append(requests, Amount{n.Resource(name), v})
		}
	}
	nonZeroCPU, nonZeroMem = amount(requests, CPU), amount(requests, Memory)
	if everyContainerRequests(&obj.Spec) {
		return requests, nonZeroCPU, nonZeroMem
	}
	opts.NonMissingContainerRequests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(DefaultMilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(DefaultMemory, resource.BinarySI)}
	if resourcehelper.IsPodLevelRequestsSet(obj) { // what the pod asks for as a whole, its containers need not ask for again
		maps.DeleteFunc(opts.NonMissingContainerRequests, func(name corev1.ResourceName, _ resource.Quantity) bool { _, asked := list[name]; return asked })
	}
	list = resourcehelper.PodRequests(obj, opts)
	return requests, list.Cpu().MilliValue(), list.Memory().Value()
}

func everyContainerRequests(s *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			r := list[i].Resources.Requests
			if _, ok := r[corev1.ResourceCPU]; !ok {
				return false
			}
			if _, ok := r[corev1.ResourceMemory]; !ok {
				return false
			}
		}
	}
	return true
}

func valueOf(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func amount(list []Amount, resource int) int64 {
	for _, a := range list {
		if a.Resource == resource {
			return a.Value
		}
	}
	return 0
}

// Request is how much of a resource the pod asks for.
func (p *Pod) Request(resource int) int64 { return amount(p.Requests, resource) }

// NonZeroRequest is Request with the defaults for containers that ask for no CPU or memory.
func (p *Pod) NonZeroRequest(resource int) int64 {
	switch resource {
	case CPU:
		return p.NonZeroCPU
	case Memory:
		return p.NonZeroMem
	}
	return amount(p.Requests, resource)
}

// Key is the pod's namespace and name.
func (p *Pod) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Object.Namespace, Name: p.Object.Name}
}

// Group is the name of the PodGroup that the pod belongs to, in its namespace.
func (p *Pod) Group() (name string, ok bool) {
	if g := p.Object.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return *g.PodGroupName, true
	}
	return "", false
}

// Node is the slot of the node that the pod is on or assumed to be on; -1 for none.
func (p *Pod) Node() int { return p.node }

// Required is what spec.nodeSelector and required node affinity ask of a node.
func (p *Pod) Required() *nodeaffinity.RequiredNodeAffinity {
	if p.template.required == nil {
		r := nodeaffinity.GetRequiredNodeAffinity(p.Object)
		p.template.required = &r
	}
	return p.template.required
}

// Preferred is the preferred node affinity; nil if there is none.
func (p *Pod) Preferred() *nodeaffinity.PreferredSchedulingTerms { return p.template.preferred }

// Terminating tells whether the pod is being deleted.
func (p *Pod) Terminating() bool { return p.Object.DeletionTimestamp != nil }

func hostPorts(s *corev1.PodSpec) []HostPort {
	var out []HostPort
	add := func(c *corev1.Container) {
		for _, cp := range c.Ports {
			if cp.HostPort <= 0 {
				continue
			}
			h := HostPort{cp.HostIP, cp.Protocol, cp.HostPort}
			if h.IP == "" {
				h.IP = anyIP
			}
			if h.Protocol == "" {
				h.Protocol = corev1.ProtocolTCP
			}
			out = append(out, h)
		}
	}
	for i := range s.Containers {
		add(&s.Containers[i])
	}
	for i := range s.InitContainers { // sidecars run beside the containers
		if r := s.InitContainers[i].RestartPolicy; r != nil && *r == corev1.ContainerRestartPolicyAlways {
			add(&s.InitContainers[i])
		}
	}
	return out
}

// Term is one pod affinity or anti-affinity term.
type Term struct {
	Selector          labels.Selector
	Namespaces        map[string]bool
	NamespaceSelector labels.Selector // nil selects nothing
	TopologyKey       string
}

// WeightedTerm is a preferred term.
type WeightedTerm struct {
	Term
	Weight int64
}

// Matches tells whether the term selects pod; namespaceLabels are those of the pod's namespace.
func (t *Term) Matches(pod *corev1.Pod, namespaceLabels labels.Set) bool {
	if !t.Namespaces[pod.Namespace] && (t.NamespaceSelector == nil || !t.NamespaceSelector.Matches(namespaceLabels)) {
		return false
	}
	return t.Selector.Matches(labels.Set(pod.Labels))
}

func (t *template) parseAffinity(obj *corev1.Pod) error {
	a := obj.Spec.Affinity
	if a == nil {
		return nil
	}
	var err error
	if na := a.NodeAffinity; na != nil && len(na.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		if t.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(na.PreferredDuringSchedulingIgnoredDuringExecution); err != nil {
			return fmt.Errorf("spec.affinity.nodeAffinity: %w", err)
		}
	}
	if pa := a.PodAffinity; pa != nil {
		if t.requiredAffinity, t.preferredAffinity, err = terms(obj.Namespace, pa.RequiredDuringSchedulingIgnoredDuringExecution, pa.PreferredDuringSchedulingIgnoredDuringExecution); err != nil {
			return fmt.Errorf("spec.affinity.podAffinity: %w", err)
		}
	}
	if pa := a.PodAntiAffinity; pa != nil {
		if t.requiredAntiAffinity, t.preferredAntiAffinity, err = terms(obj.Namespace, pa.RequiredDuringSchedulingIgnoredDuringExecution, pa.PreferredDuringSchedulingIgnoredDuringExecution); err != nil {
			return fmt.Errorf("spec.affinity.podAntiAffinity: %w", err)
		}
	}
	return nil
}

func terms(namespace string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) (r []Term, w []WeightedTerm, err error) {
	for i := range required {
		t, err := newTerm(namespace, &required[i])
		if err != nil {
			return nil, nil, err
		}
		r = append(r, t)
	}
	for i := range preferred {
		t, err := newTerm(namespace, &preferred[i].PodAffinityTerm)
		if err != nil {
			return nil, nil, err
		}
		w = append(w, WeightedTerm{t, int64(preferred[i].Weight)})
	}
	return r, w, nil
}

func newTerm(namespace string, in *corev1.PodAffinityTerm) (Term, error) {
	t := Term{TopologyKey: in.TopologyKey, Namespaces: map[string]bool{}}
	var err error
	if t.Selector, err = metav1.LabelSelectorAsSelector(in.LabelSelector); err != nil {
		return t, fmt.Errorf("labelSelector: %w", err)
	}
	for _, n := range in.Namespaces {
		t.Namespaces[n] = true
	}
	if len(in.Namespaces) == 0 && in.NamespaceSelector == nil {
		t.Namespaces[namespace] = true
	}
	if in.NamespaceSelector != nil {
		if t.NamespaceSelector, err = metav1.LabelSelectorAsSelector(in.NamespaceSelector); err != nil {
			return t, fmt.Errorf("namespaceSelector: %w", err)
		}
	}
	return t, nil
}

// SelectsNamespaces tells whether terms of the pod select namespaces by label.
func (p *Pod) SelectsNamespaces() bool {
	for _, t := range p.template.terms {
		if t.Term.NamespaceSelector != nil {
			return true
		}
	}
	return false
}

// minds tells whether plugins that look beyond the node and its pods may have something to say about the pod, or because of it about others.
func (p *Pod) minds() bool {
	return len(p.template.terms) > 0 || len(p.Volumes) > 0 || len(p.Disks) > 0 || len(p.Object.Spec.ResourceClaims) > 0
}

// HasAffinity tells whether the pod has pod affinity or anti-affinity terms of any kind.
func (p *Pod) HasAffinity() bool {
	return len(p.RequiredAffinity)+len(p.RequiredAntiAffinity)+len(p.PreferredAffinity)+len(p.PreferredAntiAffinity) > 0
}
