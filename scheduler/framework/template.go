package framework

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Bounds of the memory that known templates take.
const (
	templatesKept = 1024
	shapesKept    = 4096
)

// shape is the identity of what plugins of narrow scope may judge pods by.
type shape struct{ signature string }

// template is what all pods made from one pattern share: they have each their own name, number, claims and name of the service account token's volume, and nothing else.
type template struct {
	full *shape
	spec *shape // without namespace, labels and annotations

	requests               []Amount
	nonZeroCPU, nonZeroMem int64
	ports                  []HostPort

	requiredAffinity, requiredAntiAffinity   []Term
	preferredAffinity, preferredAntiAffinity []WeightedTerm
	terms                                    []*Terms

	required  *nodeaffinity.RequiredNodeAffinity
	preferred *nodeaffinity.PreferredSchedulingTerms
	memos     []memo
	numbered  bool // its pods have the same numbers, too
}

type memo struct {
	key   string
	epoch uint64
	value any
}

// Memo is what a plugin keeps about all pods of the pod's template: what make, which must follow from the pod's namespace, labels, annotations and spec alone, returned for this
// epoch of whatever else it depends on. It may change what it keeps.
func (c *Cycle) Memo(key string, epoch uint64, make func() any) any {
	t := c.Pod.template
	for k := range t.memos {
		if m := &t.memos[k]; m.key == key {
			if m.epoch != epoch {
				m.epoch, m.value = epoch, make()
			}
			return m.value
		}
	}
	v := make()
	t.memos = append(t.memos, memo{key, epoch, v})
	return v
}

// templates remembers the latest ones.
type templates struct {
	known   map[string]*template
	shapes  map[string]*shape
	scratch []byte

	numbered bool // some pod selects others by the numbers that controllers give to pods of one template: then those tell templates apart
}

func newTemplates() templates {
	return templates{known: map[string]*template{}, shapes: map[string]*shape{}}
}

func (t *templates) shape(signature []byte) *shape {
	if s := t.shapes[string(signature)]; s != nil {
		return s
	}
	if len(t.shapes) >= shapesKept {
		clear(t.shapes)
		clear(t.known)
	}
	s := &shape{string(signature)}
	t.shapes[s.signature] = s
	return s
}

// templateOf finds or makes the template of a pod.
func (n *Nodes) templateOf(obj *corev1.Pod) (*template, error) {
	b, spec := sign(n.scratch[:0], obj, n.numbered)
	n.scratch = b
	if t := n.known[string(b)]; t != nil {
		return t, nil
	}
	t := &template{}
	if err := t.parse(obj, n); err != nil {
		return nil, err
	}
	if !n.numbered && selectsByNumber(t, obj) {
		n.numbered = true
		clear(n.known)
		b, spec = sign(b[:0], obj, true)
		n.scratch = b
	}
	t.numbered = n.numbered
	if len(n.known) >= templatesKept {
		clear(n.known)
	}
	t.full, t.spec = n.shape(b), n.shape(b[:spec])
	n.known[t.full.signature] = t
	return t, nil
}

// ownLabel tells labels and annotations by which controllers number the pods of one template: they say nothing about demands.
func ownLabel(key string) bool {
	return key == appsv1.StatefulSetPodNameLabel || key == appsv1.PodIndexLabel || key == batchv1.JobCompletionIndexAnnotation
}

// selectsByNumber tells whether a pod selects pods by a label that numbers them.
func selectsByNumber(t *template, obj *corev1.Pod) bool {
	by := func(s labels.Selector) bool {
		requirements, _ := s.Requirements()
		return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return ownLabel(r.Key()) })
	}
	for _, g := range t.terms {
		if by(g.Term.Selector) {
			return true
		}
	}
	for i := range obj.Spec.TopologySpreadConstraints {
		c := &obj.Spec.TopologySpreadConstraints[i]
		if s, err := metav1.LabelSelectorAsSelector(c.LabelSelector); err == nil && by(s) || slices.ContainsFunc(c.MatchLabelKeys, ownLabel) {
			return true
		}
	}
	return false
}

