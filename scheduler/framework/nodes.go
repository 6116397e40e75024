package framework

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Numbers of the resources that every node has; others follow in the order in which they are first met.
const (
	CPU = iota
	Memory
	EphemeralStorage
	PodCount
)

// Nodes is the state of all nodes by columns: index i of each array is slot i. A slot is a node, or a node's name with pods but without an object yet, or
// free; Valid says which are nodes.
type Nodes struct {
	Valid       Bits
	Name        []string
	Object      []*corev1.Node
	Allocatable [][]int64 // by resource, then slot
	Used        [][]int64
	NonZeroCPU  []int64 // used, with defaults for containers that request none
	NonZeroMem  []int64
	Pods        [][]*Pod
	Nominated   [][]*Pod // pods that wait for room which preemption makes for them there
	Images      []map[string]int64
	Ports       []map[HostPort]int

	WithAffinity     Bits // slots with pods that have pod affinity or anti-affinity terms
	WithAntiAffinity Bits // those with required anti-affinity
	WithNominated    Bits

	names     map[string]int
	free      []int
	resources map[corev1.ResourceName]int
	resource  []corev1.ResourceName
	columns   map[string]*LabelColumn
	imageOn   map[string]int // on how many nodes an image is
	affine    []int          // by slot: pods with terms
	antiAff   []int          // by slot: pods with required anti-affinity
	spaces    map[string]labels.Set
	claims    map[string]int // by namespace/name: pods on nodes that mount it
	count     int

	objects    journal[int32] // slots whose node changed
	pods       journal[shift]
	quiet      bool // what changes now is taken back before anybody looks
	imageEpoch uint64
	spaceEpoch uint64
	simulated  uint64 // changes of pods that simulations made and took back

	nominees map[types.UID]int // the slots at which pods wait for room
	minding  Bits              // slots at which pods wait that may mind more than room
	termBook
	templates
}

// NewNodes makes an empty state.
func NewNodes() *Nodes {
	n := &Nodes{names: map[string]int{}, resources: map[corev1.ResourceName]int{}, columns: map[string]*LabelColumn{}, imageOn: map[string]int{},
		spaces: map[string]labels.Set{}, claims: map[string]int{}, nominees: map[types.UID]int{}, termBook: termBook{terms: map[string]*Terms{}}, templates: newTemplates()}
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
		n.Resource(r)
	}
	return n
}

// Resource is the number of a resource, given on first use.
func (n *Nodes) Resource(name corev1.ResourceName) int {
	if r, ok := n.resources[name]; ok {
		return r
	}
	r := len(n.resource)
	n.resources[name] = r
	n.resource = append(n.resource, name)
	n.Allocatable = append(n.Allocatable, make([]int64, len(n.Name)))
	n.Used = append(n.Used, make([]int64, len(n.Name)))
	return r
}

// ResourceName is the name of resource r.
func (n *Nodes) ResourceName(r int) corev1.ResourceName { return n.resource[r] }

// Len is how many nodes there are; Slots how many slots.
func (n *Nodes) Len() int   { return n.count }
func (n *Nodes) Slots() int { return len(n.Name) }

// Slot finds a node or a name with pods.
func (n *Nodes) Slot(name string) (int, bool) {
	i, ok := n.names[name]
	return i, ok
}

// Lookup finds a node that has an object.
func (n *Nodes) Lookup(name string) (int, bool) {
	i, ok := n.names[name]
	return i, ok && n.Valid.Has(i)
}

func (n *Nodes) slot(name string) int {
	if i, ok := n.names[name]; ok {
		return i
	}
	var i int
	if k := len(n.free); k > 0 {
		i, n.free = n.free[k-1], n.free[:k-1]
	} else {
		i = n.extend()
	}
	n.names[name], n.Name[i] = i, name
	return i
}

func (n *Nodes) extend() int {
	i := len(n.Name)
	n.Name, n.Object = append(n.Name, ""), append(n.Object, nil)
	for r := range n.resource {
		n.Allocatable[r], n.Used[r] = append(n.Allocatable[r], 0), append(n.Used[r], 0)
	}
	n.NonZeroCPU, n.NonZeroMem = append(n.NonZeroCPU, 0), append(n.NonZeroMem, 0)
	n.Pods, n.Nominated = append(n.Pods, nil), append(n.Nominated, nil)
	n.Images, n.Ports = append(n.Images, nil), append(n.Ports, nil)
	n.affine, n.antiAff = append(n.affine, 0), append(n.antiAff, 0)
	n.Valid, n.WithAffinity, n.WithAntiAffinity, n.WithNominated = n.Valid.Grow(i), n.WithAffinity.Grow(i), n.WithAntiAffinity.Grow(i), n.WithNominated.Grow(i)
	for _, c := range n.columns {
		c.grow()
	}
	return i
}

