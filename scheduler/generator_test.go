package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// generator makes random but plausible objects from few values, so that rules meet.
type generator struct{ *rand.Rand }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func (g generator) often(percent int) bool { return g.IntN(100) < percent }

func (g generator) quantity(of ...string) resource.Quantity {
	return resource.MustParse(pick(g, of...))
}

func (g generator) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + strconv.Itoa(g.IntN(1e9))), Labels: map[string]string{corev1.LabelHostname: name}}}
	if g.often(85) {
		n.Labels[corev1.LabelTopologyZone] = pick(g, "z1", "z2", "z3")
	}
	if g.often(70) {
		n.Labels["topology.ebs.csi.aws.com/zone"] = pick(g, "z1", "z2", "z3") // as its driver says, which need not agree
	}
	if g.often(60) {
		n.Labels["disk"] = pick(g, "ssd", "hdd")
	}
	if g.often(50) {
		n.Labels["cores"] = pick(g, "4", "16")
	}
	n.Spec.Unschedulable = g.often(8)
	if g.often(35) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: pick(g, "a", "b"), Effect: pick(g, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)})
	}
	if g.often(15) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "slow", Effect: corev1.TaintEffectPreferNoSchedule})
	}
	n.Status.Allocatable = corev1.ResourceList{"cpu": g.quantity("1", "2", "4"), "memory": g.quantity("1Gi", "4Gi"), "pods": g.quantity("3", "20")}
	for _, r := range []struct {
		name   corev1.ResourceName
		values []string
	}{{"example.com/gpu", []string{"1", "2"}}, {"example.org/nic", []string{"1"}}, {"ephemeral-storage", []string{"2Gi"}}, {"hugepages-2Mi", []string{"4Mi"}}} {
		if g.often(40) {
			n.Status.Allocatable[r.name] = g.quantity(r.values...)
		}
	}
	for _, image := range []string{"web:1", "db:1", "tool:latest", "model:7"} {
		if g.often(20) {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: int64(1+g.IntN(900)) << 20})
		}
	}
	if g.often(60) {
		n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"}
	}
	return n
}

func (g generator) selector() *metav1.LabelSelector {
	switch g.IntN(12) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return nil
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(g, "web", "db")}}
}

func (g generator) term() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: pick(g, corev1.LabelHostname, corev1.LabelTopologyZone), LabelSelector: g.selector()}
	switch g.IntN(8) {
	case 0:
		t.Namespaces = []string{"default", "prod"}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	case 2:
		t.NamespaceSelector = &metav1.LabelSelector{}
	case 3:
		t.Namespaces, t.NamespaceSelector = []string{"default"}, &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	}
	return t
}

func (g generator) requirement() corev1.NodeSelectorRequirement {
	return pick(g, corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}},
		corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd", "hdd"}},
		corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"hdd"}},
		corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"8"}},
		corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpLt, Values: []string{"8"}},
		corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpExists},
		corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist})
}

func (g generator) nodeTerm() corev1.NodeSelectorTerm {
	t := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{g.requirement()}}
	for g.often(20) {
		t.MatchExpressions = append(t.MatchExpressions, g.requirement())
	}
	return t
}

func (g generator) named() corev1.NodeSelectorTerm {
	one := func() corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprintf("n%d", g.IntN(8))}} // the API allows one value
	}
	t := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{one()}}
	if g.often(10) {
		t.MatchFields = append(t.MatchFields, one())
	}
	if g.often(30) {
		t.MatchExpressions = []corev1.NodeSelectorRequirement{g.requirement()}
	}
	return t
}

func (g generator) nodeAffinity() *corev1.NodeAffinity {
	a := &corev1.NodeAffinity{}
	for g.often(50) && len(a.PreferredDuringSchedulingIgnoredDuringExecution) < 3 {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{Weight: int32(1 + g.IntN(50)), Preference: g.nodeTerm()})
	}
	var terms []corev1.NodeSelectorTerm
	switch {
	case g.often(15):
		terms = append(terms, g.named())
		if g.often(30) {
			terms = append(terms, g.named())
		}
	case g.often(40):
		terms = append(terms, g.nodeTerm())
	}
	if len(terms) > 0 && g.often(20) {
		terms = append(terms, g.nodeTerm())
	}
	if len(terms) > 0 {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	}
	return a
}

