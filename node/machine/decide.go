package machine

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// DeadlineMessage is the text of a pod that ran longer than activeDeadlineSeconds allows.
const DeadlineMessage = "Pod was active on the node longer than the specified deadline"

// Decide answers what to do for a pod now.
func Decide(in Input) Plan {
	p := &planner{Input: in, plan: Plan{Waiting: map[string]Waiting{}}}
	if in.Memory.Verdict == nil && !in.Gone {
		p.deadline()
	}
	p.plan.Terminal = p.terminal()
	if in.Gone || in.Pod.DeletionTimestamp != nil || p.plan.Terminal {
		p.plan.Terminating = true
		p.terminate()
	} else {
		p.run()
	}
	return p.plan
}

type planner struct {
	Input
	plan Plan
}

// do plans an action unless it is under way.
func (p *planner) do(a Action) {
	if _, busy := p.Memory.InFlight[a.Key()]; !busy {
		p.plan.Actions = append(p.plan.Actions, a)
	}
}

// after plans an action once its retry time has come.
func (p *planner) after(r Retry, a Action) {
	if p.Now.Before(r.At) {
		p.wake(r.At)
		return
	}
	p.do(a)
}

func (p *planner) wake(t time.Time) {
	if p.plan.Wake.IsZero() || t.Before(p.plan.Wake) {
		p.plan.Wake = t
	}
}

func (p *planner) busy(op Op) bool {
	for _, a := range p.Memory.InFlight {
		if a.Op == op {
			return true
		}
	}
	return false
}

func (p *planner) deadline() {
	limit := p.Pod.Spec.ActiveDeadlineSeconds
	if limit == nil || p.Pod.Status.StartTime == nil {
		return
	}
	end := p.Pod.Status.StartTime.Add(time.Duration(*limit) * time.Second)
	if p.Now.Before(end) {
		p.wake(end)
		return
	}
	p.plan.Verdict = &Verdict{Reason: "DeadlineExceeded", Message: DeadlineMessage}
}

// terminal answers whether no container will run again.
func (p *planner) terminal() bool {
	if p.Memory.Verdict != nil || p.plan.Verdict != nil {
		return true
	}
	if phase := p.Pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return true
	}
	return p.initFailed() || p.finished()
}

// initFailed answers whether an init container ended badly for good.
func (p *planner) initFailed() bool {
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		got := p.Observed.Latest(c.Name)
		if got != nil && got.State == Exited && got.ExitCode != 0 && !p.starting(c.Name) && !ShouldRestart(p.Pod, c, true, got.ExitCode) {
			return true
		}
	}
	return false
}

// finished answers whether all main containers have ended for good.
func (p *planner) finished() bool {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		got := p.Observed.Latest(c.Name)
		if got == nil || got.State != Exited || p.starting(c.Name) || ShouldRestart(p.Pod, c, false, got.ExitCode) {
			return false
		}
	}
	return len(p.Pod.Spec.Containers) > 0
}

func (p *planner) starting(name string) bool {
	_, busy := p.Memory.InFlight[Action{Op: StartContainer, Container: name}.Key()]
	return busy
}

// run plans for a pod that should be running.
func (p *planner) run() {
	if p.reset() {
		return
	}
	p.volumes()
	sandbox := p.sandbox()
	if sandbox == nil || !p.Memory.VolumesReady {
		return
	}
	for i := range p.Pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&p.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if p.Observed.Latest(c.Name) == nil {
			p.start(c, nil)
		}
	}
	if p.initialize(sandbox) {
		p.mains(sandbox)
	}
	p.collect()
}

func (p *planner) volumes() {
	m := p.Memory
	if m.VolumesReady && !m.VolumesRefresh.IsZero() {
		if p.Now.Before(m.VolumesRefresh) {
			p.wake(m.VolumesRefresh)
		}
	}
	if !m.VolumesReady || m.VolumesStale || (!m.VolumesRefresh.IsZero() && !p.Now.Before(m.VolumesRefresh)) {
		p.after(m.Volumes, Action{Op: SetUpVolumes})
	}
}

// sandbox returns the ready sandbox, or plans for one and returns nil.
func (p *planner) sandbox() *Sandbox {
	if s := p.Observed.ReadySandbox(); s != nil {
		return s
	}
	attempt := 0
	if s := p.Observed.Sandbox(); s != nil {
		attempt = int(s.Attempt) + 1
		for _, c := range p.Observed.Active() {
			p.kill(c, KillSandboxGone, "")
		}
		if !p.Memory.Stopped[s.ID] {
			p.after(p.Memory.KillFailures[s.ID], Action{Op: StopSandbox, SandboxID: s.ID})
		}
		if len(p.Observed.Active()) > 0 || !p.Memory.Stopped[s.ID] {
			return nil
		}
	}
	p.after(p.Memory.Sandbox, Action{Op: CreateSandbox, Attempt: attempt})
	return nil
}