// release frees slot i if nothing is left of it.
func (n *Nodes) release(i int) {
	if n.Valid.Has(i) || len(n.Pods[i]) > 0 || len(n.Nominated[i]) > 0 || n.Name[i] == "" {
		return
	}
	delete(n.names, n.Name[i])
	n.Name[i] = ""
	n.free = append(n.free, i)
}

// SetNode adds or replaces a node. It returns the old object, nil if it is new.
func (n *Nodes) SetNode(node *corev1.Node) *corev1.Node {
	i := n.slot(node.Name)
	old := n.Object[i]
	n.Object[i] = node
	if old != nil && sameForScheduling(old, node) {
		return old
	}
	if !n.Valid.Has(i) {
		n.Valid.Set(i)
		n.count++
		n.imageEpoch++
	}
	for r := range n.resource {
		n.Allocatable[r][i] = 0
	}
	for name, q := range node.Status.Allocatable {
		n.Allocatable[n.Resource(name)][i] = valueOf(name, q)
	}
	for key, c := range n.columns {
		c.set(i, node.Labels, key)
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Status.Images, node.Status.Images) {
		n.setImages(i, node.Status.Images)
	}
	n.objects.add(int32(i))
	return old
}

// sameForScheduling ignores what heartbeats change.
func sameForScheduling(a, b *corev1.Node) bool {
	return a.UID == b.UID && equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable) && equality.Semantic.DeepEqual(a.Status.Images, b.Status.Images) &&
		slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, SameCondition)
}

// SameCondition tells whether two conditions of a node say the same, whenever they said it last.
func SameCondition(a, b corev1.NodeCondition) bool { return a.Type == b.Type && a.Status == b.Status }

// Touch records that what is known of a node besides its object changed, so that plugins of every scope judge it again.
func (n *Nodes) Touch(i int) { n.objects.add(int32(i)) }

// RemoveNode removes a node's object; its pods stay counted until they are removed.
func (n *Nodes) RemoveNode(name string) {
	i, ok := n.Lookup(name)
	if !ok {
		return
	}
	n.Valid.Clear(i)
	n.count--
	n.Object[i] = nil
	for r := range n.resource {
		n.Allocatable[r][i] = 0
	}
	for _, c := range n.columns {
		c.put(i, 0)
	}
	n.setImages(i, nil)
	n.imageEpoch++
	n.objects.add(int32(i))
	n.release(i)
}

func (n *Nodes) setImages(i int, images []corev1.ContainerImage) {
	for name := range n.Images[i] {
		if n.imageOn[name]--; n.imageOn[name] == 0 {
			delete(n.imageOn, name)
		}
	}
	n.Images[i] = nil
	if len(images) > 0 {
		n.Images[i] = map[string]int64{}
	}
	for _, image := range images {
		for _, name := range image.Names {
			if _, twice := n.Images[i][name]; !twice {
				n.imageOn[name]++
			}
			n.Images[i][name] = image.SizeBytes
		}
	}
	n.imageEpoch++
}

// ImageNodes is on how many nodes an image is; ImageEpoch changes whenever that may.
func (n *Nodes) ImageNodes(name string) int { return n.imageOn[name] }
func (n *Nodes) ImageEpoch() uint64         { return n.imageEpoch }

// NormalImage is an image reference with its tag, as nodes report it.
func NormalImage(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}

// AddPod counts a pod on a node, which need not be known yet.
func (n *Nodes) AddPod(p *Pod, node string) {
	i := n.slot(node)
	p.node, p.at = i, len(n.Pods[i])
	n.Pods[i] = append(n.Pods[i], p)
	n.account(p, 1)
	n.shifted(p, i, 1)
}

// RemovePod forgets a pod that AddPod counted.
func (n *Nodes) RemovePod(p *Pod) {
	i := p.node
	if i < 0 {
		return
	}
	n.account(p, -1)
	list := n.Pods[i]
	last := list[len(list)-1]
	list[p.at], last.at = last, p.at
	list[len(list)-1] = nil
	n.Pods[i] = list[:len(list)-1]
	p.node = -1
	n.shifted(p, i, -1)
	n.release(i)
}