func (g generator) terms(hard, soft int) (required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for g.often(hard) && len(required) < 2 {
		required = append(required, g.term())
	}
	for g.often(soft) && len(preferred) < 2 {
		preferred = append(preferred, corev1.WeightedPodAffinityTerm{Weight: int32(1 + g.IntN(100)), PodAffinityTerm: g.term()})
	}
	return required, preferred
}

func (g generator) affinity() *corev1.Affinity {
	a := &corev1.Affinity{}
	if g.often(40) {
		a.NodeAffinity = g.nodeAffinity()
	}
	if g.often(50) {
		a.PodAffinity = &corev1.PodAffinity{}
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = g.terms(40, 50)
	}
	if g.often(50) {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = g.terms(35, 50)
	}
	return a
}

func (g generator) constraint() corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{MaxSkew: int32(1 + g.IntN(2)), TopologyKey: pick(g, corev1.LabelHostname, corev1.LabelTopologyZone, "disk"),
		WhenUnsatisfiable: pick(g, corev1.DoNotSchedule, corev1.ScheduleAnyway), LabelSelector: g.selector()}
	if g.often(40) {
		c.NodeTaintsPolicy = ptr.To(pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if g.often(40) {
		c.NodeAffinityPolicy = ptr.To(pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if c.WhenUnsatisfiable == corev1.DoNotSchedule && g.often(30) {
		c.MinDomains = ptr.To(int32(1 + g.IntN(3)))
	}
	if c.LabelSelector != nil && g.often(20) {
		c.MatchLabelKeys = []string{pick(g, "rev", "none")}
	}
	return c
}

func (g generator) requests() corev1.ResourceList {
	r := corev1.ResourceList{}
	for _, one := range []struct {
		name    corev1.ResourceName
		percent int
		values  []string
	}{{"cpu", 70, []string{"100m", "300m", "1"}}, {"memory", 60, []string{"64Mi", "512Mi"}}, {"example.com/gpu", 8, []string{"1"}}, {"example.org/nic", 5, []string{"1"}},
		{"ephemeral-storage", 8, []string{"1Gi"}}, {"hugepages-2Mi", 4, []string{"2Mi"}}} {
		if g.often(one.percent) {
			r[one.name] = g.quantity(one.values...)
		}
	}
	return r
}

func (g generator) container(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: pick(g, "web:1", "db:1", "none:1", "tool"), Resources: corev1.ResourceRequirements{Requests: g.requests()}}
	if g.often(12) {
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: pick[int32](g, 0, 80, 443), Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP), HostIP: pick(g, "", "10.0.0.1", "10.0.0.2")}}
	}
	return c
}

// template is a pod without a name.
func (g generator) template() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pick(g, "default", "default", "prod"), Labels: map[string]string{"app": pick(g, "web", "db", "job"), "rev": pick(g, "1", "2")}}}
	p.Spec.Containers = []corev1.Container{g.container("c")}
	for g.often(20) {
		p.Spec.Containers = append(p.Spec.Containers, g.container(fmt.Sprintf("c%d", len(p.Spec.Containers))))
	}
	for g.often(25) {
		c := g.container(fmt.Sprintf("i%d", len(p.Spec.InitContainers)))
		if g.often(50) {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if g.often(10) {
		p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("50m"), "memory": resource.MustParse("16Mi")}
	}
	if g.often(12) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": g.quantity("200m", "1500m")}}
		if g.often(50) {
			p.Spec.Resources.Requests["memory"] = g.quantity("128Mi", "700Mi")
		}
	}
	p.Spec.Priority = ptr.To(int32(g.IntN(4)))
	if g.often(8) {
		p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever)
	}
	if g.often(40) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "team", Operator: corev1.TolerationOpEqual, Value: pick(g, "a", "b"), Effect: pick(g, "", corev1.TaintEffectNoSchedule)})
	}
	if g.often(15) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: pick(g, "", corev1.TaintEffectPreferNoSchedule)})
	}
	if g.often(20) {
		p.Spec.NodeSelector = map[string]string{"disk": pick(g, "ssd", "hdd")}
	}
	if g.often(50) {
		p.Spec.Affinity = g.affinity()
	}
	for g.often(30) && len(p.Spec.TopologySpreadConstraints) < 3 {
		c := g.constraint()
		if !slices.ContainsFunc(p.Spec.TopologySpreadConstraints, func(o corev1.TopologySpreadConstraint) bool {
			return o.TopologyKey == c.TopologyKey && o.WhenUnsatisfiable == c.WhenUnsatisfiable
		}) {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
		}
	}
	if g.often(6) {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	}
	if g.often(2) {
		p.Spec.NodeName = fmt.Sprintf("n%d", g.IntN(8))
	}
	g.mount(p)
	return p
}

