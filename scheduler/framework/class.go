package framework

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// classesKept bounds the memory that known classes take.
const classesKept = 256

// Class is what is known of all pods with the same demands: verdicts and scores by slot, from plugins that judge nodes singly.
type Class struct {
	pod      *Pod // stands for all of them
	lastUsed uint64
	judged   bool
	epochs   []uint64
	objects  uint64 // positions in the journals up to which the class is judged
	pods     uint64

	pass   Bits
	static []*Status // by slot: verdict of the OnNode filters
	why    []*Status // by slot: verdict of all local filters

	base   []int64   // weighted sum of local scores that need no normalization
	raw    [][]int64 // by local normalized score plugin
	some   []bool    // whether raw has anything but zeros
	counts map[string]*column
}

// column is one count by slot, renewed for changed nodes.
type column struct {
	value         []int32
	objects, pods uint64
	lastUsed      uint64
}

func (c *Cycle) classOf() *Class {
	if c.class == nil {
		c.class = c.Profile.classFor(c.Pod)
	}
	return c.class
}

// classFor finds or makes the class of p.
func (f *Profile) classFor(p *Pod) *Class {
	f.tick++
	if p.signature == "" {
		p.signature = sign(p)
	}
	c := f.classes[p.signature]
	if c == nil {
		if len(f.classes) >= classesKept {
			f.forgetOldest()
		}
		c = &Class{pod: p, raw: make([][]int64, len(f.normalized)), some: make([]bool, len(f.normalized)), epochs: make([]uint64, len(f.epochs))}
		f.classes[p.signature] = c
	}
	c.lastUsed = f.tick
	return c
}

func (f *Profile) forgetOldest() {
	oldest, at := "", f.tick+1
	for s, c := range f.classes {
		if c.lastUsed < at {
			oldest, at = s, c.lastUsed
		}
	}
	delete(f.classes, oldest)
}

// renew brings the class up to the present state of the nodes.
func (f *Profile) renew(c *Class, cycle *Cycle) {
	n := f.nodes
	voided := !c.judged
	for k, p := range f.epochs {
		if e := p.Epoch(); e != c.epochs[k] {
			c.epochs[k], voided = e, true
		}
	}
	own := *cycle
	own.Pod = c.pod
	objects, known := n.objects.since(c.objects)
	pods, known2 := n.pods.since(c.pods)
	c.fit(n.Slots())
	if voided || !known || !known2 {
		c.judged = true
		for i := range n.Name {
			f.judge(c, &own, i, true)
		}
	} else {
		for _, i := range objects {
			f.judge(c, &own, int(i), true)
		}
		for _, i := range pods {
			f.judge(c, &own, int(i), false)
		}
	}
	c.objects, c.pods = n.objects.end(), n.pods.end()
}

// fit gives the class room for all slots.
func (c *Class) fit(slots int) {
	if slots == 0 || len(c.why) >= slots {
		return
	}
	more := slots - len(c.why)
	c.pass = c.pass.Grow(slots - 1)
	c.static, c.why = append(c.static, make([]*Status, more)...), append(c.why, make([]*Status, more)...)
	c.base = append(c.base, make([]int64, more)...)
	for k := range c.raw {
		c.raw[k] = append(c.raw[k], make([]int64, more)...)
	}
}

// judge asks the local plugins about slot i; object tells whether the node object may have changed.
func (f *Profile) judge(c *Class, cycle *Cycle, i int, object bool) {
	if !f.nodes.Valid.Has(i) {
		c.pass.Clear(i)
		c.static[i], c.why[i] = nil, nil
		return
	}
	if object {
		c.static[i] = firstRefusal(f.onNode, cycle, i)
		for k, s := range f.normalized {
			if s.ScoreScope() == OnNode {
				c.score(k, i, s.Score(cycle, i))
			}
		}
	}
	c.why[i] = c.static[i]
	if c.why[i] == nil {
		c.why[i] = firstRefusal(f.onPods, cycle, i)
	}
	c.pass.Put(i, c.why[i] == nil)
	if c.static[i] != nil {
		return // scores are of no use until the node object changes
	}
	for k, s := range f.normalized {
		if s.ScoreScope() == OnNodePods {
			c.score(k, i, s.Score(cycle, i))
		}
	}
	var sum int64
	for _, s := range f.plain {
		sum += s.weight * s.Score(cycle, i)
	}
	c.base[i] = sum
}

func (c *Class) score(k, i int, v int64) {
	c.raw[k][i] = v
	c.some[k] = c.some[k] || v != 0
}