func (n *Nodes) shifted(p *Pod, i, sign int) {
	if !n.quiet {
		n.pods.add(shift{int32(i), int32(sign), p})
	}
}

func (n *Nodes) account(p *Pod, sign int64) {
	i := p.node
	for _, a := range p.Requests {
		n.Used[a.Resource][i] += sign * a.Value
	}
	n.Used[PodCount][i] += sign
	n.NonZeroCPU[i] += sign * p.NonZeroCPU
	n.NonZeroMem[i] += sign * p.NonZeroMem
	n.countTerms(p, int(sign))
	if p.HasAffinity() {
		n.affine[i] += int(sign)
		n.WithAffinity.Put(i, n.affine[i] > 0)
	}
	if len(p.RequiredAntiAffinity) > 0 {
		n.antiAff[i] += int(sign)
		n.WithAntiAffinity.Put(i, n.antiAff[i] > 0)
	}
	for _, name := range p.Volumes {
		key := p.Object.Namespace + "/" + name
		if n.claims[key] += int(sign); n.claims[key] == 0 {
			delete(n.claims, key)
		}
	}
	for _, port := range p.Ports {
		if n.Ports[i] == nil {
			n.Ports[i] = map[HostPort]int{}
		}
		if n.Ports[i][port] += int(sign); n.Ports[i][port] == 0 {
			delete(n.Ports[i], port)
		}
	}
}

// ClaimUsers is how many pods on nodes mount a claim.
func (n *Nodes) ClaimUsers(namespace, name string) int { return n.claims[namespace+"/"+name] }

// Nominate records that p waits for room on a node; an empty name ends that.
func (n *Nodes) Nominate(p *Pod, node string) {
	if node == "" {
		return
	}
	i := n.slot(node)
	n.Nominated[i] = append(n.Nominated[i], p)
	n.WithNominated.Set(i)
	n.nominees[p.Object.UID] = i
	n.minding = n.minding.Grow(i)
	n.minding.Put(i, slices.ContainsFunc(n.Nominated[i], (*Pod).minds))
	n.pods.add(shift{slot: int32(i)})
}

// Waits tells whether a pod waits for room which preemption makes for it.
func (n *Nodes) Waits(p *Pod) bool {
	_, so := n.nominees[p.Object.UID]
	return so
}

// Unnominate forgets the nomination of p on a node.
func (n *Nodes) Unnominate(p *Pod, node string) {
	i, ok := n.names[node]
	if !ok {
		return
	}
	for k, o := range n.Nominated[i] {
		if o == p {
			n.Nominated[i] = append(n.Nominated[i][:k:k], n.Nominated[i][k+1:]...)
			break
		}
	}
	n.WithNominated.Put(i, len(n.Nominated[i]) > 0)
	delete(n.nominees, p.Object.UID)
	n.minding.Put(i, slices.ContainsFunc(n.Nominated[i], (*Pod).minds))
	n.pods.add(shift{slot: int32(i)})
	n.release(i)
}

// SetNamespace records a namespace's labels; nil forgets it.
func (n *Nodes) SetNamespace(name string, l labels.Set) {
	if old, ok := n.spaces[name]; ok == (l != nil) && maps.Equal(old, l) {
		return
	}
	n.spaceEpoch++
	if l == nil {
		delete(n.spaces, name)
		return
	}
	n.spaces[name] = l
}

// NamespaceLabels are a namespace's labels; NamespaceEpoch changes whenever any namespace's do.
func (n *Nodes) NamespaceLabels(name string) labels.Set { return n.spaces[name] }
func (n *Nodes) NamespaceEpoch() uint64                 { return n.spaceEpoch }

// Replace puts a newer object in the place of a counted pod whose requests, labels and terms are the same. The old Pod is no longer on a node.
func (n *Nodes) Replace(p *Pod, obj *corev1.Pod) *Pod {
	next := *p
	next.Object = obj
	if !p.Object.Status.StartTime.Equal(obj.Status.StartTime) { // how much its node loses with it has changed
		n.pods.add(shift{slot: int32(p.node)})
	}
	n.Pods[p.node][p.at] = &next
	p.node = -1
	return &next
}