// variant is a pod that differs from p in one thing, so that what is kept of one must not serve the other.
func (g generator) variant(p *corev1.Pod) *corev1.Pod {
	v := p.DeepCopy()
	first := &v.Spec.Containers[0]
	switch g.IntN(9) {
	case 0: // the same request of the whole, by fewer containers
		first.Resources.Requests["cpu"] = resource.MustParse("200m")
		second := *first.DeepCopy()
		second.Name, second.Ports = "second", nil
		delete(second.Resources.Requests, "cpu")
		v.Spec.Containers = append(v.Spec.Containers, second)
		p.Spec.Containers = append(p.Spec.Containers, *second.DeepCopy())
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("100m")
		p.Spec.Containers[len(p.Spec.Containers)-1].Resources.Requests["cpu"] = resource.MustParse("100m")
	case 1:
		v.Spec.Tolerations = append(v.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	case 2:
		v.Namespace = map[string]string{"default": "prod", "prod": "default"}[v.Namespace]
	case 3:
		v.Labels["app"] = map[string]string{"web": "db", "db": "job", "job": "web"}[v.Labels["app"]]
	case 4:
		v.Spec.Priority = ptr.To(*v.Spec.Priority + 1)
	case 5:
		v.Spec.NodeSelector = map[string]string{"cores": "4"}
	case 6:
		first.Image = map[string]string{"web:1": "db:1"}[first.Image]
		if first.Image == "" {
			first.Image = "web:1"
		}
	case 7:
		first.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 443, Protocol: corev1.ProtocolTCP}}
	case 8:
		v.Spec.Affinity = g.affinity()
	}
	return v
}

// plainly leaves out of a pod what it thinks of others.
func plainly(p *corev1.Pod) {
	p.Spec.Affinity, p.Spec.TopologySpreadConstraints = nil, nil
}

// rules are Kubernetes', or others.
func (g generator) rules() rules {
	r := kubernetes()
	if g.often(40) {
		return r
	}
	r.strategy = pick(g, "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
	r.shape = pick(g, []point{{0, 0}, {100, 10}}, []point{{0, 10}, {40, 3}, {100, 0}}, []point{{20, 7}, {80, 2}})
	r.resources = pick(g, r.resources, []weighed{{"cpu", 3}, {"example.com/gpu", 5}}, []weighed{{"memory", 1}, {"ephemeral-storage", 2}, {"cpu", 1}})
	r.balance = pick(g, r.balance, []corev1.ResourceName{"cpu", "memory", "example.com/gpu"}, []corev1.ResourceName{"cpu"})
	if g.often(30) {
		r.ignored = []string{"example.com/gpu", "hugepages-2Mi"} // the second is none that can be ignored
	}
	if g.often(30) {
		r.ignoredGroups = []string{"example.org"}
	}
	r.hardWeight, r.ignoreSoft = pick[int64](g, 0, 1, 50), g.often(30)
	if g.often(30) {
		r.added = g.nodeAffinity()
	}
	if g.often(50) {
		r.system, r.defaults = false, nil
		for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
			if c := g.constraint(); g.often(70) {
				c.TopologyKey, c.LabelSelector, c.MatchLabelKeys = key, nil, nil
				r.defaults = append(r.defaults, c)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.weights)) {
		if g.often(40) {
			r.weights[name] = int64(1 + g.IntN(9))
		}
	}
	return r
}
