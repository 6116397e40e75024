package status

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/node/machine"
)

// owned are the conditions that the node writes; others are carried over.
var owned = map[corev1.PodConditionType]bool{
	corev1.PodReadyToStartContainers: true, corev1.PodInitialized: true, corev1.PodReady: true,
	corev1.ContainersReady: true, corev1.PodScheduled: true, corev1.PodResizeInProgress: true, corev1.PodResizePending: true, corev1.AllContainersRestarting: true,
}

func (g *generator) conditions(s *corev1.PodStatus) {
	for _, c := range g.Pod.Status.Conditions {
		if !owned[c.Type] {
			s.Conditions = append(s.Conditions, c)
		}
	}
	ready := g.containersReady(s)
	list := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: boolean(g.Machine.Observed.ReadySandbox() != nil && !g.Released)},
		g.initialized(s),
		g.ready(ready),
		ready,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	if c := g.resizing(); c != nil {
		list = append(list, *c)
	}
	for _, c := range list {
		c.ObservedGeneration = g.Pod.Generation
		s.Conditions = append(s.Conditions, g.transition(c))
	}
}

// transition keeps the time of the last change of a condition whose status stays.
func (g *generator) transition(c corev1.PodCondition) corev1.PodCondition {
	c.LastTransitionTime = metav1.NewTime(g.Now.Truncate(time.Second))
	for _, old := range g.old.Conditions {
		if old.Type == c.Type && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
			c.LastProbeTime = old.LastProbeTime
		}
	}
	return c
}

func boolean(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// containersReady is True if every main container and sidecar is ready.
func (g *generator) containersReady(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch s.Phase {
	case corev1.PodSucceeded:
		c.Reason = "PodCompleted"
		return c
	case corev1.PodFailed:
		c.Reason = "PodFailed"
		return c
	}
	var unready []string
	for i := range g.Pod.Spec.InitContainers {
		spec := &g.Pod.Spec.InitContainers[i]
		if machine.IsSidecar(spec) && !find(s.InitContainerStatuses, spec.Name).Ready {
			unready = append(unready, spec.Name)
		}
	}
	for i := range g.Pod.Spec.Containers {
		if name := g.Pod.Spec.Containers[i].Name; !find(s.ContainerStatuses, name).Ready {
			unready = append(unready, name)
		}
	}
	if len(unready) > 0 {
		c.Reason, c.Message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready)
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// ready is ContainersReady, and every readiness gate's condition True.
func (g *generator) ready(containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var missing []string
	for _, gate := range g.Pod.Spec.ReadinessGates {
		got := findCondition(g.Pod.Status.Conditions, gate.ConditionType)
		if got == nil {
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		} else if got.Status != corev1.ConditionTrue {
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, got.Status))
		}
	}
	if len(missing) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(missing, ", ")
	}
	return c
}

func findCondition(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// initialized is True once every init container has succeeded and every sidecar has started; from then on it stays.
func (g *generator) initialized(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if s.Phase == corev1.PodSucceeded {
		c.Reason = "PodCompleted"
		return c
	}
	if g.everStarted(s) {
		return c
	}
	var incomplete []string
	for i := range g.Pod.Spec.InitContainers {
		spec := &g.Pod.Spec.InitContainers[i]
		st := find(s.InitContainerStatuses, spec.Name)
		done := st.Ready
		if machine.IsSidecar(spec) {
			done = st.Started != nil && *st.Started
		}
		if !done {
			incomplete = append(incomplete, spec.Name)
		}
	}
	if len(incomplete) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
		c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return c
}

func (g *generator) everStarted(s *corev1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		st := &s.ContainerStatuses[i]
		if st.State.Running != nil || lastExit(st) != nil || st.Started != nil && *st.Started {
			return true
		}
	}
	return false
}

// resizing tells of resources that a running container does not have yet.
func (g *generator) resizing() *corev1.PodCondition {
	if g.Machine.ResourcesMatch == nil || g.Plan.Terminating {
		return nil
	}
	for _, got := range g.Machine.Observed.Active() {
		spec, kind := machine.Spec(g.Pod, got.Name)
		if spec == nil || kind == "ephemeralContainers" || got.State != machine.Running || g.Machine.ResourcesMatch(spec, got) {
			continue
		}
		c := &corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		switch r := g.Machine.Memory.Resize[got.ID]; {
		case r.Reason != "": // there is no room for it
			c.Type, c.Reason, c.Message = corev1.PodResizePending, r.Reason, r.Message
		case r.Count > 0:
			c.Reason, c.Message = corev1.PodReasonError, r.Message
		}
		return c
	}
	return nil
}
