package core

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var podColumns = []kind.Column[corev1.Pod]{
	{Name: "Ready", Description: "The aggregate readiness state of this pod for accepting traffic.", Value: func(p *corev1.Pod, _ time.Time) any {
		s := summarize(p)
		return fmt.Sprintf("%d/%d", s.ready, s.total)
	}},
	{Name: "Status", Description: "The aggregate status of the containers in this pod.", Value: func(p *corev1.Pod, _ time.Time) any { return summarize(p).status }},
	{Name: "Restarts", Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
		Value: func(p *corev1.Pod, now time.Time) any {
			s := summarize(p)
			if s.restarts == 0 || s.restarted.IsZero() {
				return strconv.Itoa(s.restarts)
			}
			return fmt.Sprintf("%d (%s ago)", s.restarts, cell.Age(s.restarted, now))
		}},
	{Name: "IP", Priority: 1, Description: "Address of the pod.", Value: func(p *corev1.Pod, _ time.Time) any { return cell.OrNone(podIP(p)) }},
	{Name: "Node", Priority: 1, Description: "Node that the pod is assigned to.", Value: func(p *corev1.Pod, _ time.Time) any { return cell.OrNone(p.Spec.NodeName) }},
	{Name: "Nominated Node", Priority: 1, Description: "Node on which room is being made for the pod.", Value: func(p *corev1.Pod, _ time.Time) any {
		return cell.OrNone(p.Status.NominatedNodeName)
	}},
	{Name: "Readiness Gates", Priority: 1, Description: "How many of the pod's readiness gates are open.", Value: readinessGates},
}

func readinessGates(p *corev1.Pod, _ time.Time) any {
	if len(p.Spec.ReadinessGates) == 0 {
		return cell.None
	}
	open := 0
	for _, gate := range p.Spec.ReadinessGates {
		if podConditionTrue(p, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

func podConditionTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podSummary is what a table says about a pod.
type podSummary struct {
	status       string
	ready, total int
	restarts     int
	restarted    metav1.Time // when the last restarted container had ended
}

func (s *podSummary) count(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.restarted.Before(&t.FinishedAt) {
		s.restarted = t.FinishedAt
	}
}

// summarize says in a word how a pod is: the first reason in the way while it starts, then the first container's that does not run, Terminating
// while it is deleted.
func summarize(p *corev1.Pod) podSummary {
	s := podSummary{status: string(p.Status.Phase), total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	for i := range p.Spec.InitContainers {
		if isSidecar(&p.Spec.InitContainers[i]) {
			s.total++
		}
	}
	sidecars, starting := s.init(p)
	if !starting || podConditionTrue(p, corev1.PodInitialized) {
		s.restarts, s.restarted = sidecars.restarts, sidecars.restarted
		s.main(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case !isTerminal(p):
		s.status = "Terminating"
	}
	return s
}

// init goes through the init containers up to the one that is not done. sidecars counts the restarts of those that keep running.
func (s *podSummary) init(p *corev1.Pod) (sidecars podSummary, starting bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.count(c)
		spec := containerNamed(p.Spec.InitContainers, c.Name)
		sidecar := spec != nil && isSidecar(spec)
		if sidecar {
			sidecars.count(c)
		}
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case t != nil && t.ExitCode == 0:
			continue
		case sidecar && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case t != nil:
			s.status = "Init:" + ended(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.status = "Init:" + w.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return sidecars, true
	}
	return sidecars, false
}

func ended(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// main goes through the main containers from the last to the first, whose reason wins.
func (s *podSummary) main(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.count(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.status = w.Reason
		case t != nil:
			s.status = ended(t)
			if t.ExitCode != 0 {
				failure = s.status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" {
		return
	}
	switch {
	case running && podConditionTrue(p, corev1.PodReady):
		s.status = "Running"
	case failure != "":
		s.status = failure
	case running:
		s.status = "NotReady"
	}
}
