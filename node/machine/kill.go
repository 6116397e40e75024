package machine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// kill plans the end of one running container.
func (p *planner) kill(c *Container, reason, message string) {
	p.killWithin(c, reason, message, p.grace(c, reason))
}

func (p *planner) killWithin(c *Container, reason, message string, grace time.Duration) {
	a := Action{Op: KillContainer, Container: c.Name, ContainerID: c.ID, Reason: reason, Message: message, Grace: grace, Issued: p.Now}
	if under, busy := p.Memory.InFlight[a.Key()]; busy && !under.Issued.Add(under.Grace).After(p.Now.Add(a.Grace)) {
		return
	}
	if r := p.Memory.KillFailures[c.ID]; p.Now.Before(r.At) {
		p.wake(r.At)
		return
	}
	p.plan.Actions = append(p.plan.Actions, a)
}

// minGrace is what a container gets at least once its pod's time is up (sidecars that waited for the main containers).
const minGrace = 2 * time.Second

// grace answers how long a container has to end, by the reason of its end.
func (p *planner) grace(c *Container, reason string) time.Duration {
	seconds := int64(30)
	if p.Pod.DeletionGracePeriodSeconds != nil {
		return time.Duration(*p.Pod.DeletionGracePeriodSeconds) * time.Second
	}
	if t := p.Pod.Spec.TerminationGracePeriodSeconds; t != nil {
		seconds = *t
	}
	if spec, _ := Spec(p.Pod, c.Name); spec != nil {
		var probe *corev1.Probe
		switch reason {
		case KillLiveness:
			probe = spec.LivenessProbe
		case KillStartup:
			probe = spec.StartupProbe
		}
		if probe != nil && probe.TerminationGracePeriodSeconds != nil {
			seconds = *probe.TerminationGracePeriodSeconds
		}
	}
	return time.Duration(seconds) * time.Second
}
