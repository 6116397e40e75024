package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/machine"
)

// podRef names a pod, or with a container's name the part of its spec, as the object of an Event.
func podRef(pod *corev1.Pod, container string) corev1.ObjectReference {
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
	if container == "" {
		return ref
	}
	if _, kind := machine.Spec(pod, container); kind != "" {
		ref.FieldPath = fmt.Sprintf("spec.%s{%s}", kind, container)
	}
	return ref
}

func (w *worker) event(kind, reason, text string) {
	w.agent.cfg.Event(podRef(w.pod, ""), kind, reason, text)
}

// containerEvent records an Event about a container of a pod, or about the pod if container is empty.
func (a *Agent) containerEvent(pod *corev1.Pod, container, kind, reason, text string) {
	a.cfg.Event(podRef(pod, container), kind, reason, text)
}

// tellBackoff records once for each wait that a container is held back after a crash.
func (w *worker) tellBackoff() {
	for name, why := range w.plan.Waiting {
		if why.Reason != "CrashLoopBackOff" {
			continue
		}
		last := w.obs.Latest(name)
		if last == nil || w.told["backoff/"+name] == last.ID {
			continue
		}
		w.told["backoff/"+name] = last.ID
		w.agent.containerEvent(w.pod, name, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, machine.FullName(w.pod)))
	}
}
