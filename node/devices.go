package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/node/machine"
	"github.com/yare-project/yare/node/podresources"
)

// devicesChanged has the status of pods written anew whose devices' health is another, or that wait for a driver.
func (a *Agent) devicesChanged(pods []types.UID) {
	for _, uid := range pods {
		if w := a.worker(uid); w != nil {
			w.post(func() {})
		}
	}
}

// servePodResources tells monitoring agents which devices pods have.
func (a *Agent) servePodResources(ctx context.Context) {
	s := podresources.New(podresources.Config{Dirs: a.cfg.PodResourcesDirs, Pods: a.Pods, Pod: a.Pod, Uses: a.devices.Uses, Log: a.cfg.Log})
	if err := s.Run(ctx); err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("the PodResources API is not served", "err", err)
	}
}

// tellHealth puts down how the devices of containers are; of devices that were given back, how they were last.
func (w *worker) tellHealth(before []corev1.ContainerStatus) {
	for i := range w.status.ContainerStatuses {
		s := &w.status.ContainerStatuses[i]
		spec, _ := machine.Spec(w.pod, s.Name)
		if spec == nil || len(spec.Resources.Claims) == 0 {
			continue
		}
		if s.AllocatedResourcesStatus = w.agent.devices.Health(w.pod, spec); s.AllocatedResourcesStatus != nil {
			continue
		}
		for k := range before {
			if before[k].Name == s.Name {
				s.AllocatedResourcesStatus = before[k].AllocatedResourcesStatus
			}
		}
	}
}

// holdPhase keeps a pod from being over while drivers have its devices still prepared: once it is, others may get them.
func (w *worker) holdPhase(before corev1.PodPhase) {
	over := func(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }
	if over(w.status.Phase) && !over(before) && before != "" && w.agent.devices.Holds(w.uid) {
		w.status.Phase = before
	}
}

// tellDriver says which driver a pod waits for that takes long to answer: in the status of containers that wait for it, and once in an event.
func (w *worker) tellDriver() {
	why := w.agent.devices.Waits(w.pod)
	if why == "" {
		return
	}
	for _, list := range [][]corev1.ContainerStatus{w.status.InitContainerStatuses, w.status.ContainerStatuses} {
		for i := range list {
			if s := list[i].State.Waiting; s != nil && s.Message == "" && (s.Reason == "ContainerCreating" || s.Reason == "PodInitializing") {
				s.Message = why
			}
		}
	}
	if w.told["driver"] != why {
		w.told["driver"] = why
		w.event(corev1.EventTypeWarning, "WaitingForDynamicResources", why)
	}
}
