package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/machine"
)

// unfit is a resize that the node has no room for.
type unfit struct{ reason, message string }

func (u *unfit) Error() string { return u.message }

// updateContainer gives a running container the resources of its spec, if the node has them.
func (w *worker) updateContainer(ctx context.Context, pod *corev1.Pod, a machine.Action) (func(), error) {
	got, err := w.agent.resize(ctx, pod, a)
	return func() {
		if err == nil {
			delete(w.mem.Resize, a.ContainerID)
			w.putContainer(*got)
			w.event(corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed for container "+a.Container)
			return
		}
		r := w.mem.Resize[a.ContainerID].Again(w.now(), killFirst, killLast, message(err))
		event := "ResizeError"
		var u *unfit
		if errors.As(err, &u) {
			r.Reason, event = u.reason, "Resize"+u.reason
		}
		if w.told["resize/"+a.ContainerID] != r.Message {
			w.told["resize/"+a.ContainerID] = r.Message
			w.event(corev1.EventTypeWarning, event, fmt.Sprintf("Pod resize of container %s: %s", a.Container, r.Message))
		}
		w.mem.Resize[a.ContainerID] = r
	}, err
}

func (a *Agent) resize(ctx context.Context, pod *corev1.Pod, act machine.Action) (*machine.Container, error) {
	c, _ := machine.Spec(pod, act.Container)
	if c == nil {
		return nil, fmt.Errorf("container %s is not in the spec", act.Container)
	}
	if err := a.roomFor(pod); err != nil {
		return nil, err
	}
	want := a.builder.Resources(pod, c)
	// A pod's limit may neither fall below its containers' nor lag behind them: what can't be set before is set after.
	_, before := a.cfg.Cgroups.Pod(pod)
	if err := a.cfg.Runtime.UpdateContainerResources(ctx, act.ContainerID, &runtimeapi.ContainerResources{Linux: want}); err != nil {
		return nil, err
	}
	if before != nil {
		if _, err := a.cfg.Cgroups.Pod(pod); err != nil {
			return nil, err
		}
	}
	got, err := a.inspect(ctx, act.ContainerID)
	if err != nil {
		return nil, err
	}
	got.Resources = want // it holds now, even where the runtime rounds it in what it reports
	return got, nil
}

// roomFor answers why the node has no room for a pod's present spec: never (Infeasible), or not now (Deferred).
func (a *Agent) roomFor(pod *corev1.Pod) error {
	allocatable := a.node.allocatable()
	if v := fits(pod, nil, allocatable); v != nil {
		return &unfit{corev1.PodReasonInfeasible, "Node didn't have enough capacity: " + detail(v)}
	}
	var others []*corev1.Pod
	for _, p := range a.active() {
		if p.UID != pod.UID {
			others = append(others, p)
		}
	}
	if v := fits(pod, others, allocatable); v != nil {
		return &unfit{corev1.PodReasonDeferred, "Node didn't have enough resource: " + detail(v)}
	}
	return nil
}

func detail(v *machine.Verdict) string {
	_, rest, _ := strings.Cut(v.Message, "resource: ")
	return rest
}

// active lists the pods that use the node's resources.
func (a *Agent) active() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.all() {
		if s := w.view.Load(); s.pod.Spec.NodeName != "" && counts(s.pod) {
			out = append(out, s.pod)
		}
	}
	return out
}
