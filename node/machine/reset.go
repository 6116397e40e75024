package machine

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// reset plans a restart of the whole pod in place, which a container's restart rule asked for: all containers are stopped and
// removed, and then the pod starts from its first init container. It answers whether that is under way.
func (p *planner) reset() bool {
	source := p.resetSource()
	if source == "" {
		return false
	}
	for _, c := range p.Observed.Active() {
		p.kill(c, KillRestartRules, fmt.Sprintf("Container %s exited and asked for a restart of all containers", source))
	}
	if len(p.Observed.Active()) > 0 || p.busy(StartContainer) {
		return true
	}
	// The one that asked goes last: as long as it is there, the restart is known to be under way.
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		if c.Name != source {
			p.after(p.Memory.KillFailures[c.ID], Action{Op: RemoveContainer, Container: c.Name, ContainerID: c.ID, Attempt: c.Attempt})
		}
	}
	if len(p.plan.Actions) > 0 || p.busy(RemoveContainer) {
		return true
	}
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		p.after(p.Memory.KillFailures[c.ID], Action{Op: RemoveContainer, Container: c.Name, ContainerID: c.ID, Attempt: c.Attempt})
	}
	return true
}

// resetSource names a container whose last exit asks for the restart of all.
func (p *planner) resetSource() string {
	specs := make([]corev1.Container, 0, len(p.Pod.Spec.InitContainers)+len(p.Pod.Spec.Containers))
	specs = append(append(specs, p.Pod.Spec.InitContainers...), p.Pod.Spec.Containers...)
	for i := range specs {
		if len(specs[i].RestartPolicyRules) == 0 {
			continue
		}
		if got := p.Observed.Latest(specs[i].Name); got != nil && got.State == Exited && restartsAll(&specs[i], got.ExitCode) {
			return specs[i].Name
		}
	}
	return ""
}
