package status

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/machine"
)

// phase sets the phase with its reason and message, by the rules of the pod life cycle.
func (g *generator) phase(s *corev1.PodStatus) {
	s.Phase = g.computePhase(s)
	verdict := g.Machine.Memory.Verdict
	if verdict == nil {
		verdict = g.Plan.Verdict
	}
	switch {
	case g.old.Phase == corev1.PodSucceeded || g.old.Phase == corev1.PodFailed:
		s.Phase = g.old.Phase
	case verdict != nil:
		s.Phase, s.Reason, s.Message = corev1.PodFailed, verdict.Reason, verdict.Message
		return
	}
	if s.Phase == g.old.Phase {
		s.Reason, s.Message = g.old.Reason, g.old.Message
	}
}

// tally counts containers by what matters for the phase.
type tally struct {
	unknown, waiting, running, stopped, succeeded, final int
	initPending, sidecarPending, initFailed              int
}

func (g *generator) computePhase(s *corev1.PodStatus) corev1.PodPhase {
	t := g.count(s)
	ended := g.Plan.Terminating && len(g.Machine.Observed.Active()) == 0
	switch {
	case t.initFailed > 0:
		if t.running > 0 && !ended {
			return corev1.PodPending
		}
		return corev1.PodFailed
	case ended && (t.initPending > 0 || t.waiting > 0 || t.unknown > 0):
		return corev1.PodFailed // ended before it ran: nobody can say that it succeeded
	case t.initPending > 0, t.sidecarPending > 0 && !g.mainsExist(), t.waiting > 0:
		return corev1.PodPending
	case t.running > 0 && t.unknown == 0:
		return corev1.PodRunning
	case t.stopped > 0 && t.unknown == 0:
		return stoppedPhase(t, ended)
	}
	return corev1.PodPending
}

func stoppedPhase(t tally, ended bool) corev1.PodPhase {
	switch {
	case !ended && t.stopped != t.final:
		return corev1.PodRunning // something will start again
	case t.stopped == t.succeeded:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

func (g *generator) count(s *corev1.PodStatus) tally {
	var t tally
	for i := range g.Pod.Spec.InitContainers {
		c := &g.Pod.Spec.InitContainers[i]
		if machine.IsSidecar(c) {
			g.countSidecar(&t, find(s.InitContainerStatuses, c.Name))
		} else {
			g.countInit(&t, c, find(s.InitContainerStatuses, c.Name))
		}
	}
	for i := range g.Pod.Spec.Containers {
		c := &g.Pod.Spec.Containers[i]
		st := find(s.ContainerStatuses, c.Name)
		last := lastExit(st)
		switch {
		case st.State.Running != nil:
			t.running++
		case last != nil:
			t.stopped++
			if !machine.ShouldRestart(g.Pod, c, false, last.ExitCode) {
				t.final++
			}
			if st.State.Terminated != nil && last.ExitCode == 0 {
				t.succeeded++
			}
		case st.State.Waiting != nil:
			t.waiting++
		default:
			t.unknown++
		}
	}
	return t
}

// lastExit answers how a container that does not run ended, or nil if it never has.
func lastExit(st *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if st.State.Terminated != nil {
		return st.State.Terminated
	}
	return st.LastTerminationState.Terminated
}

func (g *generator) countInit(t *tally, c *corev1.Container, st *corev1.ContainerStatus) {
	last := lastExit(st)
	switch {
	case st.State.Running != nil, last == nil:
		t.initPending++
	case last.ExitCode == 0:
		if st.State.Terminated == nil {
			t.initPending++
		}
	case !machine.ShouldRestart(g.Pod, c, true, last.ExitCode):
		t.initFailed++
	default:
		t.initPending++
	}
}

func (g *generator) countSidecar(t *tally, st *corev1.ContainerStatus) {
	switch {
	case st.State.Running != nil:
		t.running++
		if st.Started == nil || !*st.Started {
			t.sidecarPending++
		}
	case st.State.Waiting != nil && st.LastTerminationState.Terminated == nil:
		t.sidecarPending++
		if !g.mainsExist() {
			t.waiting++
		}
	}
}
