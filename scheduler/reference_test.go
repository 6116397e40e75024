package scheduler

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/scheduler/framework"
)

// model is the rules of scheduling written plainly, from the API's documentation: one pod, one node, no caches. It shares no code with the plugins.
type model struct {
	rules
	nodes     map[string]*corev1.Node
	pods      []*corev1.Pod // all have a node
	nominated []*corev1.Pod // none has, but status.nominatedNodeName
	spaces    map[string]map[string]string
	siblings  func(*corev1.Pod) labels.Selector
	budgets   []modelBudget
	storage
}

// storage is what there is of volumes, by name; claims by namespace/name.
type storage struct {
	claims      map[string]*corev1.PersistentVolumeClaim
	volumes     map[string]*corev1.PersistentVolume
	classes     map[string]*storagev1.StorageClass
	csiNodes    map[string]*storagev1.CSINode
	drivers     map[string]*storagev1.CSIDriver
	capacities  []*storagev1.CSIStorageCapacity
	attachments []*storagev1.VolumeAttachment
}

// with is the model with other pods.
func (m *model) with(pods []*corev1.Pod) *model {
	out := *m
	out.pods = pods
	return &out
}

func (m *model) podsOn(node string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range m.pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

// feasible lists the nodes that will do. A pod for which room was made goes there if it can.
func (m *model) feasible(p *corev1.Pod) map[string]bool {
	if n := m.nodes[p.Status.NominatedNodeName]; n != nil && m.verdict(p, n) == framework.Success {
		return map[string]bool{n.Name: true}
	}
	out := map[string]bool{}
	for name, n := range m.nodes {
		if m.verdict(p, n) == framework.Success {
			out[name] = true
		}
	}
	return out
}

// verdict judges a node as it is, and with the pods of no less priority that wait for room there: both must do.
func (m *model) verdict(p *corev1.Pod, n *corev1.Node) framework.Code {
	if code := m.fits(p, n); code != framework.Success {
		return code
	}
	pods := slices.Clone(m.pods)
	for _, o := range m.nominated {
		if o.Status.NominatedNodeName == n.Name && o.UID != p.UID && *o.Spec.Priority >= *p.Spec.Priority {
			there := o.DeepCopy()
			there.Spec.NodeName = n.Name
			pods = append(pods, there)
		}
	}
	return m.with(pods).fits(p, n)
}

// fits is the answer of the first rule that refuses the node, in the order of the plugins.
func (m *model) fits(p *corev1.Pod, n *corev1.Node) framework.Code {
	if !m.schedulable(p) {
		return framework.Unresolvable
	}
	cordon := corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}
	switch {
	case n.Spec.Unschedulable && !modelTolerates(p, cordon), p.Spec.NodeName != "" && p.Spec.NodeName != n.Name, !modelToleratesNode(p, n),
		m.added != nil && !modelTermsMatch(m.added.RequiredDuringSchedulingIgnoredDuringExecution, n), !modelNodeMatches(p, n):
		return framework.Unresolvable
	}
	for _, rule := range []func(*corev1.Pod, *corev1.Node) framework.Code{m.portsFree, m.resourcesFree, m.disksFree, m.attachable, m.volumesReach, m.zonesMatch, m.spreadAllows,
		m.podsAllow, declares} {
		if code := rule(p, n); code != framework.Success {
			return code
		}
	}
	return framework.Success
}

// schedulable tells whether the pod could go anywhere at all: its terms don't contradict each other, and its claims are as they must be.
func (m *model) schedulable(p *corev1.Pod) bool {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		some := false
		for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			names := map[string]int{}
			for _, f := range t.MatchFields {
				for _, v := range f.Values {
					names[v]++
				}
			}
			some = some || len(t.MatchFields) == 0
			for _, times := range names {
				some = some || times == len(t.MatchFields)
			}
		}
		if !some {
			return false
		}
	}
	return m.claimsAreReady(p)
}

func modelTolerates(p *corev1.Pod, t corev1.Taint) bool {
	for _, o := range p.Spec.Tolerations {
		if (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) && (o.Operator == corev1.TolerationOpExists || o.Value == t.Value) {
			return true
		}
	}
	return false
}

func modelToleratesNode(p *corev1.Pod, n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !modelTolerates(p, t) {
			return false
		}
	}
	return true
}

func modelNodeMatches(p *corev1.Pod, n *corev1.Node) bool {
	for k, v := range p.Spec.NodeSelector {
		if n.Labels[k] != v {
			return false
		}
	}
	a := p.Spec.Affinity
	return a == nil || a.NodeAffinity == nil || modelTermsMatch(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, n)
}

// modelTermsMatch tells whether any term matches; no selector matches all.
func modelTermsMatch(s *corev1.NodeSelector, n *corev1.Node) bool {
	if s == nil {
		return true
	}
	for _, t := range s.NodeSelectorTerms {
		if modelTermMatches(t, n) {
			return true
		}
	}
	return false
}

