package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler"
)

// pod explains a pod.
func pod(f Facts, p *corev1.Pod) Report {
	r := Report{Object: "pod/" + p.Name, Steps: podSteps(f, p)}
	switch {
	case p.DeletionTimestamp != nil:
		deleted(&r, p, f.Now)
		if len(r.Waits) == 0 {
			r.Waits = []Wait{stopping(f, p)}
		}
	case p.Status.Phase == corev1.PodSucceeded:
		r.State = "ended: Succeeded"
	case p.Status.Phase == corev1.PodFailed:
		r.State = "ended: Failed"
		for _, s := range []string{p.Status.Reason, p.Status.Message, exits(p)} {
			if s != "" {
				r.State += ": " + brief(s)
			}
		}
	case isReady(p):
		r.State = "running and ready"
		if at := conditionOf(p, corev1.PodReady); at != nil {
			r.State += " for " + age(f.Now.Sub(at.LastTransitionTime.Time))
		}
	case p.Spec.NodeName == "":
		r.State = "without a node for " + age(f.Now.Sub(p.CreationTimestamp.Time))
		r.Waits = unplaced(f, p)
	default:
		r.State = "not ready on node " + p.Spec.NodeName
		r.Waits = unready(f, p)
	}
	return r
}

func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for k := range p.Status.Conditions {
		if p.Status.Conditions[k].Type == kind {
			return &p.Status.Conditions[k]
		}
	}
	return nil
}

func isReady(p *corev1.Pod) bool {
	c := conditionOf(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// exits says how the containers ended that did not end well.
func exits(p *corev1.Pod) string {
	var out []string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			out = append(out, fmt.Sprintf("container %s ended with %d (%s)", s.Name, t.ExitCode, t.Reason))
		}
	}
	return strings.Join(out, ", ")
}

// podSteps is the pod's way, hop by hop.
func podSteps(f Facts, p *corev1.Pod) []Step {
	out := []Step{created(p)}
	add := func(at time.Time, by, what string) {
		if !at.IsZero() {
			out = append(out, Step{At: at, By: by, What: what})
		}
	}
	if e := latest(f.Events, "FailedScheduling"); e != nil {
		first, last, count := refusals(f.Events)
		if f.Scheduler != nil {
			count = max(count, int32(f.Scheduler.Attempts))
		}
		what := "no node fits"
		if count > 1 {
			what += fmt.Sprintf(" (tried %d times, last %s later)", count, age(last.Sub(first)))
		}
		reasons, _ := splitChanges(e.Message)
		add(first, "scheduler", what+": "+brief(reasons))
	}
	if p.Spec.NodeName != "" {
		at := time.Time{}
		if e := latest(f.Events, "Scheduled"); e != nil {
			at, _, _ = when(e)
		} else if c := conditionOf(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
			at = c.LastTransitionTime.Time
		}
		add(at, "scheduler", "bound to node "+p.Spec.NodeName)
	}
	if at := p.Status.StartTime; at != nil && p.Spec.NodeName != "" {
		add(at.Time, "node agent", "taken on by the node")
	}
	if c := conditionOf(p, corev1.PodReadyToStartContainers); c != nil && c.Status == corev1.ConditionTrue {
		add(c.LastTransitionTime.Time, "node agent", "sandbox and network ready")
	}
	out = append(out, containerSteps(p)...)
	if c := conditionOf(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		add(c.LastTransitionTime.Time, "node agent", "ready")
	}
	// The rest is said above, and better.
	return append(out, eventSteps(f.Events, "FailedScheduling", "Scheduled", "Created", "Started", "Killing")...)
}

// refusals sums up all that the scheduler said.
func refusals(events []corev1.Event) (first, last time.Time, count int32) {
	for k := range events {
		if events[k].Reason != "FailedScheduling" {
			continue
		}
		a, b, n := when(&events[k])
		if first.IsZero() || a.Before(first) {
			first = a
		}
		if b.After(last) {
			last = b
		}
		count += n
	}
	return first, last, count
}

func containerSteps(p *corev1.Pod) []Step {
	var out []Step
	each := func(list []corev1.ContainerStatus, word string) {
		for _, s := range list {
			if t := s.LastTerminationState.Terminated; t != nil && s.RestartCount > 0 {
				out = append(out, Step{At: t.FinishedAt.Time, By: word + " " + s.Name, What: fmt.Sprintf("ended with %d (%s); started again %d times in all", t.ExitCode, t.Reason, s.RestartCount)})
			}
			switch {
			case s.State.Running != nil:
				out = append(out, Step{At: s.State.Running.StartedAt.Time, By: word + " " + s.Name, What: "started"})
			case s.State.Terminated != nil:
				t := s.State.Terminated
				out = append(out, Step{At: t.StartedAt.Time, By: word + " " + s.Name, What: "started"},
					Step{At: t.FinishedAt.Time, By: word + " " + s.Name, What: fmt.Sprintf("ended with %d (%s)", t.ExitCode, t.Reason)})
			}
		}
	}
	each(p.Status.InitContainerStatuses, "init container")
	each(p.Status.ContainerStatuses, "container")
	return slices.DeleteFunc(out, func(s Step) bool { return s.At.IsZero() || s.At.Unix() <= 0 })
}

