package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload is one row of the table: a cluster, the pods that are there already, and those whose placing is measured. Shapes and sizes follow the
// workloads of Kubernetes' own scheduler benchmark (test/integration/scheduler_perf), so that its published floors stand beside them.
type workload struct {
	name  string
	floor string // pods a second that Kubernetes' CI asks of its scheduler alone
	goal  string // what Yare is to reach: decided in memory / created to bound

	nodes, initial, pods int
	served               int // pods to measure over the API
	alive                int // in memory, the oldest measured pod leaves when there are more than this; 0 keeps all
	zones                []string
	before               func() *corev1.Pod // the initial pods; nil: as those measured
	pod                  func() *corev1.Pod
	gang                 int // pods of a group that are placed together or not at all; rates are of groups then
}

func workloads() []workload {
	zones, one := []string{"moon-1", "moon-2", "moon-3"}, []string{"zone1"}
	list := []workload{
		{name: "basic", floor: "680 to 810", goal: "100,000 / 5,000", pods: 100_000, pod: plain},
		{name: "node affinity", floor: "220", goal: "80,000 / 4,500", zones: one, pods: 100_000, pod: nodeAffinity},
		{name: "required pod affinity", floor: "35", goal: "20,000 / 4,000", zones: one, initial: 5000, pods: 40_000, pod: together},
		{name: "required pod anti-affinity", floor: "60", goal: "20,000 / 4,000", initial: 1000, pods: 40_000, served: 3500, alive: 3500, pod: apart},
		{name: "topology spread, required", floor: "460", goal: "30,000 / 4,000", zones: zones, initial: 5000, before: plain, pods: 60_000, pod: spread(corev1.DoNotSchedule)},
		{name: "topology spread, preferred", floor: "340", goal: "30,000 / 4,000", zones: zones, initial: 5000, before: plain, pods: 60_000, pod: spread(corev1.ScheduleAnyway)},
		{name: "preferred pod affinity", floor: "-", goal: "-", initial: 5000, pods: 40_000, pod: nearby},
		{name: "preferred pod anti-affinity", floor: "-", goal: "-", initial: 5000, pods: 40_000, pod: away},
		{name: "preemption", floor: "-", goal: "5,000 / 1,500", initial: 20_000, before: unimportant, pods: 5000, served: 2000, pod: important},
		{name: "gang of 100, gangs/s", floor: "-", goal: "500 / 40", pods: 50_000, pod: grouped, gang: 100},
		{name: "basic, 100,000 nodes", floor: "260", goal: "50,000 / -", nodes: 100_000, pods: 200_000, served: -1, pod: plain},
	}
	for i := range list {
		w := &list[i]
		if w.nodes == 0 {
			w.nodes = 5000
		}
		if w.served == 0 {
			w.served = 5000
		}
	}
	return list
}

func nodeName(i int) string { return fmt.Sprintf("node-%06d", i) }

func (w *workload) node(i int) *corev1.Node {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i)}}, Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "bench"}}}}
	if len(w.zones) > 0 {
		n.Labels[corev1.LabelTopologyZone] = w.zones[i%len(w.zones)]
	}
	return n
}

const highPriority = "bench-important"

const namespace = "bench-scheduler"

func podOf(cpu, memory string, labels map[string]string) *corev1.Pod {
	var grace int64
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: labels}, Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, TerminationGracePeriodSeconds: &grace,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // what controllers think of nodes that nobody runs does not count
		Containers: []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}}}
}

func plain() *corev1.Pod { return podOf("100m", "500Mi", nil) }

// groupName stands in a pod for the name of its group.
const groupName = "GROUP"

func grouped() *corev1.Pod {
	p, name := plain(), groupName
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	return p
}

func nodeAffinity() *corev1.Pod {
	p := plain()
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone1", "zone2"}}}}}}}}
	return p
}

func term(key string, labels map[string]string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

func together() *corev1.Pod {
	p := podOf("100m", "500Mi", map[string]string{"color": "blue"})
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(corev1.LabelTopologyZone, p.Labels)}}}
	return p
}

func apart() *corev1.Pod {
	p := podOf("100m", "500Mi", map[string]string{"color": "green"})
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(corev1.LabelHostname, p.Labels)}}}
	return p
}

func nearby() *corev1.Pod {
	p := podOf("100m", "500Mi", map[string]string{"color": "red"})
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term(corev1.LabelHostname, p.Labels)}}}}
	return p
}

func away() *corev1.Pod {
	p := podOf("100m", "500Mi", map[string]string{"color": "yellow"})
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term(corev1.LabelHostname, p.Labels)}}}}
	return p
}

func spread(when corev1.UnsatisfiableConstraintAction) func() *corev1.Pod {
	return func() *corev1.Pod {
		p := podOf("100m", "500Mi", map[string]string{"color": "blue"})
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: when,
			LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
		return p
	}
}

func unimportant() *corev1.Pod { return podOf("900m", "500Mi", nil) }

// important pods fit only where three unimportant ones leave.
func important() *corev1.Pod {
	p, priority := podOf("3", "500Mi", nil), int32(10)
	p.Spec.Priority, p.Spec.PriorityClassName = &priority, highPriority
	return p
}
