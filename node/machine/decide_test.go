package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/node/machine"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func always() *corev1.ContainerRestartPolicy {
	p := corev1.ContainerRestartPolicyAlways
	return &p
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(30)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "a", Image: "i"}, {Name: "b", Image: "i"}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

// world is a decision's input, made piece by piece.
type world struct{ in machine.Input }

func newWorld(p *corev1.Pod) *world {
	return &world{machine.Input{Pod: p, Observed: &machine.Observed{}, Memory: machine.NewMemory(), Now: now}}
}

func (w *world) sandbox(ready bool) *world {
	n := len(w.in.Observed.Sandboxes)
	w.in.Observed.PutSandbox(machine.Sandbox{ID: fmt.Sprintf("s%d", n), Ready: ready, Attempt: uint32(n), CreatedAt: now})
	return w
}

func (w *world) volumes() *world {
	w.in.Memory.VolumesReady = true
	return w
}

func (w *world) container(name string, state machine.State, code int32) *world {
	spec, _ := machine.Spec(w.in.Pod, name)
	w.in.Observed.PutContainer(machine.Container{ID: "id-" + name, Name: name, SandboxID: w.in.Observed.Sandbox().ID, State: state, ExitCode: code,
		Hash: machine.Hash(spec), StartedAt: now, FinishedAt: now, CreatedAt: now})
	return w
}

func (w *world) deleted(grace int64) *world {
	w.in.Pod.DeletionTimestamp, w.in.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, &grace
	return w
}

func keys(p machine.Plan) string {
	var out []string
	for _, a := range p.Actions {
		k := a.Key()
		if a.Op == machine.KillContainer {
			k += " " + a.Grace.String()
		}
		out = append(out, k)
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	sidecars := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "one", Image: "i", RestartPolicy: always()}, {Name: "two", Image: "i", RestartPolicy: always()}}
	}
	inits := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i1", Image: "i"}, {Name: "i2", Image: "i"}}
	}
	never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	for _, test := range []struct {
		name string
		w    *world
		want string
	}{
		{"a new pod gets volumes and sandbox together", newWorld(pod()), "SetUpVolumes, CreateSandbox"},
		{"no container without volumes", newWorld(pod()).sandbox(true), "SetUpVolumes"},
		{"main containers start together", newWorld(pod()).sandbox(true).volumes(), "StartContainer/a, StartContainer/b"},
		{"a postStart hook holds up the next", newWorld(pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}}
		})).sandbox(true).volumes(), "StartContainer/a"},
		{"init containers one by one", newWorld(pod(inits)).sandbox(true).volumes(), "StartContainer/i1"},
		{"the next after the first succeeded", newWorld(pod(inits)).sandbox(true).volumes().container("i1", machine.Exited, 0), "StartContainer/i2"},
		{"mains after the last", newWorld(pod(inits)).sandbox(true).volumes().container("i1", machine.Exited, 0).container("i2", machine.Exited, 0), "StartContainer/a, StartContainer/b"},
		{"a failed init container runs again", newWorld(pod(inits)).sandbox(true).volumes().container("i1", machine.Exited, 1), "StartContainer/i1"},
		{"unless the pod never restarts", newWorld(pod(inits, never)).sandbox(true).volumes().container("i1", machine.Exited, 1), "StopSandbox/s0"},
		{"init containers don't run again once the mains were there", newWorld(pod(inits)).sandbox(true).volumes().container("a", machine.Running, 0), "StartContainer/b"},
		{"sidecars before mains, in order", newWorld(pod(sidecars)).sandbox(true).volumes(), "StartContainer/one"},
		{"mains once all sidecars have started", newWorld(pod(sidecars)).sandbox(true).volumes().container("one", machine.Running, 0).container("two", machine.Running, 0), "StartContainer/a, StartContainer/b"},
		{"a sidecar that died starts again beside the mains", newWorld(pod(sidecars)).sandbox(true).volumes().container("one", machine.Exited, 0).container("two", machine.Running, 0).container("a", machine.Running, 0).container("b", machine.Running, 0), "StartContainer/one"},
		{"a success that must not restart ends the pod", newWorld(pod(never)).sandbox(true).volumes().container("a", machine.Exited, 0).container("b", machine.Exited, 0), "StopSandbox/s0"},
		{"one of two keeps it going", newWorld(pod(never)).sandbox(true).volumes().container("a", machine.Exited, 0).container("b", machine.Running, 0), ""},
		{"finished mains end the sidecars, the last first", newWorld(pod(never, sidecars)).sandbox(true).volumes().container("one", machine.Running, 0).container("two", machine.Running, 0).container("a", machine.Exited, 0).container("b", machine.Exited, 0), "KillContainer/id-two 30s"},
		{"a dead sandbox takes its containers along", newWorld(pod()).sandbox(false).volumes().container("a", machine.Running, 0), "KillContainer/id-a 30s, StopSandbox/s0"},
		{"a deleted pod's mains stop first", newWorld(pod(sidecars)).sandbox(true).volumes().container("one", machine.Running, 0).container("a", machine.Running, 0).container("b", machine.Running, 0).deleted(7), "KillContainer/id-a 7s, KillContainer/id-b 7s"},
		{"then its sandbox", newWorld(pod()).sandbox(true).volumes().container("a", machine.Exited, 0).deleted(7), "StopSandbox/s0"},
		{"a deleted pod that never began", newWorld(pod()).deleted(7), "TearDown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := machine.Decide(test.w.in)
			if got := keys(plan); got != test.want {
				t.Errorf("plan: %s\nwant: %s", got, test.want)
			}
			if d := cmp.Diff(plan, machine.Decide(test.w.in)); d != "" {
				t.Errorf("deciding twice gave two plans:\n%s", d)
			}
			for _, a := range plan.Actions {
				test.w.in.Memory.InFlight[a.Key()] = a
			}
			if again := machine.Decide(test.w.in); len(again.Actions) > 0 && !strings.Contains(keys(again), "StopSandbox") {
				t.Errorf("planned again what is under way: %s", keys(again))
			}
		})
	}
}