// unplaced says what a pod without a node waits for.
func unplaced(f Facts, p *corev1.Pod) []Wait {
	name := "scheduler"
	if p.Spec.SchedulerName != "" && p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		name = "scheduler " + p.Spec.SchedulerName
	}
	since := p.CreationTimestamp.Time
	if len(p.Spec.SchedulingGates) > 0 {
		var gates []string
		for _, g := range p.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		return []Wait{{Loop: "whoever removes scheduling gate " + strings.Join(gates, ", "), For: "its own reasons; until then the scheduler leaves the pod alone", Since: &since}}
	}
	w := Wait{Loop: name, Since: &since}
	c := conditionOf(p, corev1.PodScheduled)
	if c == nil && f.Scheduler == nil {
		w.For = "nothing that is known: no scheduler has said anything about this pod"
		w.Changes = []string{fmt.Sprintf("a running scheduler that serves spec.schedulerName %q", p.Spec.SchedulerName)}
		return []Wait{w}
	}
	if c != nil {
		at := c.LastTransitionTime.Time
		w.Since = &at
		w.For, w.Changes = splitChanges(c.Message)
		if c.Reason == corev1.PodReasonSchedulerError {
			w.For = "another try after an error: " + w.For
		}
	}
	if s := f.Scheduler; s != nil {
		ask(&w, s)
	}
	if n := p.Status.NominatedNodeName; n != "" {
		w.For = fmt.Sprintf("the pods that it preempted on node %s to end (%s)", n, w.For)
		w.Changes = nil
	}
	return append([]Wait{w}, claimWaits(f)...)
}

// ask takes in what the scheduler itself says.
func ask(w *Wait, s *scheduler.Waiting) {
	if s.Message != "" {
		w.For, w.Changes = splitChanges(s.Message)
	}
	if len(s.Changes) > 0 {
		w.Changes = nil
		for _, c := range s.Changes {
			w.Changes = append(w.Changes, c.String())
		}
	}
	switch s.Place {
	case "active":
		w.For = fmt.Sprintf("its turn: %d pods are decided on before it", s.Ahead)
	case "binding":
		w.For = "the binding of the pod to be written"
	case "asking":
		w.For = "the scheduler's HTTP extenders to say where it may go"
	case "backoff":
		w.Next = "at the end of its back-off"
	case "parked":
		w.Next = "upon a change of: " + strings.Join(s.Awaits, ", ")
	}
	if s.Retry != nil && s.Place != "active" && s.Place != "binding" {
		w.Next += "; at " + s.Retry.UTC().Format("15:04:05 MST") + " in any case"
	}
}

const changeMark = " smallest change: "

// splitChanges takes the suggestions from behind a refusal.
func splitChanges(message string) (reasons string, changes []string) {
	reasons, rest, ok := strings.Cut(message, changeMark)
	if !ok {
		return message, nil
	}
	return reasons, strings.Split(strings.TrimSuffix(rest, "."), "; or ")
}

// claimWaits says what a pod's unbound claims wait for.
func claimWaits(f Facts) []Wait {
	var out []Wait
	for _, c := range f.Claims {
		if c.Status.Phase != corev1.ClaimBound {
			for _, w := range claimWait(f, c, true) {
				w.For = "claim " + c.Name + ": " + w.For
				out = append(out, w)
			}
		}
	}
	return out
}

// stopping says what a pod that is to end waits for.
func stopping(f Facts, p *corev1.Pod) Wait {
	if w, silent := silentNode(f, p); silent {
		return w
	}
	asked := p.DeletionTimestamp.Time
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Running != nil {
			return Wait{Loop: "node agent of " + p.Spec.NodeName, For: fmt.Sprintf("container %s to end; it is killed at %s", s.Name, asked.UTC().Format("15:04:05 MST"))}
		}
	}
	return Wait{Loop: "node agent of " + p.Spec.NodeName, For: "the last of the pod (volumes, network) to be cleaned up"}
}

// silentNode tells whether the pod's node is gone or not heard of.
func silentNode(f Facts, p *corev1.Pod) (Wait, bool) {
	if f.NodeGone {
		return Wait{Loop: "pod garbage collector", For: "nothing: node " + p.Spec.NodeName + " does not exist, the pod will be removed"}, true
	}
	if f.Node == nil {
		return Wait{}, false
	}
	for _, c := range f.Node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			at := c.LastTransitionTime.Time
			return Wait{Loop: "node agent of " + f.Node.Name, For: fmt.Sprintf("node to be ready: %s: %s", c.Reason, brief(c.Message)), Since: &at}, true
		}
	}
	return Wait{}, false
}
