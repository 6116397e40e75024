package plugins

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
)

// fixture is a small cluster.
type fixture struct {
	t        *testing.T
	nodes    *framework.Nodes
	storage  *fakeStorage
	siblings labels.Selector
	budgets  []*policyv1.PodDisruptionBudget

	onNode  string // by the last preemption
	victims []string
}

func newFixture(t *testing.T, nodes ...*corev1.Node) *fixture {
	f := &fixture{t: t, nodes: framework.NewNodes(), storage: &fakeStorage{claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, csiNodes: map[string]*storagev1.CSINode{}, drivers: map[string]*storagev1.CSIDriver{}}}
	for _, n := range nodes {
		f.nodes.SetNode(n)
	}
	return f
}

func (f *fixture) pod(name string, change ...func(*corev1.Pod)) *framework.Pod {
	f.t.Helper()
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "web"}}}}
	for _, c := range change {
		c(obj)
	}
	p, err := framework.NewPod(obj, f.nodes)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// on places a pod.
func (f *fixture) on(node string, p *framework.Pod) { f.nodes.AddPod(p, node) }

func (f *fixture) handle() *framework.Handle {
	return &framework.Handle{Nodes: f.nodes, Volumes: f.storage, Capacity: f.storage, Siblings: func(*corev1.Pod) labels.Selector { return f.siblings },
		Bind: func(context.Context, *corev1.Pod, string) error { return nil }, Budgets: func() []*policyv1.PodDisruptionBudget { return f.budgets },
		Preempt: func(_ *framework.Pod, node string, victims []*framework.Pod) {
			f.onNode, f.victims = node, nil
			for _, v := range victims {
				f.victims = append(f.victims, v.Object.Name)
			}
		}}
}

func (f *fixture) make(name, args string) framework.Plugin {
	f.t.Helper()
	p, err := Registry()[name]([]byte(args), f.handle())
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// profile has some plugins at all the extension points that they have.
func (f *fixture) profile(all ...framework.Plugin) *framework.Profile {
	f.t.Helper()
	var set framework.Set
	for _, p := range all {
		if x, ok := p.(framework.PreFilterPlugin); ok {
			set.PreFilter = append(set.PreFilter, x)
		}
		if x, ok := p.(framework.FilterPlugin); ok {
			set.Filter = append(set.Filter, x)
		}
		if x, ok := p.(framework.PreScorePlugin); ok {
			set.PreScore = append(set.PreScore, x)
		}
		if x, ok := p.(framework.ScorePlugin); ok {
			set.Score = append(set.Score, framework.WeightedScore{ScorePlugin: x, Weight: 1})
		}
		if x, ok := p.(framework.PostFilterPlugin); ok {
			set.PostFilter = append(set.PostFilter, x)
		}
	}
	profile, err := framework.NewProfile("test", set, f.nodes, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		f.t.Fatal(err)
	}
	return profile
}

// ok is the verdict of a node that will do.
const ok = ""

// verdicts are what one plugin says about each node: ok, or the reason, with an exclamation mark if removing pods can't help.
func (f *fixture) verdicts(name, args string, p *framework.Pod) map[string]string {
	f.t.Helper()
	profile := f.profile(f.make(name, args))
	c := profile.Begin(p)
	d, why, err := profile.Decide(c)
	if err != nil {
		f.t.Fatal(err)
	}
	text := func(s *framework.Status) string {
		if s.Is(framework.Unresolvable) {
			return "!" + s.Message()
		}
		return s.Message()
	}
	out := map[string]string{}
	fit := 0
	for i := range f.nodes.Valid.All() {
		s := (*framework.Status)(nil)
		if why != nil && why.PreFilter != nil {
			s = why.PreFilter
		} else if s = profile.Fits(c, i); s.OK() {
			fit++
		}
		out[f.nodes.Name[i]] = text(s)
	}
	if d != nil && d.Feasible != fit || d == nil && fit > 0 {
		f.t.Errorf("the decision %+v does not agree with the verdicts on single nodes: %v", d, out)
	}
	return out
}

func (f *fixture) want(what, name, args string, p *framework.Pod, verdicts map[string]string) {
	f.t.Helper()
	if diff := cmp.Diff(verdicts, f.verdicts(name, args, p)); diff != "" {
		f.t.Errorf("%s: verdicts differ (-want +got): %s", what, diff)
	}
}

// wantScores compares what one plugin gives each node, normalized.
func (f *fixture) wantScores(what, name, args string, p *framework.Pod, want map[string]int64) {
	f.t.Helper()
	profile := f.profile(f.make(name, args))
	got, why, err := profile.Scores(profile.Begin(p))
	if err != nil || why != nil {
		f.t.Fatalf("%s: %v %v", what, err, why)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s: scores differ (-want +got): %s", what, diff)
	}
}

func testNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("10Gi"), "pods": resource.MustParse("20")}}}
	for _, c := range change {
		c(n)
	}
	return n
}

func label(kv ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for i := 0; i < len(kv); i += 2 {
			n.Labels[kv[i]] = kv[i+1]
		}
	}
}

func taint(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func asks(r corev1.ResourceList) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = r }
}

func podLabel(kv ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			p.Labels[kv[i]] = kv[i+1]
		}
	}
}

func inNamespace(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = name } }

func prio(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }

func res(kv ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		out[corev1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return out
}

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

// fakeStorage is storage in maps; claims are by namespace/name.
type fakeStorage struct {
	claims      map[string]*corev1.PersistentVolumeClaim
	volumes     map[string]*corev1.PersistentVolume
	classes     map[string]*storagev1.StorageClass
	csiNodes    map[string]*storagev1.CSINode
	drivers     map[string]*storagev1.CSIDriver
	capacities  []*storagev1.CSIStorageCapacity
	attachments []*storagev1.VolumeAttachment
}

func (s *fakeStorage) Claim(ns, name string) (*corev1.PersistentVolumeClaim, bool) {
	v, ok := s.claims[ns+"/"+name]
	return v, ok
}
func (s *fakeStorage) Volume(name string) (*corev1.PersistentVolume, bool) {
	v, ok := s.volumes[name]
	return v, ok
}
func (s *fakeStorage) List() (out []*corev1.PersistentVolume) {
	for _, v := range s.volumes {
		out = append(out, v)
	}
	return out
}
func (s *fakeStorage) Class(name string) (*storagev1.StorageClass, bool) {
	v, ok := s.classes[name]
	return v, ok
}
func (s *fakeStorage) Node(name string) (*storagev1.CSINode, bool) {
	v, ok := s.csiNodes[name]
	return v, ok
}
func (s *fakeStorage) Driver(name string) (*storagev1.CSIDriver, bool) {
	v, ok := s.drivers[name]
	return v, ok
}
func (s *fakeStorage) Capacities() []*storagev1.CSIStorageCapacity { return s.capacities }
func (s *fakeStorage) Attachments(node string) []*storagev1.VolumeAttachment {
	return slices.DeleteFunc(slices.Clone(s.attachments), func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName != node })
}
func (s *fakeStorage) Bind(context.Context, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim) error {
	return nil
}
func (s *fakeStorage) Provision(_ context.Context, c *corev1.PersistentVolumeClaim, _ string) (*corev1.PersistentVolumeClaim, error) {
	return c, nil
}
func (s *fakeStorage) WaitBound(context.Context, *corev1.PersistentVolumeClaim, string) error {
	return nil
}