func TestDeletionWaitsForTheLastStatus(t *testing.T) {
	w := newWorld(pod()).deleted(30)
	w.in.Memory.TornDown = true
	if got := keys(machine.Decide(w.in)); got != "" {
		t.Errorf("plan %q before the status is written", got)
	}
	w.in.StatusWritten = true
	if got := keys(machine.Decide(w.in)); got != "DeletePod" {
		t.Errorf("plan %q", got)
	}
	w.in.Gone = true
	if !machine.Decide(w.in).Gone {
		t.Error("a pod that the API has no longer and the machine neither is not done with")
	}
}

func TestShorterGraceOvertakes(t *testing.T) {
	w := newWorld(pod()).sandbox(true).container("a", machine.Running, 0).deleted(30)
	first := machine.Decide(w.in).Actions[0]
	w.in.Memory.InFlight[first.Key()] = first
	w.in.Now = now.Add(5 * time.Second)
	if got := keys(machine.Decide(w.in)); got != "" {
		t.Errorf("plan %q while the kill is under way", got)
	}
	w.deleted(1)
	if got := keys(machine.Decide(w.in)); got != "KillContainer/id-a 1s" {
		t.Errorf("plan %q after the grace period was shortened", got)
	}
}

func TestSidecarsShareTheGraceOfThePod(t *testing.T) {
	w := newWorld(pod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "i", RestartPolicy: always()}}
	})).
		sandbox(true).container("side", machine.Running, 0).container("a", machine.Running, 0).deleted(30)
	w.in.Memory.TerminatingSince = now
	if got := keys(machine.Decide(w.in)); got != "KillContainer/id-a 30s" {
		t.Errorf("first %q", got)
	}
	w.container("a", machine.Exited, 0)
	w.in.Now = now.Add(20 * time.Second)
	if got := keys(machine.Decide(w.in)); got != "KillContainer/id-side 10s" {
		t.Errorf("the sidecar gets what is left: %q", got)
	}
	w.in.Now = now.Add(40 * time.Second)
	if got := keys(machine.Decide(w.in)); got != "KillContainer/id-side 2s" {
		t.Errorf("and a little after that: %q", got)
	}
}

func TestBackoffDoublesAndIsForgotten(t *testing.T) {
	var b machine.Backoff
	at := now
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		if !b.Until(at).Equal(at.Add(b.Delay)) {
			t.Errorf("until %s, want %s later", b.Until(at), b.Delay)
		}
		b = b.Next(at, b.Until(at))
		if b.Delay != want*time.Second {
			t.Errorf("delay %s, want %ds", b.Delay, want)
		}
		at = at.Add(b.Delay)
	}
	long := b.Updated.Add(10*time.Minute + time.Second)
	if !b.Until(long).Equal(long) {
		t.Errorf("a container that ran for ten minutes is held back until %s", b.Until(long))
	}
}

func TestHashFollowsNameAndImage(t *testing.T) {
	h := machine.Hash(&corev1.Container{Name: "foo", Image: "bar"})
	if h == machine.Hash(&corev1.Container{Name: "foo", Image: "baz"}) || h != machine.Hash(&corev1.Container{Name: "foo", Image: "bar", Command: []string{"x"}}) {
		t.Errorf("the hash %s does not follow name and image alone", h)
	}
}
