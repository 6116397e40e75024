package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/machine"
)

// graceAfterHook is what a container gets to end in after a preStop hook that used up its time.
const graceAfterHook = 2 * time.Second

func (w *worker) prepareKill(a machine.Action) work {
	pod, podIPs := w.pod, w.podIPs()
	spec, _ := machine.Spec(pod, a.Container)
	text := a.Message
	if text == "" {
		text = "Stopping container " + a.Container
	}
	again := w.told["kill/"+a.ContainerID] == text
	w.told["kill/"+a.ContainerID] = text
	return func(ctx context.Context) (func(), error) {
		if !again {
			w.agent.containerEvent(pod, a.Container, corev1.EventTypeNormal, "Killing", text)
		}
		grace := a.Grace
		if spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && grace > 0 && !again {
			grace = w.agent.preStop(ctx, pod, spec, a.ContainerID, grace, podIPs)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := w.agent.cfg.Runtime.StopContainer(ctx, a.ContainerID, int64((grace+time.Second-1)/time.Second))
		gone := status.Code(err) == codes.NotFound
		if gone {
			err = nil
		}
		var got *machine.Container
		if err == nil && !gone {
			got, err = w.agent.inspect(ctx, a.ContainerID)
			if status.Code(err) == codes.NotFound {
				gone, err = true, nil
			}
		}
		return func() { w.killDone(a, got, gone, err) }, err
	}
}

func (w *worker) killDone(a machine.Action, got *machine.Container, gone bool, err error) {
	switch {
	case gone:
		w.obs.DropContainer(a.ContainerID)
	case err != nil:
		w.mem.KillFailures[a.ContainerID] = w.mem.KillFailures[a.ContainerID].Again(w.now(), killFirst, killLast, err.Error())
		if w.ops[a.Key()] != nil && w.mem.InFlight[a.Key()].Issued.Equal(a.Issued) {
			w.event(corev1.EventTypeWarning, "FailedKillPod", fmt.Sprintf("error killing pod: failed to stop container %s: %s", a.Container, message(err)))
		}
	default:
		delete(w.mem.KillFailures, a.ContainerID)
		w.putContainer(*got)
	}
}

// preStop runs the hook for at most the grace period, and answers what is left of it.
func (a *Agent) preStop(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, id string, grace time.Duration, podIPs []string) time.Duration {
	start := a.cfg.Clock.Now()
	hookCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.hook(hookCtx, pod, spec, id, spec.Lifecycle.PreStop, podIPs) }()
	select {
	case err := <-done:
		if err != nil && ctx.Err() == nil {
			a.cfg.Log.Info("preStop hook failed", "pod", pod.Namespace+"/"+pod.Name, "container", spec.Name, "err", err)
			a.containerEvent(pod, spec.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
	case <-a.cfg.Clock.After(grace):
	case <-ctx.Done():
	}
	return max(grace-a.cfg.Clock.Since(start), graceAfterHook)
}