// signer writes a signature.
type signer []byte

func (b *signer) num(v int64)  { *b = append(strconv.AppendInt(*b, v, 36), ',') }
func (b *signer) str(s string) { b.num(int64(len(s))); *b = append(*b, s...) }

func (b *signer) table(m map[string]string, numbered bool) {
	b.num(int64(len(m)))
	var few [16]string
	keys := few[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if b.str(k); numbered || !ownLabel(k) {
			b.str(m[k])
		}
	}
}

func (b *signer) amounts(list corev1.ResourceList) {
	b.num(int64(len(list)))
	var few [8]corev1.ResourceName
	names := few[:0]
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.str(string(name))
		q := list[name]
		if v, whole := q.AsInt64(); whole {
			b.num(v)
		} else {
			*b = append(*b, 'n')
			b.num(q.ScaledValue(resource.Nano))
		}
	}
}

func (b *signer) containers(list []corev1.Container) {
	b.num(int64(len(list)))
	for i := range list {
		c := &list[i]
		b.str(c.Image)
		b.amounts(c.Resources.Requests)
		if c.RestartPolicy != nil {
			*b = append(*b, 'p')
			b.str(string(*c.RestartPolicy))
		}
		for k := range c.Ports {
			if p := &c.Ports[k]; p.HostPort > 0 {
				*b = append(*b, 'h')
				b.str(p.HostIP)
				b.str(string(p.Protocol))
				b.num(int64(p.HostPort))
			}
		}
	}
}

// message is what the API's types can be written as.
type message interface {
	Size() int
	MarshalTo(data []byte) (int, error)
}

// rest writes what few pods have.
func (b *signer) rest(tag byte, m message) {
	size := m.Size()
	*b = append(*b, tag)
	b.num(int64(size))
	at := len(*b)
	*b = append(*b, make([]byte, size)...)
	_, _ = m.MarshalTo((*b)[at:]) // it fails only for want of room
}

// sign writes down all that a plugin may base a local verdict on, and all that a pod's demands are worked out from; the first part, without namespace, labels and
// annotations, ends at spec. The numbers that controllers give are left out unless numbered.
func sign(to []byte, o *corev1.Pod, numbered bool) (b []byte, spec int) {
	w, s := signer(to), &o.Spec
	w.str(s.SchedulerName)
	if s.Priority != nil {
		w = append(w, 'p')
		w.num(int64(*s.Priority))
	}
	w.table(s.NodeSelector, true)
	w.containers(s.InitContainers)
	w.containers(s.Containers)
	if len(s.Overhead) > 0 {
		w = append(w, 'o')
		w.amounts(s.Overhead)
	}
	if s.Resources != nil {
		w.rest('r', s.Resources)
	}
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Image != nil {
			w = append(w, 'i')
			w.str(v.Image.Reference)
		}
	}
	w.num(int64(len(s.Tolerations)))
	for i := range s.Tolerations {
		t := &s.Tolerations[i]
		w.str(t.Key)
		w.str(string(t.Operator))
		w.str(t.Value)
		w.str(string(t.Effect))
	}
	if s.Affinity != nil {
		w.rest('a', s.Affinity)
	}
	for i := range s.TopologySpreadConstraints {
		w.rest('t', &s.TopologySpreadConstraints[i])
	}
	if s.OS != nil {
		w = append(w, 's')
		w.str(string(s.OS.Name))
	}
	if s.RuntimeClassName != nil {
		w = append(w, 'c')
		w.str(*s.RuntimeClassName)
	}
	for i := range s.ResourceClaims {
		w.rest('d', &s.ResourceClaims[i])
	}
	w = append(w, ';')
	spec = len(w)
	w.str(o.Namespace)
	w.table(o.Labels, numbered)
	w.table(o.Annotations, numbered)
	return w, spec
}
