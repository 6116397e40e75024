package node

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/machine"
	"github.com/yare-project/yare/node/probe"
)

// probeKey is one probe of one container.
type probeKey struct {
	id   string
	kind probe.Kind
}

// seedProbes takes over what the API says of containers that ran before this agent did, so that a restart makes none of them unready.
func (w *worker) seedProbes() {
	for _, list := range [][]corev1.ContainerStatus{w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			_, id, ok := strings.Cut(s.ContainerID, "://")
			if !ok || s.State.Running == nil {
				continue
			}
			p := w.mem.Probes[id]
			if s.Started != nil && *s.Started {
				p.Startup = machine.Success
			}
			if s.Ready {
				p.Readiness = machine.Success
			}
			w.mem.Probes[id] = p
		}
	}
}

// syncProbes starts the probes that should run now, and stops those that should not.
func (w *worker) syncProbes(ctx context.Context) {
	want := map[probeKey]*corev1.Probe{}
	running := map[string]*machine.Container{}
	for _, got := range w.obs.Active() {
		if c, kind := machine.Spec(w.pod, got.Name); c != nil && kind != "ephemeralContainers" && got.State == machine.Running && !w.mem.Hooks[got.ID] {
			running[got.ID] = got
			w.wantProbes(want, c, got)
		}
	}
	for key, cancel := range w.probes {
		if want[key] == nil {
			cancel()
			delete(w.probes, key)
		}
	}
	for id := range w.mem.Probes {
		if c := w.obs.Container(id); running[id] == nil && len(w.obs.Containers) > 0 && (c == nil || c.State == machine.Exited) {
			delete(w.mem.Probes, id)
		}
	}
	for key, p := range want {
		if w.probes[key] == nil {
			w.probe(ctx, key, p, running[key.id])
		}
	}
}

// wantProbes lists the probes of a running container: the startup probe alone until it has succeeded, then the others. A container that is
// being killed is asked nothing, and one whose pod ends only whether it is ready.
func (w *worker) wantProbes(want map[probeKey]*corev1.Probe, c *corev1.Container, got *machine.Container) {
	add := func(kind probe.Kind, p *corev1.Probe) {
		if p != nil {
			want[probeKey{got.ID, kind}] = p
		}
	}
	_, dying := w.mem.InFlight[machine.Action{Op: machine.KillContainer, ContainerID: got.ID}.Key()]
	result := w.mem.Probes[got.ID]
	ending := dying || w.plan.Terminating
	if c.StartupProbe != nil && result.Startup != machine.Success {
		if !ending && result.Startup != machine.Failure {
			add(probe.Startup, c.StartupProbe)
		}
		return
	}
	if !ending && result.Liveness != machine.Failure {
		add(probe.Liveness, c.LivenessProbe)
	}
	add(probe.Readiness, c.ReadinessProbe)
}

// probe starts one probe.
func (w *worker) probe(ctx context.Context, key probeKey, p *corev1.Probe, got *machine.Container) {
	ctx, cancel := context.WithCancel(ctx)
	w.probes[key] = cancel
	pod := w.pod
	c, _ := machine.Spec(pod, got.Name)
	target := probe.Target{Container: c, Exec: func(ctx context.Context, cmd []string, timeout time.Duration) ([]byte, error) {
		return w.agent.exec(ctx, key.id, cmd, timeout)
	}}
	if ips := w.podIPs(); len(ips) > 0 {
		target.PodIP = ips[0]
	}
	timeout := max(time.Duration(p.TimeoutSeconds)*time.Second, time.Second)
	config := probe.Config{Kind: key.kind, Probe: p, Started: got.StartedAt, Clock: w.agent.cfg.Clock,
		Good: key.kind == probe.Readiness && w.mem.Probes[key.id].Readiness == machine.Success,
		Ask: func(ctx context.Context) (probe.Answer, string, error) {
			return probe.Check(ctx, &p.ProbeHandler, target, timeout)
		},
		Report: func(success bool) { w.post(func() { w.probed(key, success) }) },
		Event: func(reason, text string) {
			w.agent.containerEvent(pod, c.Name, corev1.EventTypeWarning, reason, text)
		},
	}
	w.agent.running.Go(func() { probe.Run(ctx, config) })
}

// probed takes in the result of a probe.
func (w *worker) probed(key probeKey, success bool) {
	if w.probes[key] == nil {
		return // it was stopped meanwhile
	}
	p := w.mem.Probes[key.id]
	result := machine.Failure
	if success {
		result = machine.Success
	}
	switch key.kind {
	case probe.Startup:
		p.Startup = result
	case probe.Liveness:
		p.Liveness = result
	case probe.Readiness:
		p.Readiness = result
	}
	w.mem.Probes[key.id] = p
}