func modelTermMatches(t corev1.NodeSelectorTerm, n *corev1.Node) bool {
	for _, f := range t.MatchFields {
		if !slices.Contains(f.Values, n.Name) {
			return false
		}
	}
	for _, e := range t.MatchExpressions {
		v, has := n.Labels[e.Key]
		in := has && slices.Contains(e.Values, v)
		ok := map[corev1.NodeSelectorOperator]bool{corev1.NodeSelectorOpIn: in, corev1.NodeSelectorOpNotIn: !in, corev1.NodeSelectorOpExists: has,
			corev1.NodeSelectorOpDoesNotExist: !has}[e.Operator]
		if e.Operator == corev1.NodeSelectorOpGt || e.Operator == corev1.NodeSelectorOpLt {
			a, err := strconv.Atoi(v)
			b, _ := strconv.Atoi(e.Values[0])
			ok = err == nil && (e.Operator == corev1.NodeSelectorOpGt && a > b || e.Operator == corev1.NodeSelectorOpLt && a < b)
		}
		if !ok {
			return false
		}
	}
	return len(t.MatchFields)+len(t.MatchExpressions) > 0
}

func sidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// modelPorts are the host ports of containers that run for as long as the pod.
func modelPorts(p *corev1.Pod) (out []corev1.ContainerPort) {
	for _, c := range p.Spec.Containers {
		out = append(out, c.Ports...)
	}
	for _, c := range p.Spec.InitContainers {
		if sidecar(c) {
			out = append(out, c.Ports...)
		}
	}
	return slices.DeleteFunc(out, func(c corev1.ContainerPort) bool { return c.HostPort == 0 })
}

func (m *model) portsFree(p *corev1.Pod, n *corev1.Node) framework.Code {
	for _, o := range m.podsOn(n.Name) {
		for _, a := range modelPorts(o) {
			for _, b := range modelPorts(p) {
				ip := a.HostIP == b.HostIP || a.HostIP == "" || b.HostIP == ""
				if a.HostPort == b.HostPort && a.Protocol == b.Protocol && ip {
					return framework.Unschedulable
				}
			}
		}
	}
	return framework.Success
}

func modelValue(l corev1.ResourceList, r corev1.ResourceName) int64 {
	q := l[r]
	if r == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// modelRequest is what a pod asks for: its containers together with its sidecars, or one init container with the sidecars before it, whichever is more; the
// pod's own request if it has one; and its overhead. unset is what a container counts for that does not say.
func modelRequest(p *corev1.Pod, r corev1.ResourceName, unset int64) int64 {
	whole, hasWhole := corev1.ResourceList(nil), false
	if p.Spec.Resources != nil && len(p.Spec.Resources.Requests) > 0 {
		whole = p.Spec.Resources.Requests
		_, hasWhole = whole[r]
		if unset != 0 && (hasWhole || modelRequest(p, r, 0) > 0) {
			unset = 0
		}
	}
	get := func(c corev1.Container) int64 {
		if _, ok := c.Resources.Requests[r]; !ok {
			return unset
		}
		return modelValue(c.Resources.Requests, r)
	}
	var running, sidecars, starting int64
	for _, c := range p.Spec.Containers {
		running += get(c)
	}
	for _, c := range p.Spec.InitContainers {
		if sidecar(c) {
			sidecars += get(c)
		} else {
			starting = max(starting, get(c)+sidecars)
		}
	}
	sum := max(running+sidecars, starting)
	if hasWhole && r != corev1.ResourceEphemeralStorage && !strings.Contains(string(r), "/") {
		sum = modelValue(whole, r)
	}
	return sum + modelValue(p.Spec.Overhead, r)
}

func modelAllocatable(n *corev1.Node, r corev1.ResourceName) int64 {
	return modelValue(n.Status.Allocatable, r)
}

func (m *model) used(n *corev1.Node, r corev1.ResourceName, unset int64) int64 {
	var sum int64
	for _, o := range m.podsOn(n.Name) {
		sum += modelRequest(o, r, unset)
	}
	return sum
}

var modelResources = []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/gpu", "example.org/nic", "hugepages-2Mi"}

func (m *model) resourcesFree(p *corev1.Pod, n *corev1.Node) framework.Code {
	code := framework.Success
	if int64(len(m.podsOn(n.Name)))+1 > modelAllocatable(n, corev1.ResourcePods) {
		code = framework.Unschedulable
	}
	for _, r := range modelResources {
		group, _, extended := strings.Cut(string(r), "/")
		if extended && (slices.Contains(m.ignored, string(r)) || slices.Contains(m.ignoredGroups, group)) {
			continue
		}
		want := modelRequest(p, r, 0)
		if want > modelAllocatable(n, r) {
			return framework.Unresolvable
		}
		if want > 0 && m.used(n, r, 0)+want > modelAllocatable(n, r) {
			code = framework.Unschedulable
		}
	}
	return code
}

// declares tells whether a node says that it can restart all containers of a pod at once, where the pod asks for it.
func declares(p *corev1.Pod, n *corev1.Node) framework.Code {
	for _, c := range p.Spec.Containers {
		for _, r := range c.RestartPolicyRules {
			if r.Action == corev1.ContainerRestartRuleActionRestartAllContainers && !slices.Contains(n.Status.DeclaredFeatures, "RestartAllContainersOnContainerExits") {
				return framework.Unresolvable
			}
		}
	}
	return framework.Success
}

func modelSelector(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		panic(err)
	}
	return out
}
