package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/internal/csimigration"
	"github.com/yare-project/yare/scheduler/framework"
)

// What follows implements framework.Remedier: what would let a refused pod onto a node. Nothing here runs for a pod that finds a place.

// Remedies says how much is missing.
func (p *fit) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	if i < 0 {
		return nil
	}
	n := c.Nodes
	var out []framework.Remedy
	lacks := func(r int, want int64) {
		all := n.Allocatable[r][i]
		free := all - n.Used[r][i]
		name := n.ResourceName(r)
		if want <= free || p.ignores(name) || p.backed(n, r, i) {
			return
		}
		m := framework.Remedy{Kind: framework.MoreResource, Plugin: NodeResourcesFit, Resource: string(name), Amount: want - free, Part: 1}
		if all > 0 {
			m.Part = float64(want-free) / float64(all)
		}
		m.Do = fmt.Sprintf("%s more %s on node %s (%s free of %s)", amount(name, want-free), name, n.Name[i], amount(name, max(free, 0)), amount(name, all))
		if r == framework.PodCount {
			m.Do = fmt.Sprintf("room for one more pod on node %s (it may have %d)", n.Name[i], all)
		}
		out = append(out, m)
	}
	for _, a := range c.Pod.Requests {
		lacks(a.Resource, a.Value)
	}
	lacks(framework.PodCount, 1)
	slices.SortFunc(out, func(a, b framework.Remedy) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// amount writes down v of a resource as users write quantities. Bytes are rounded up to what reads well.
func amount(name corev1.ResourceName, v int64) string {
	switch {
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(v, resource.DecimalSI).String()
	case name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		for unit := int64(1 << 30); unit > 1; unit >>= 10 {
			if v >= 10*unit || v >= unit && v%unit == 0 {
				return resource.NewQuantity((v+unit-1)/unit*unit, resource.BinarySI).String()
			}
		}
		return resource.NewQuantity(v, resource.BinarySI).String()
	}
	return resource.NewQuantity(v, resource.DecimalSI).String()
}

// Remedies names the node to uncordon.
func (unschedulable) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	if i < 0 {
		return nil
	}
	return []framework.Remedy{{Kind: framework.Uncordon, Plugin: NodeUnschedulable, Do: "uncordon node " + c.Nodes.Name[i]}}
}

// Remedies names the taints to tolerate. That of a cordoned node goes with the cordon, by which NodeUnschedulable explains it.
func (taints) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	if i < 0 {
		return nil
	}
	node := c.Nodes.Object[i]
	var out []framework.Remedy
	for k := range node.Spec.Taints {
		t := node.Spec.Taints[k]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || tolerates(c.Pod.Object.Spec.Tolerations, &t) {
			continue
		}
		if node.Spec.Unschedulable && t.Key == corev1.TaintNodeUnschedulable {
			out = append(out, framework.Remedy{Kind: framework.Uncordon, Plugin: TaintToleration, Do: "uncordon node " + node.Name})
			continue
		}
		t.TimeAdded = nil
		m := framework.Remedy{Kind: framework.Tolerate, Plugin: TaintToleration, Taint: &t, Do: fmt.Sprintf("tolerate taint %s of node %s", t.ToString(), node.Name)}
		if strings.HasPrefix(t.Key, "node.kubernetes.io/") { // the system's own say that something is wrong
			m.Do = fmt.Sprintf("node %s without taint %s", node.Name, t.ToString())
			m.Part = 1
		}
		out = append(out, m)
	}
	return out
}

// Remedies names the labels that the node lacks: those of the term that lacks the fewest.
func (p *affinity) Remedies(c *framework.Cycle, i int, refusal *framework.Status) []framework.Remedy {
	if i < 0 || refusal == notForScheduler {
		return nil
	}
	node, spec := c.Nodes.Object[i], &c.Pod.Object.Spec
	var out []framework.Remedy
	for key, value := range spec.NodeSelector {
		if node.Labels[key] != value {
			if key == corev1.LabelHostname {
				return nil
			}
			out = append(out, labelRemedy(node, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}))
		}
	}
	slices.SortFunc(out, func(a, b framework.Remedy) int { return strings.Compare(a.Key, b.Key) })
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return out
	}
	best, some := []framework.Remedy(nil), false
	for _, t := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if one, ok := termRemedies(t, node); ok && (!some || len(one) < len(best)) {
			best, some = one, true
		}
	}
	if !some {
		return nil // the pod names other nodes
	}
	return append(out, best...)
}

