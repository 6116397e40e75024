package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// desk is a queue at a time of day that the test sets.
type desk struct {
	t       *testing.T
	queue   *queue
	nodes   *framework.Nodes
	profile *framework.Profile
	now     time.Time
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, nodes: framework.NewNodes(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	d.profile, err = buildProfile(ProfileConfig{SchedulerName: "test"}, plugins.Registry(), testHandle(d.nodes, nil), rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	d.queue = newQueue(d.profile.QueueSort.Less, time.Second, 10*time.Second, 5*time.Minute)
	return d
}

func (d *desk) pod(name string, priority int32, change ...func(*corev1.Pod)) *framework.Pod {
	d.t.Helper()
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority,
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}}
	for _, f := range change {
		f(obj)
	}
	p, err := framework.NewPod(obj, d.nodes)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func (d *desk) add(name string, priority int32) *item {
	it := &item{pod: d.pod(name, priority), profile: d.profile}
	d.queue.add(it, d.now)
	return it
}

// pops takes all pods that are ready now.
func (d *desk) pops() string {
	var names []string
	for it := d.queue.pop(d.now); it != nil; it = d.queue.pop(d.now) {
		names = append(names, it.pod.Object.Name)
	}
	return strings.Join(names, " ")
}

func (d *desk) node(cpu string) *framework.Event {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("9")}}}
	d.nodes.SetNode(n)
	slot, _ := d.nodes.Slot("n")
	return &framework.Event{Kind: framework.NodeAdded, Node: n, Slot: slot}
}

func (d *desk) want(what, got, want string) {
	d.t.Helper()
	if got != want {
		d.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestQueueTakesPriorityThenAge(t *testing.T) {
	d := newDesk(t)
	for i := range 5 { // the same instant: the order of arrival decides
		d.add(fmt.Sprint("low", i), 1)
	}
	d.add("high", 9)
	d.want("order", d.pops(), "high low0 low1 low2 low3 low4")
}

func TestParkedPodIsWokenOnlyByWhatMayHelp(t *testing.T) {
	d := newDesk(t)
	it := d.add("big", 0)
	d.want("first", d.pops(), "big")
	d.queue.refuse(it, []string{plugins.NodeResourcesFit}, d.now)
	d.now = d.now.Add(time.Minute)
	d.queue.wake(&framework.Event{Kind: framework.NodeLabels, Slot: -1}, d.now)
	d.want("labels don't make room", d.pops(), "")
	d.queue.wake(d.node("500m"), d.now)
	d.want("a node that is too small", d.pops(), "")
	d.queue.wake(d.node("2"), d.now)
	d.want("a node with room", d.pops(), "big")
}

func TestWokenPodWaitsOutItsBackoffBehindOthers(t *testing.T) {
	d := newDesk(t)
	it := d.add("again", 9)
	d.pops()
	d.queue.refuse(it, []string{plugins.NodeResourcesFit}, d.now)
	other := d.add("other", 0)
	d.queue.wake(d.node("2"), d.now)
	first := d.queue.pop(d.now)
	if first != other {
		t.Fatalf("%s came before a pod that is not backing off", first.pod.Object.Name)
	}
	d.want("nothing else to do: no need to wait", d.pops(), "again")
}

func TestFailureBacksOffFrom1To10Seconds(t *testing.T) {
	d := newDesk(t)
	it := d.add("unlucky", 0)
	for _, seconds := range []int{1, 2, 4, 8, 10, 10} {
		if d.queue.pop(d.now) != it {
			t.Fatalf("not ready before the failure with a back-off of %d s", seconds)
		}
		d.queue.fail(it, d.now)
		d.now = d.now.Add(time.Duration(seconds)*time.Second - time.Millisecond)
		d.want(fmt.Sprintf("just before %d s", seconds), d.pops(), "")
		if at, ok := d.queue.due(); !ok || !at.Equal(d.now.Add(time.Millisecond)) {
			t.Errorf("due at %v, %v; want in 1 ms", at, ok)
		}
		d.now = d.now.Add(time.Millisecond)
	}
}

func TestParkedPodIsTriedAfterFiveMinutes(t *testing.T) {
	d := newDesk(t)
	it := d.add("forgotten", 0)
	d.pops()
	d.queue.refuse(it, []string{plugins.NodeAffinity}, d.now)
	d.now = d.now.Add(5*time.Minute - time.Second)
	d.want("just before", d.pops(), "")
	d.now = d.now.Add(time.Second)
	d.want("then", d.pops(), "forgotten")
}

func TestGatedPodIsAdmittedWhenItChanges(t *testing.T) {
	d := newDesk(t)
	gate := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }
	it := &item{pod: d.pod("gated", 0, gate), profile: d.profile}
	d.queue.add(it, d.now)
	d.queue.wake(&framework.Event{Kind: framework.AnyEvent, Slot: -1}, d.now)
	d.want("gated", d.pops(), "")
	d.queue.update(it, d.pod("gated", 0, gate), true, d.now)
	d.want("changed, but still gated", d.pops(), "")
	d.queue.update(it, d.pod("gated", 0), true, d.now)
	d.want("free", d.pops(), "gated")
}

func TestOwnChangeReactivatesButOwnStatusDoesNot(t *testing.T) {
	d := newDesk(t)
	it := d.add("p", 0)
	d.pops()
	d.queue.refuse(it, []string{plugins.NodeAffinity}, d.now)
	d.queue.update(it, d.pod("p", 0), false, d.now)
	d.want("status", d.pops(), "")
	d.queue.update(it, d.pod("p", 0), true, d.now)
	d.want("spec", d.pops(), "p")
}

// TestQueueLosesNobody drives the queue at random: every pod is in exactly one place, and in the end all come out.
func TestQueueLosesNobody(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	d := newDesk(t)
	out := map[string]*item{} // popped
	for i := range 3000 {
		d.now = d.now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
		switch r.IntN(6) {
		case 0:
			if len(d.queue.items) < 50 {
				d.add(fmt.Sprint("p", i), int32(r.IntN(3)))
			}
		case 1, 2:
			if it := d.queue.pop(d.now); it != nil {
				out[it.pod.Object.Name] = it
			}
		case 3:
			for name, it := range out {
				delete(out, name)
				if r.IntN(2) == 0 {
					d.queue.fail(it, d.now)
				} else {
					d.queue.refuse(it, []string{plugins.NodeResourcesFit}, d.now)
				}
				break
			}
		case 4:
			d.queue.wake(d.node("2"), d.now)
		case 5:
			for uid, it := range d.queue.items {
				if r.IntN(4) == 0 {
					d.queue.remove(uid)
					delete(out, it.pod.Object.Name)
				}
				break
			}
		}
		a, b, p, gated := d.queue.depth()
		if a+b+p+len(out) != len(d.queue.items) || gated != 0 {
			t.Fatalf("step %d: %d active, %d backing off, %d parked, %d gated, %d out; want %d in all", i, a, b, p, gated, len(out), len(d.queue.items))
		}
	}
	want := len(d.queue.items) - len(out)
	d.now = d.now.Add(10 * time.Minute)
	if got := len(strings.Fields(d.pops())); got != want {
		t.Errorf("%d pods came out in the end, want %d", got, want)
	}
}