// initialized answers whether the main containers were once let go in this sandbox.
func (p *planner) initialized(s *Sandbox) bool {
	for i := range p.Pod.Spec.Containers {
		if p.Observed.LatestIn(s.ID, p.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// initialize plans for init containers and sidecars, and answers whether the main containers may run.
func (p *planner) initialize(s *Sandbox) bool {
	done := p.initialized(s)
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		got := p.Observed.LatestIn(s.ID, c.Name)
		if IsSidecar(c) {
			if !p.sidecar(c, got) && !done {
				return false
			}
			continue
		}
		if done {
			continue
		}
		switch {
		case got == nil || got.State == Created:
			p.start(c, p.Observed.Latest(c.Name))
			return false
		case got.State == Running:
			return false
		case got.State == Unknown:
			p.kill(got, KillUnknown, fmt.Sprintf("Init container is in %q state, try killing it before restart", "unknown"))
			return false
		case got.ExitCode == 0:
			continue
		default:
			p.start(c, got)
			return false
		}
	}
	return true
}

// sidecar plans for one sidecar and answers whether it has started.
func (p *planner) sidecar(c *corev1.Container, got *Container) bool {
	if got == nil || got.State != Running {
		p.again(c, got, "Init container")
		return false
	}
	return p.check(c, got, "Init container") && p.Started(c, got)
}

func (p *planner) mains(s *Sandbox) {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		got := p.Observed.LatestIn(s.ID, c.Name)
		if got == nil {
			got = p.Observed.Latest(c.Name)
		}
		switch {
		case got != nil && got.State == Running:
			p.check(c, got, "Container")
		case got != nil && got.State == Exited && !ShouldRestart(p.Pod, c, false, got.ExitCode):
		default:
			p.again(c, got, "Container")
		}
		// A postStart hook holds up the containers that follow, as documented for the kubelet; a plain start does not.
		if c.Lifecycle != nil && c.Lifecycle.PostStart != nil && (p.starting(c.Name) || p.planned(c.Name)) {
			return
		}
	}
}

func (p *planner) planned(name string) bool {
	for _, a := range p.plan.Actions {
		if a.Op == StartContainer && a.Container == name {
			return true
		}
	}
	return false
}

// Started answers whether a running container counts as started: its hook has ended and its startup probe, if any, has succeeded.
func (in *Input) Started(c *corev1.Container, got *Container) bool {
	if in.Memory.Hooks[got.ID] {
		return false
	}
	return c.StartupProbe == nil || in.Memory.Probes[got.ID].Startup == Success
}

// check plans for a running container whose probes failed or whose spec changed, and answers whether it may go on.
func (p *planner) check(c *corev1.Container, got *Container, word string) bool {
	probes := p.Memory.Probes[got.ID]
	switch {
	case got.Hash != "" && got.Hash != Hash(c):
		p.kill(got, KillChanged, fmt.Sprintf("%s %s definition changed, will be restarted", word, c.Name))
	case probes.Startup == Failure:
		p.kill(got, KillStartup, p.willRestart(c, word, "failed startup probe"))
	case probes.Liveness == Failure:
		p.kill(got, KillLiveness, p.willRestart(c, word, "failed liveness probe"))
	case p.ResourcesMatch != nil && !p.ResourcesMatch(c, got):
		if p.resizeRestarts(c, got) {
			p.kill(got, KillResize, fmt.Sprintf("Container %s resize requires restart, will be restarted", c.Name))
			return false
		}
		p.after(p.Memory.Resize[got.ID], Action{Op: UpdateContainer, Container: c.Name, ContainerID: got.ID})
		return true
	default:
		return true
	}
	return false
}

func (p *planner) willRestart(c *corev1.Container, word, what string) string {
	message := fmt.Sprintf("%s %s %s", word, c.Name, what)
	if IsSidecar(c) || p.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		message += ", will be restarted"
	}
	return message
}

// again plans the next start of a container that does not run.
func (p *planner) again(c *corev1.Container, got *Container, word string) {
	if got != nil && got.State == Unknown {
		p.kill(got, KillUnknown, fmt.Sprintf("%s is in %q state, try killing it before restart", word, "unknown"))
		return
	}
	p.start(c, got)
}

// start plans the start of a container, after its back-off. last is its newest predecessor, or nil.
func (p *planner) start(c *corev1.Container, last *Container) {
	if p.starting(c.Name) {
		return
	}
	m := p.Memory.Of(c.Name)
	a := Action{Op: StartContainer, Container: c.Name, Attempt: m.Restarts + 1, Backoff: m.Backoff}
	if last != nil {
		a.Attempt = max(a.Attempt, last.Attempt+1)
		if last.State == Exited {
			if until := m.Backoff.Until(last.FinishedAt); p.Now.Before(until) {
				p.wake(until)
				p.plan.Waiting[c.Name] = Waiting{Reason: "CrashLoopBackOff",
					Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", m.Backoff.Delay, c.Name, FullName(p.Pod))}
				return
			}
			a.Backoff = m.Backoff.Next(last.FinishedAt, p.Now)
		}
	}
	p.after(m.Failure, a)
}

// keep is how many containers of one name are kept: the present one, and the last before it.
const keep = 2

// collect plans the removal of containers and sandboxes that nobody will ask about again.
func (p *planner) collect() {
	seen, used := map[string]int{}, map[string]bool{}
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		seen[c.Name]++
		used[c.SandboxID] = true
		if seen[c.Name] > keep && c.State == Exited || seen[c.Name] > 1 && c.State == Created {
			p.after(p.Memory.KillFailures[c.ID], Action{Op: RemoveContainer, Container: c.Name, ContainerID: c.ID, Attempt: c.Attempt})
		}
	}
	for i, s := range p.Observed.Sandboxes {
		if i > 0 && !s.Ready && !used[s.ID] {
			p.after(p.Memory.KillFailures[s.ID], Action{Op: RemoveSandbox, SandboxID: s.ID})
		}
	}
}