// termRemedies is what a node must change to match t; ok is false if it never can.
func termRemedies(t corev1.NodeSelectorTerm, node *corev1.Node) (out []framework.Remedy, ok bool) {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return nil, false
	}
	for _, f := range t.MatchFields {
		if in := slices.Contains(f.Values, node.Name); in != (f.Operator == corev1.NodeSelectorOpIn) {
			return nil, false
		}
	}
	for _, e := range t.MatchExpressions {
		if !expressionMatches(e, node) {
			if e.Key == corev1.LabelHostname {
				return nil, false // a name is no property to give to another node
			}
			out = append(out, labelRemedy(node, e))
		}
	}
	return out, true
}

func expressionMatches(e corev1.NodeSelectorRequirement, node *corev1.Node) bool {
	one, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{e}}}})
	return err == nil && one.Match(node)
}

func labelRemedy(node *corev1.Node, e corev1.NodeSelectorRequirement) framework.Remedy {
	m := framework.Remedy{Kind: framework.Label, Plugin: NodeAffinity, Key: e.Key}
	switch e.Operator {
	case corev1.NodeSelectorOpIn:
		m.Values = e.Values
		m.Do = fmt.Sprintf("label %s=%s on node %s", e.Key, strings.Join(e.Values, " or "), node.Name)
		if has, ok := node.Labels[e.Key]; ok {
			m.Do += fmt.Sprintf(" (it has %q)", has)
			m.Part = 1 // the value may be there for a reason
		}
	case corev1.NodeSelectorOpExists:
		m.Do = fmt.Sprintf("label %s on node %s", e.Key, node.Name)
	case corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpNotIn:
		m.Absent, m.Part = true, 1
		m.Do = fmt.Sprintf("node %s without label %s=%s", node.Name, e.Key, node.Labels[e.Key])
	default: // Gt, Lt
		word := map[corev1.NodeSelectorOperator]string{corev1.NodeSelectorOpGt: "above", corev1.NodeSelectorOpLt: "below"}[e.Operator]
		m.Do = fmt.Sprintf("label %s %s %s on node %s", e.Key, word, strings.Join(e.Values, ""), node.Name)
	}
	return m
}

// Remedies names who holds the ports.
func (ports) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	if i < 0 {
		return nil
	}
	var out []framework.Remedy
	for _, want := range c.Pod.Ports {
		m := framework.Remedy{Kind: framework.FreePort, Plugin: NodePorts, Name: fmt.Sprintf("%d/%s", want.Port, want.Protocol)}
		for _, o := range c.Nodes.Pods[i] {
			if slices.ContainsFunc(o.Ports, want.Conflicts) {
				m.Pods = append(m.Pods, o.Key())
			}
		}
		if len(m.Pods) > 0 {
			m.Do = fmt.Sprintf("host port %s of node %s, which %s has", m.Name, c.Nodes.Name[i], names(m.Pods))
			out = append(out, m)
		}
	}
	return out
}

