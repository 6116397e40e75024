package sim

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	namespace = "default"
	zones     = 10
	// The groups of pods that must be apart, spread, or placed together have so many pods each in a small run; in a large one they are larger, not more.
	apartSize, spreadSize, gangSize = 20, 50, 10
)

// room is what a node has: 32 processors, 128 GiB, 110 pods.
var room = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"), corev1.ResourcePods: resource.MustParse("110")}

func node(i int) *corev1.Node {
	name := "node-" + strconv.Itoa(i)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "zone-" + strconv.Itoa(i%zones)}},
		Status: corev1.NodeStatus{Allocatable: room, Capacity: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

// sizes are what pods ask for; the containers of pods of one size are shared, as nobody changes them.
var sizes = [][]corev1.Container{container("500m", "1Gi"), container("1", "2Gi"), container("2", "4Gi"), container("4", "12Gi")}

func container(cpu, memory string) []corev1.Container {
	return []corev1.Container{{Name: "c", Image: "example.org/app:1", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}
}

// kindOfPod is what rules a pod has.
type kindOfPod uint8

const (
	plain  kindOfPod = iota
	apart            // no two of a group on one node
	spread           // a group is spread over the zones, one more here than there at most
	ganged           // a group goes whole
)

// shape is how pod i is made; pods of one group follow each other.
type shape struct {
	kind  kindOfPod
	group string
	size  int // index of sizes
	pods  int // of the group
}

// shapeOf draws the shape of the group that begins with pod i of all.
func shapeOf(i, all int, draw func(n int) int) shape {
	s := shape{size: draw(len(sizes))}
	switch n := draw(20); {
	case n < 2:
		s.kind, s.group, s.pods = apart, fmt.Sprintf("apart-%d", i), apartSize
	case n < 4:
		s.kind, s.group, s.pods = spread, fmt.Sprintf("spread-%d", i), spreadSize
	case n < 5:
		s.kind, s.group, s.pods = ganged, fmt.Sprintf("gang-%d", i), gangSize
	default:
		s.pods = 1 + draw(10)
	}
	s.pods = min(s.pods*max(1, all/20_000), all-i)
	return s
}

func (s shape) pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
		Spec:   corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: sizes[s.size]},
		Status: corev1.PodStatus{Phase: corev1.PodPending}}
	if s.group == "" {
		return p
	}
	p.Labels = map[string]string{"group": s.group}
	mine := &metav1.LabelSelector{MatchLabels: p.Labels}
	switch s.kind {
	case apart:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: mine, TopologyKey: corev1.LabelHostname}}}}
	case spread:
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: mine}}
	case ganged:
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &s.group}
	}
	return p
}

func (s shape) podGroup() *schedulingv1alpha2.PodGroup {
	return &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.group, UID: types.UID(s.group)},
		Spec: schedulingv1alpha2.PodGroupSpec{SchedulingPolicy: schedulingv1alpha2.PodGroupSchedulingPolicy{Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: int32(s.pods)}}}}
}
