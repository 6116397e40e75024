package machine_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/yare-project/yare/node/machine"
)

// simulation carries plans out on a runtime that is a few maps, with faults, and checks after every step what must always hold.
type simulation struct {
	t    *rapid.T
	in   machine.Input
	next int
}

func (s *simulation) id(prefix string) string {
	s.next++
	return fmt.Sprintf("%s%d", prefix, s.next)
}

// do carries an action out, or lets it fail.
func (s *simulation) do(a machine.Action) {
	m, obs := s.in.Memory, s.in.Observed
	fails := rapid.IntRange(0, 9).Draw(s.t, "fails") == 0
	retry := machine.Retry{At: s.in.Now.Add(time.Second)}
	switch a.Op {
	case machine.SetUpVolumes:
		m.VolumesReady, m.Volumes = !fails, retry
	case machine.CreateSandbox:
		if m.Sandbox = retry; !fails {
			obs.PutSandbox(machine.Sandbox{ID: s.id("s"), Ready: true, Attempt: uint32(a.Attempt), CreatedAt: s.in.Now})
		}
	case machine.StartContainer:
		s.start(a, fails)
	case machine.KillContainer:
		if fails {
			m.KillFailures[a.ContainerID] = retry
			return
		}
		c := *obs.Container(a.ContainerID)
		c.State, c.ExitCode, c.FinishedAt = machine.Exited, 137, s.in.Now
		obs.PutContainer(c)
	case machine.RemoveContainer:
		obs.DropContainer(a.ContainerID)
	case machine.StopSandbox:
		m.Stopped[a.SandboxID] = true
		for i := range obs.Sandboxes {
			if obs.Sandboxes[i].ID == a.SandboxID {
				obs.Sandboxes[i].Ready = false
			}
		}
	case machine.RemoveSandbox:
		obs.DropSandbox(a.SandboxID)
	case machine.Release:
		m.Released = true
	case machine.TearDown:
		if len(obs.Active()) > 0 {
			s.t.Fatalf("torn down while %d containers run", len(obs.Active()))
		}
		m.TornDown = true
		*obs = machine.Observed{}
	case machine.DeletePod:
		m.Deleted = true
	}
}

func (s *simulation) start(a machine.Action, fails bool) {
	m, obs, pod := s.in.Memory, s.in.Observed, s.in.Pod
	if pod.DeletionTimestamp != nil {
		s.t.Fatalf("container %s starts in a pod that is being deleted", a.Container)
	}
	sb := obs.ReadySandbox()
	if sb == nil || !m.VolumesReady {
		s.t.Fatalf("container %s starts without sandbox or volumes", a.Container)
	}
	if c := obs.Latest(a.Container); c != nil && (c.State == machine.Running || a.Attempt <= c.Attempt) {
		s.t.Fatalf("container %s starts as attempt %d beside %+v", a.Container, a.Attempt, c)
	}
	s.checkOrder(a, sb)
	m.Of(a.Container).Backoff = a.Backoff
	if fails {
		m.Of(a.Container).Failure = machine.Retry{At: s.in.Now.Add(time.Second)}
		return
	}
	spec, _ := machine.Spec(pod, a.Container)
	m.Of(a.Container).Restarts = a.Attempt
	obs.PutContainer(machine.Container{ID: s.id("c"), Name: a.Container, SandboxID: sb.ID, State: machine.Running, Attempt: a.Attempt,
		Hash: machine.Hash(spec), CreatedAt: s.in.Now, StartedAt: s.in.Now})
}

// checkOrder checks that nothing starts before the init containers that come first.
func (s *simulation) checkOrder(a machine.Action, sb *machine.Sandbox) {
	for i := range s.in.Pod.Spec.Containers {
		if s.in.Observed.LatestIn(sb.ID, s.in.Pod.Spec.Containers[i].Name) != nil {
			return // the pod was initialized
		}
	}
	for i := range s.in.Pod.Spec.InitContainers {
		c := &s.in.Pod.Spec.InitContainers[i]
		if c.Name == a.Container {
			return
		}
		got := s.in.Observed.LatestIn(sb.ID, c.Name)
		if machine.IsSidecar(c) && (got == nil || got.State != machine.Running) || !machine.IsSidecar(c) && (got == nil || got.State != machine.Exited || got.ExitCode != 0) {
			s.t.Fatalf("%s starts before %s has finished or started: %+v", a.Container, c.Name, got)
		}
	}
}

