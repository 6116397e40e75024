package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/node/machine"
)

// Container is where a container's processes and log are.
type Container struct {
	ID, Name, LogPath string
	PodUID            types.UID
	Running           bool
}

// Pods lists the pods of this node with their present status, which may be newer than the API's. The objects are shared: don't change them.
func (a *Agent) Pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.all() {
		if s := w.view.Load(); s.pod.Spec.NodeName != "" {
			out = append(out, s.pod)
		}
	}
	return out
}

// Pod answers one of them. Of two with one name, the one that is not being deleted is meant.
func (a *Agent) Pod(namespace, name string) (*corev1.Pod, bool) {
	s := a.find(namespace, name, "")
	if s == nil {
		return nil, false
	}
	return s.pod, true
}

func (a *Agent) find(namespace, name string, uid types.UID) *snapshot {
	var found *snapshot
	for _, w := range a.all() {
		s := w.view.Load()
		if s.pod.Namespace != namespace || s.pod.Name != name || uid != "" && s.pod.UID != uid || s.pod.Spec.NodeName == "" {
			continue
		}
		if found == nil || found.pod.DeletionTimestamp != nil {
			found = s
		}
	}
	return found
}

// Container answers the container of a pod by name: the newest that was started, or with previous the one before it. An empty uid means
// any. The error says, in the words that users of kubectl logs know, why there is none.
func (a *Agent) Container(namespace, pod string, uid types.UID, name string, previous bool) (Container, error) {
	s := a.find(namespace, pod, uid)
	if s == nil {
		return Container{}, fmt.Errorf("pod %q cannot be found - no logs available", pod)
	}
	if spec, _ := machine.Spec(s.pod, name); spec == nil {
		return Container{}, fmt.Errorf("container %q in pod %q is not available", name, pod)
	}
	var list []machine.Container
	for _, c := range s.containers {
		if c.Name == name && c.State != machine.Created {
			list = append(list, c)
		}
	}
	running := len(list) > 0 && list[0].State == machine.Running
	switch {
	case previous && running && len(list) > 1:
		return s.answer(list[1]), nil
	case previous && !running && waits(s.pod, name) && len(list) > 0: // it ended and waits to start again: that end is the previous one
		return s.answer(list[0]), nil
	case previous && len(list) > 1:
		return s.answer(list[1]), nil
	case previous:
		return Container{}, fmt.Errorf("previous terminated container %q in pod %q not found", name, pod)
	case len(list) > 0:
		return s.answer(list[0]), nil
	}
	return Container{}, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod, whyWaiting(s.pod, name))
}

func (s *snapshot) answer(c machine.Container) Container {
	return Container{ID: c.ID, Name: c.Name, LogPath: c.LogPath, PodUID: s.pod.UID, Running: c.State == machine.Running}
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func waits(pod *corev1.Pod, name string) bool {
	s := statusOf(pod, name)
	return s != nil && s.State.Waiting != nil
}

func whyWaiting(pod *corev1.Pod, name string) string {
	s := statusOf(pod, name)
	if s == nil || s.State.Waiting == nil {
		return "no logs yet"
	}
	switch s.State.Waiting.Reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return s.State.Waiting.Reason
}

// Sandbox answers the id of a pod's ready sandbox, for port-forwards.
func (a *Agent) Sandbox(namespace, pod string, uid types.UID) (string, error) {
	s := a.find(namespace, pod, uid)
	switch {
	case s == nil:
		return "", fmt.Errorf("pod %q cannot be found", pod)
	case s.sandbox == nil || !s.sandbox.Ready:
		return "", fmt.Errorf("pod %q has no running sandbox", pod)
	}
	return s.sandbox.ID, nil
}
