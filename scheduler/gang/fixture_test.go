package gang_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/gang"
	"github.com/yare-project/yare/scheduler/plugins"
)

// model is a cluster in memory and a decider on it.
type model struct {
	testing.TB
	nodes   *framework.Nodes
	profile *framework.Profile
	decider *gang.Decider
	budgets []*policyv1.PodDisruptionBudget
	serial  int

	topology string // of the group under decision
}

func newModel(t testing.TB, rng *rand.Rand) *model {
	m := &model{TB: t, nodes: framework.NewNodes()}
	m.decider = &gang.Decider{Nodes: m.nodes}
	h := framework.Handle{Nodes: m.nodes, Groups: m, Volumes: noVolumes{}, Bind: func(context.Context, *corev1.Pod, string) error { return nil },
		Preempt: func(*framework.Pod, string, []*framework.Pod) {},
		Budgets: func() []*policyv1.PodDisruptionBudget { return plugins.Charge(m.budgets, m.decider.Victims()) }}
	var err error
	if m.profile, err = scheduler.NewProfile(corev1.DefaultSchedulerName, h, rng); err != nil {
		t.Fatal(err)
	}
	return m
}

// Group and Domain implement framework.Groups.
func (m *model) Group(*framework.Pod) (int, int, bool) { return 0, 0, true }
func (m *model) Domain(*framework.Pod) framework.Bits  { return m.decider.Domain() }

// Topology implements framework.Groups; tests know one label.
func (m *model) Topology(*framework.Pod) string { return m.topology }

// node adds a node described as "name cpus [label=value...]".
func (m *model) node(text string) {
	m.Helper()
	f := strings.Fields(text)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f[0], Labels: map[string]string{}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(f[1]), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")}
	for _, label := range f[2:] {
		key, value, _ := strings.Cut(label, "=")
		n.Labels[key] = value
	}
	m.nodes.SetNode(n)
}

// pod makes a pod of so many processors and of a priority.
func (m *model) pod(name, cpu string, priority int32, change ...func(*corev1.Pod)) *framework.Pod {
	m.Helper()
	m.serial++
	group := "g"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(fmt.Sprint(m.serial))}, Spec: corev1.PodSpec{Priority: &priority,
		SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &group},
		Containers:      []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
	for _, f := range change {
		f(p)
	}
	out, err := framework.NewPod(p, m.nodes)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// want makes a group of pods of these sizes.
func (m *model) want(least int, cpus ...string) *gang.Want {
	w := &gang.Want{Least: least, Preempt: true}
	for i, cpu := range cpus {
		w.Members = append(w.Members, gang.Member{Pod: m.pod(fmt.Sprint("g-", i), cpu, 10), Profile: m.profile})
	}
	return w
}

func (m *model) decide(w *gang.Want) *gang.Plan {
	m.Helper()
	m.topology = w.Topology
	p, err := m.decider.Decide(w)
	if err != nil {
		m.Fatal(err)
	}
	return p
}

// state is what is on each node.
func (m *model) state() string {
	var b strings.Builder
	for i := range m.nodes.Valid.All() {
		names := map[string]int{}
		for _, p := range m.nodes.Pods[i] {
			names[p.Object.Name]++
		}
		fmt.Fprintf(&b, "%s: %d thousandths, %v\n", m.nodes.Name[i], m.nodes.Used[framework.CPU][i], names)
	}
	return b.String()
}

// where tells each placed member's node, in the order of members, and the victims.
func where(w *gang.Want, p *gang.Plan) string {
	at := make([]string, len(w.Members))
	for i := range at {
		at[i] = "-"
	}
	for _, place := range p.Placements {
		at[place.Member] = place.Node
		for _, v := range place.Victims {
			at[place.Member] += "!" + v.Object.Name
		}
	}
	return strings.Join(at, " ")
}

type noVolumes struct{ framework.Volumes }

func (noVolumes) Claim(string, string) (*corev1.PersistentVolumeClaim, bool) { return nil, false }
func (noVolumes) Node(string) (*storagev1.CSINode, bool)                     { return nil, false }