// step decides, and carries out what was planned; it answers whether anything was, or will be.
func (s *simulation) step() bool {
	plan := machine.Decide(s.in)
	if plan.Terminating && s.in.Memory.TerminatingSince.IsZero() {
		s.in.Memory.TerminatingSince = s.in.Now
	}
	seen := map[string]bool{}
	for _, a := range plan.Actions {
		if seen[a.Key()] {
			s.t.Fatalf("%s is planned twice at once", a.Key())
		}
		seen[a.Key()] = true
	}
	for _, a := range plan.Actions {
		// Decided together, they may be carried out in any order; what one does can make another pointless.
		if a.Op == machine.KillContainer && (s.in.Observed.Container(a.ContainerID) == nil) {
			continue
		}
		s.do(a)
		if a.Op == machine.CreateSandbox || a.Op == machine.StopSandbox {
			break
		}
	}
	if len(plan.Actions) == 0 && !plan.Wake.IsZero() {
		if !plan.Wake.After(s.in.Now) {
			s.t.Fatalf("asks to be woken at %s, and it is %s", plan.Wake, s.in.Now)
		}
		s.in.Now = plan.Wake
		return true
	}
	return len(plan.Actions) > 0
}

// settle steps until nothing is left to do.
func (s *simulation) settle() {
	for range 500 {
		if !s.step() {
			return
		}
	}
	s.t.Fatalf("it does not come to rest; containers %+v", s.in.Observed.Containers)
}

// TestAnyPodConverges runs random pods through random events. Failing runs print the seed that replays them.
func TestAnyPodConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPod(t)
		s := &simulation{t: t, in: machine.Input{Pod: p, Observed: &machine.Observed{}, Memory: machine.NewMemory(), Now: now, StatusWritten: true}}
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			s.event()
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				s.step()
			}
		}
		// In the end it is deleted, and nothing must be left.
		grace := int64(rapid.IntRange(0, 30).Draw(t, "grace"))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: s.in.Now}, &grace
		s.settle()
		if !s.in.Memory.TornDown || !s.in.Memory.Deleted || !machine.Decide(s.in).Gone {
			t.Fatalf("a deleted pod is not gone: torn down %v, deleted %v", s.in.Memory.TornDown, s.in.Memory.Deleted)
		}
	})
}

func randomPod(t *rapid.T) *corev1.Pod {
	p := pod()
	p.Spec.Containers = p.Spec.Containers[:rapid.IntRange(1, 2).Draw(t, "mains")]
	p.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}).Draw(t, "policy")
	for i := range rapid.IntRange(0, 3).Draw(t, "inits") {
		c := corev1.Container{Name: fmt.Sprintf("init%d", i), Image: "i"}
		if rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = always()
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

// event lets something happen to the pod from outside.
func (s *simulation) event() {
	obs := s.in.Observed
	switch rapid.IntRange(0, 3).Draw(s.t, "event") {
	case 0: // a container ends
		if active := obs.Active(); len(active) > 0 {
			c := *active[rapid.IntRange(0, len(active)-1).Draw(s.t, "which")]
			c.State, c.ExitCode, c.FinishedAt = machine.Exited, int32(rapid.IntRange(0, 1).Draw(s.t, "code")), s.in.Now
			obs.PutContainer(c)
		}
	case 1: // the sandbox dies
		if sb := obs.ReadySandbox(); sb != nil && rapid.IntRange(0, 4).Draw(s.t, "dies") == 0 {
			sb.Ready = false
		}
	case 2: // a liveness probe fails
		if active := obs.Active(); len(active) > 0 {
			s.in.Memory.Probes[active[0].ID] = machine.Probes{Liveness: machine.Failure}
		}
	case 3:
		s.in.Now = s.in.Now.Add(time.Duration(rapid.IntRange(1, 120).Draw(s.t, "seconds")) * time.Second)
	}
}