// names lists pods in order, the first few by name.
func names(pods []types.NamespacedName) string {
	slices.SortFunc(pods, func(a, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	const most = 2
	var out []string
	for k, p := range pods {
		if k == most {
			out = append(out, fmt.Sprintf("%d more", len(pods)-most))
			break
		}
		out = append(out, p.String())
	}
	word := "pod "
	if len(pods) > 1 {
		word = "pods "
	}
	return word + strings.Join(out, ", ")
}

// Remedies names the pods that stand in the way, or the one that is missed.
func (*podAffinity) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	s, ok := c.Get(InterPodAffinity).(*companions)
	if !ok || i < 0 {
		return nil
	}
	n, node := c.Nodes, c.Nodes.Object[i]
	var out []framework.Remedy
	if !s.hasFriends(c, i) {
		for k, t := range c.Pod.RequiredAffinity {
			value, labelled := node.Labels[t.TopologyKey]
			switch {
			case !labelled:
				out = append(out, framework.Remedy{Kind: framework.Label, Plugin: InterPodAffinity, Key: t.TopologyKey, Do: fmt.Sprintf("label %s on node %s", t.TopologyKey, node.Name)})
			case s.friends[k].In(i) <= 0:
				out = append(out, framework.Remedy{Kind: framework.Companion, Plugin: InterPodAffinity, Key: t.TopologyKey, Values: []string{value},
					Do: fmt.Sprintf("a pod that matches %q where %s=%s, or no required affinity to it", t.Selector, t.TopologyKey, value)})
			}
		}
	}
	for k := range c.Pod.RequiredAntiAffinity {
		t := &c.Pod.RequiredAntiAffinity[k]
		foes := within(n, t.TopologyKey, i, func(o *framework.Pod) bool { return t.Matches(o.Object, n.NamespaceLabels(o.Object.Namespace)) })
		if len(foes) > 0 {
			out = append(out, framework.Remedy{Kind: framework.ApartFrom, Plugin: InterPodAffinity, Key: t.TopologyKey, Pods: foes,
				Do: fmt.Sprintf("no anti-affinity to %s where %s=%s", names(foes), t.TopologyKey, node.Labels[t.TopologyKey])})
		}
	}
	return append(out, s.unwelcoming(c, i)...)
}

// unwelcoming names pods whose own anti-affinity keeps c's pod from node i.
func (s *companions) unwelcoming(c *framework.Cycle, i int) []framework.Remedy {
	n, own := c.Nodes, c.Nodes.NamespaceLabels(c.Pod.Object.Namespace)
	by := map[string][]types.NamespacedName{}
	for j := range n.WithAntiAffinity.All() {
		for _, o := range n.Pods[j] {
			for k := range o.RequiredAntiAffinity {
				t := &o.RequiredAntiAffinity[k]
				column := n.Label(t.TopologyKey)
				if column.Value[j] != 0 && column.Value[j] == column.Value[i] && t.Matches(c.Pod.Object, own) && !slices.Contains(by[t.TopologyKey], o.Key()) {
					by[t.TopologyKey] = append(by[t.TopologyKey], o.Key())
				}
			}
		}
	}
	var out []framework.Remedy
	for key, pods := range by {
		out = append(out, framework.Remedy{Kind: framework.ApartFrom, Plugin: InterPodAffinity, Key: key, Pods: pods, Part: 1,
			Do: fmt.Sprintf("%s without anti-affinity to this pod where %s=%s", names(pods), key, n.Object[i].Labels[key])})
	}
	slices.SortFunc(out, func(a, b framework.Remedy) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// within lists the pods that match in the topology domain of node i.
func within(n *framework.Nodes, key string, i int, matches func(*framework.Pod) bool) []types.NamespacedName {
	column := n.Label(key)
	if column.Value[i] == 0 {
		return nil
	}
	var out []types.NamespacedName
	for j := range n.Valid.All() {
		if column.Value[j] != column.Value[i] {
			continue
		}
		for _, o := range n.Pods[j] {
			if matches(o) {
				out = append(out, o.Key())
			}
		}
	}
	return out
}

// Remedies says by how much the pods are too uneven.
func (*spread) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	state, _ := c.Get(PodTopologySpread).([]*domains)
	if i < 0 {
		return nil
	}
	node := c.Nodes.Object[i]
	var out []framework.Remedy
	for _, d := range state {
		v := d.tally.Domain(i)
		if v == 0 {
			out = append(out, framework.Remedy{Kind: framework.Label, Plugin: PodTopologySpread, Key: d.key, Do: fmt.Sprintf("label %s on node %s", d.key, node.Name)})
			continue
		}
		if skew := d.skew(v); skew > d.maxSkew {
			out = append(out, framework.Remedy{Kind: framework.Skew, Plugin: PodTopologySpread, Key: d.key, Amount: skew, Part: float64(skew - d.maxSkew),
				Do: fmt.Sprintf("maxSkew %d for %s (%s has %d matching pods, the emptiest counted %d)", skew, d.key, node.Labels[d.key], d.tally.Count(v), d.least())})
		}
	}
	return out
}

// Remedies names the claims that wait and for what, or the volume that is elsewhere.
func (p *volumeBinding) Remedies(c *framework.Cycle, i int, refusal *framework.Status) []framework.Remedy {
	if i < 0 {
		return p.claimRemedies(c.Pod, refusal)
	}
	s, ok := c.Get(VolumeBinding).(*podClaims)
	if !ok {
		return nil
	}
	node := c.Nodes.Name[i]
	var out []framework.Remedy
	if slices.ContainsFunc([]lack{outOfReach, volumeGone}, func(l lack) bool { return refusal == lackStatus[l] }) {
		for _, claim := range s.bound {
			v, ok := p.h.Volumes.Volume(claim.Spec.VolumeName)
			if !ok {
				out = append(out, storage(claim.Name, fmt.Sprintf("persistentvolume %s, to which claim %s is bound, back", claim.Spec.VolumeName, claim.Name)))
			} else if on, err := p.onNode(v, c.Nodes.Object[i]); err != nil || volume.CheckNodeAffinity(on, c.Nodes.Object[i].Labels) != nil {
				out = append(out, storage(v.Name, fmt.Sprintf("volume %s of claim %s, or a copy of it, where node %s reaches it", v.Name, claim.Name, node)))
			}
		}
		return out
	}
	for _, v := range s.volumes {
		if _, err := p.onNode(v, c.Nodes.Object[i]); err != nil {
			out = append(out, storage(v.Name, fmt.Sprintf("a source that CSI driver %s can handle in volume %s", csimigration.Driver(csimigration.PluginOf(v)), v.Name)))
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, claim := range s.waiting {
		class := "no class"
		if name := claim.Spec.StorageClassName; name != nil && *name != "" {
			class = "class " + *name
		}
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if refusal == lackStatus[noSpace] {
			out = append(out, storage(claim.Name, fmt.Sprintf("storage for %s of %s for claim %s where node %s is", size.String(), class, claim.Name, node)))
			continue
		}
		out = append(out, storage(claim.Name, fmt.Sprintf("a free persistentvolume of %s and %s for claim %s that node %s reaches", size.String(), class, claim.Name, node)))
	}
	return out
}

func storage(name, do string) framework.Remedy {
	return framework.Remedy{Kind: framework.Storage, Plugin: VolumeBinding, Name: name, Do: do}
}

// claimRemedies says which claims of a pod wait, and for what.
func (p *volumeBinding) claimRemedies(pod *framework.Pod, refusal *framework.Status) []framework.Remedy {
	var out []framework.Remedy
	for _, name := range pod.Volumes {
		claim, ok := p.h.Volumes.Claim(pod.Object.Namespace, name)
		switch {
		case !ok:
			out = append(out, storage(name, fmt.Sprintf("persistentvolumeclaim %s created", name)))
		case isBound(claim) || p.waits(claim) && claim.Spec.VolumeName == "":
		case claim.Spec.VolumeName != "":
			out = append(out, storage(name, fmt.Sprintf("claim %s bound to volume %s, which it names", name, claim.Spec.VolumeName)))
		default:
			class, known := p.class(claim)
			wanted := "a persistentvolume that suits it: it has no storage class that makes one"
			if known {
				wanted = fmt.Sprintf("a volume from provisioner %s (class %s)", class.Provisioner, class.Name)
			} else if n := claim.Spec.StorageClassName; n != nil && *n != "" {
				wanted = fmt.Sprintf("storage class %s, which does not exist, or a persistentvolume of that class", *n)
			}
			out = append(out, storage(name, fmt.Sprintf("claim %s bound; it waits for %s", name, wanted)))
		}
	}
	if len(out) == 0 && refusal != nil {
		out = append(out, storage("", refusal.Message()))
	}
	return out
}

// Remedies names the claims that other pods hold, and the claims that are missing.
func (p *volumeRestrictions) Remedies(c *framework.Cycle, i int, refusal *framework.Status) []framework.Remedy {
	if i < 0 {
		return missing(p.h, c.Pod)
	}
	s, ok := c.Get(VolumeRestrictions).(*exclusive)
	if !ok || refusal != claimInUse {
		return nil
	}
	m := framework.Remedy{Kind: framework.Storage, Plugin: VolumeRestrictions, Name: strings.Join(s.claims, ",")}
	for j := range c.Nodes.Valid.All() {
		for _, o := range c.Nodes.Pods[j] {
			if o.Object.Namespace == c.Pod.Object.Namespace && slices.ContainsFunc(o.Volumes, func(v string) bool { return slices.Contains(s.claims, v) }) {
				m.Pods = append(m.Pods, o.Key())
			}
		}
	}
	m.Do = fmt.Sprintf("the end of %s, which has claim %s for itself (ReadWriteOncePod)", names(m.Pods), m.Name)
	return []framework.Remedy{m}
}

func missing(h *framework.Handle, pod *framework.Pod) []framework.Remedy {
	var out []framework.Remedy
	for _, name := range pod.Volumes {
		if _, ok := h.Volumes.Claim(pod.Object.Namespace, name); !ok {
			out = append(out, storage(name, fmt.Sprintf("persistentvolumeclaim %s created", name)))
		}
	}
	return out
}

// Remedies is none: a pod that names a node goes nowhere else.
func (nodeName) Remedies(*framework.Cycle, int, *framework.Status) []framework.Remedy { return nil }
