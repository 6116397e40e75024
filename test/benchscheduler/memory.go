package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/gang"
)

// figure is one measurement.
type figure struct {
	rate float64 // pods a second
	cpu  time.Duration
	mib  float64
	note string
}

// model is a cluster in memory: the scheduler's decisions without queue, API or store.
type model struct {
	nodes   *framework.Nodes
	profile *framework.Profile
	victims []*framework.Pod
	serial  int
}

// inMemory measures decisions: a pod is parsed, judged against all nodes, and counted on the one chosen. Making the objects is not counted.
func inMemory(w *workload) (figure, error) {
	m := &model{nodes: framework.NewNodes()}
	m.nodes.SetNamespace(namespace, map[string]string{})
	handle := framework.Handle{Nodes: m.nodes, Volumes: noVolumes{}, Bind: func(context.Context, *corev1.Pod, string) error { return nil },
		Preempt: func(_ *framework.Pod, _ string, victims []*framework.Pod) { m.victims = victims }}
	var err error
	if m.profile, err = scheduler.NewProfile(corev1.DefaultSchedulerName, handle, rand.New(rand.NewPCG(1, 1))); err != nil {
		return figure{}, err
	}
	for i := range w.nodes {
		m.nodes.SetNode(w.node(i))
	}
	initial := w.before
	if initial == nil {
		initial = w.pod
	}
	for _, obj := range m.objects(initial, w.initial) {
		if _, err := m.place(obj); err != nil {
			return figure{}, fmt.Errorf("initial pod: %w", err)
		}
	}
	before := heap(m)
	objects := m.objects(w.pod, w.pods)
	before = heap(objects) - before // what the objects take, which are the API's
	start, spent := time.Now(), processorTime()
	n, err := m.placeAll(w, objects)
	if err != nil {
		return figure{}, err
	}
	took, cpu := time.Since(start), processorTime()-spent
	defer runtime.KeepAlive(objects)
	return figure{rate: float64(n) / took.Seconds(), cpu: cpu / time.Duration(n), mib: heap(m) - before}, nil
}

// placeAll places pods, and returns how many it were: pods or, of gangs, groups.
func (m *model) placeAll(w *workload, objects []*corev1.Pod) (int, error) {
	if w.gang > 0 {
		return len(objects) / w.gang, m.placeGroups(objects, w.gang)
	}
	placed := make([]*framework.Pod, 0, len(objects))
	for _, obj := range objects {
		p, err := m.place(obj)
		if err != nil {
			return 0, err
		}
		if placed = append(placed, p); w.alive > 0 && len(placed) > w.alive {
			m.nodes.RemovePod(placed[0])
			placed = placed[1:]
		}
	}
	return len(objects), nil
}

// heap is what is in use of the heap.
func heap(keep any) float64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	runtime.KeepAlive(keep)
	return float64(s.HeapAlloc) / (1 << 20)
}

func (m *model) objects(of func() *corev1.Pod, n int) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		m.serial++
		out[i] = of()
		out[i].Name, out[i].UID = "p-"+strconv.Itoa(m.serial), types.UID(strconv.Itoa(m.serial))
	}
	return out
}

// place decides on a pod, makes room for it where that is needed, and counts it on its node.
func (m *model) place(obj *corev1.Pod) (*framework.Pod, error) {
	p, err := framework.NewPod(obj, m.nodes)
	if err != nil {
		return nil, err
	}
	c := m.profile.Begin(p)
	d, why, err := m.profile.Decide(c)
	if d == nil && err == nil {
		d, err = m.preempt(p, c, why)
	}
	if err != nil {
		return nil, err
	}
	m.nodes.AddPod(p, d.Node)
	return p, nil
}

// placeGroups decides on group after group, each as a whole.
func (m *model) placeGroups(objects []*corev1.Pod, size int) error {
	d := &gang.Decider{Nodes: m.nodes}
	for group := range slices.Chunk(objects, size) {
		w := &gang.Want{Least: size}
		for _, obj := range group {
			p, err := framework.NewPod(obj, m.nodes)
			if err != nil {
				return err
			}
			w.Members = append(w.Members, gang.Member{Pod: p, Profile: m.profile})
		}
		plan, err := d.Decide(w)
		if err != nil {
			return err
		}
		if !plan.Settled {
			return fmt.Errorf("a group finds no place: %s", plan.Message)
		}
	}
	return nil
}

// preempt has the victims leave at once, and decides again with the nomination, as the scheduler does when they are gone.
func (m *model) preempt(p *framework.Pod, c *framework.Cycle, why *framework.Diagnosis) (*framework.Decision, error) {
	m.victims = nil
	var node string
	for _, post := range m.profile.PostFilter {
		var status *framework.Status
		if node, _, status = post.PostFilter(c, why); status.OK() {
			break
		}
	}
	if len(m.victims) == 0 {
		return nil, errors.New("no node for a pod, and nobody to preempt")
	}
	m.nodes.Nominate(p, node)
	for _, v := range m.victims {
		m.nodes.RemovePod(v)
	}
	p.Object.Status.NominatedNodeName = node
	d, why, err := m.profile.Decide(m.profile.Begin(p))
	if d == nil && err == nil {
		err = fmt.Errorf("no room on %s though it was made: %s", node, why.Message())
	}
	m.nodes.Unnominate(p, node)
	return d, err
}

// noVolumes is a cluster without storage.
type noVolumes struct{}

func (noVolumes) Claim(string, string) (*corev1.PersistentVolumeClaim, bool) { return nil, false }
func (noVolumes) Volume(string) (*corev1.PersistentVolume, bool)             { return nil, false }
func (noVolumes) List() []*corev1.PersistentVolume                           { return nil }
func (noVolumes) Class(string) (*storagev1.StorageClass, bool)               { return nil, false }
func (noVolumes) Node(string) (*storagev1.CSINode, bool)                     { return nil, false }
func (noVolumes) Bind(context.Context, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim) error {
	return nil
}
func (noVolumes) Provision(_ context.Context, c *corev1.PersistentVolumeClaim, _ string) (*corev1.PersistentVolumeClaim, error) {
	return c, nil
}
func (noVolumes) WaitBound(context.Context, *corev1.PersistentVolumeClaim, string) error { return nil }