func firstRefusal(filters []FilterPlugin, c *Cycle, i int) *Status {
	for _, p := range filters {
		if s := p.Filter(c, i); !s.OK() {
			return s
		}
	}
	return nil
}

// Count is a number by slot that depends on the node and its pods only, such as how many of them match a selector. key names it among the counts
// of the pod's class; of is asked only about nodes that changed since. The result must not be changed.
func (c *Cycle) Count(key string, of func(slot int) int32) []int32 {
	n := c.Nodes
	class := c.classOf()
	k := class.counts[key]
	if k == nil {
		if class.counts == nil || len(class.counts) > 32 { // the selectors behind a class may change over time
			class.counts = map[string]*column{}
		}
		k = &column{value: countAll(n, of)}
		class.counts[key] = k
		k.objects, k.pods = n.objects.end(), n.pods.end()
		return k.value
	}
	objects, known := n.objects.since(k.objects)
	pods, known2 := n.pods.since(k.pods)
	if !known || !known2 {
		k.value = countAll(n, of)
	} else {
		k.value = append(k.value, make([]int32, n.Slots()-len(k.value))...)
		for _, changed := range [][]int32{objects, pods} {
			for _, i := range changed {
				k.value[i] = 0
				if n.Valid.Has(int(i)) {
					k.value[i] = of(int(i))
				}
			}
		}
	}
	k.objects, k.pods = n.objects.end(), n.pods.end()
	return k.value
}

func countAll(n *Nodes, of func(int) int32) []int32 {
	out := make([]int32, n.Slots())
	for i := range n.Valid.All() {
		out[i] = of(i)
	}
	return out
}

// ownLabel tells labels and annotations by which controllers number the pods of one template: they say nothing about demands.
func ownLabel(key string) bool {
	return key == appsv1.StatefulSetPodNameLabel || key == appsv1.PodIndexLabel || key == batchv1.JobCompletionIndexAnnotation
}

// sign writes down all that a plugin may base a local verdict on. Pods of one template have the same signature although each has its own name, its own
// number, its own claims and its own name of the service account token's volume.
func sign(p *Pod) string {
	o := p.Object
	b := make([]byte, 0, 512)
	str := func(s string) { b = append(strconv.AppendInt(b, int64(len(s)), 10), ':'); b = append(b, s...) }
	num := func(v int64) { b = append(strconv.AppendInt(b, v, 10), ',') }
	table := func(m map[string]string) {
		num(int64(len(m)))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if str(k); !ownLabel(k) {
				str(m[k])
			}
		}
	}
	str(o.Namespace)
	str(o.Spec.NodeName)
	str(o.Spec.SchedulerName)
	num(int64(p.Priority))
	table(o.Labels)
	table(o.Annotations)
	table(o.Spec.NodeSelector)
	requests := slices.Clone(p.Requests)
	slices.SortFunc(requests, func(a, b Amount) int { return a.Resource - b.Resource })
	num(int64(len(requests)))
	for _, a := range requests {
		num(int64(a.Resource))
		num(a.Value)
	}
	num(p.NonZeroCPU)
	num(p.NonZeroMem)
	num(int64(len(p.Ports)))
	for _, h := range p.Ports {
		str(h.IP)
		str(string(h.Protocol))
		num(int64(h.Port))
	}
	for _, list := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
		num(int64(len(list)))
		for i := range list {
			str(list[i].Image)
		}
	}
	for i := range o.Spec.Volumes {
		if v := &o.Spec.Volumes[i]; v.Image != nil {
			str(v.Image.Reference)
		}
	}
	if rest := rest(&o.Spec); rest != nil {
		j, err := json.Marshal(rest)
		if err != nil { // no API type fails to marshal; if one did, the pod would be a class of its own
			j = []byte(o.UID)
		}
		b = append(b, j...)
	}
	return string(b)
}

// rest is what few pods have.
func rest(s *corev1.PodSpec) any {
	if s.Affinity == nil && len(s.Tolerations) == 0 && len(s.TopologySpreadConstraints) == 0 && s.OS == nil && s.RuntimeClassName == nil && len(s.ResourceClaims) == 0 {
		return nil
	}
	return corev1.PodSpec{Affinity: s.Affinity, Tolerations: s.Tolerations, TopologySpreadConstraints: s.TopologySpreadConstraints, OS: s.OS,
		RuntimeClassName: s.RuntimeClassName, ResourceClaims: s.ResourceClaims}
}
