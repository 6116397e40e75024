package kubeletapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// failure is an answer other than success; its text reaches the user of kubectl.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func refuse(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if f, ok := err.(*failure); ok {
		code = f.code
	} else if st, ok := status.FromError(err); ok {
		// As the kubelet maps the streaming calls' errors.
		switch st.Code() {
		case codes.NotFound:
			code = http.StatusNotFound
		case codes.ResourceExhausted:
			w.Header().Set("Retry-After", "1")
			code = http.StatusTooManyRequests
		case codes.InvalidArgument:
			code = http.StatusBadRequest
		}
	}
	http.Error(w, err.Error(), code)
}

func (s *Server) writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// pod finds the pod that a request names.
func (s *Server) pod(r *http.Request) (*corev1.Pod, error) {
	name := r.PathValue("pod")
	pod, ok := s.cfg.View.Pod(r.PathValue("ns"), name)
	if !ok {
		return nil, refuse(http.StatusNotFound, "pod %q does not exist", name)
	}
	if uid := r.PathValue("uid"); uid != "" && uid != string(pod.UID) {
		return nil, refuse(http.StatusNotFound, "pod %q with UID %q does not exist: its UID is %q", name, uid, pod.UID)
	}
	return pod, nil
}

// containerSpec finds a container of any kind by name, and whether it has a terminal.
func containerSpec(pod *corev1.Pod, name string) (tty, found bool) {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].TTY, true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TTY, true
		}
	}
	return false, false
}

func containerStatus(pod *corev1.Pod, name string) (*corev1.ContainerStatus, bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], true
			}
		}
	}
	return nil, false
}

// bareID is the runtime's own identifier: a status says "containerd://" before it.
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}

// runningContainer is the ID of a container that commands can run in.
func runningContainer(pod *corev1.Pod, name string) (string, error) {
	if _, ok := containerSpec(pod, name); !ok {
		return "", refuse(http.StatusNotFound, "container not found (%q)", name)
	}
	st, ok := containerStatus(pod, name)
	if !ok || st.State.Running == nil || st.ContainerID == "" {
		return "", refuse(http.StatusNotFound, "container not found (%q)", name)
	}
	return bareID(st.ContainerID), nil
}

// loggedContainer is the ID of the container whose log a user means: the running
// one, else the one that ended last; with previous, the one before the current.
// The texts are those that users of kubectl know.
func loggedContainer(pod *corev1.Pod, name string, previous bool) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", refuse(http.StatusBadRequest, format, args...)
	}
	st, ok := containerStatus(pod, name)
	if !ok {
		return bad("container %q in pod %q is not available", name, pod.Name)
	}
	var last string
	if st.LastTerminationState.Terminated != nil {
		last = st.LastTerminationState.Terminated.ContainerID
	}
	ended := st.State.Terminated
	switch {
	case previous && last == "":
		return bad("previous terminated container %q in pod %q not found", name, pod.Name)
	case previous:
		return bareID(last), nil
	case st.State.Running != nil:
		return bareID(st.ContainerID), nil
	case ended != nil && ended.ContainerID != "":
		return bareID(ended.ContainerID), nil
	case last != "":
		return bareID(last), nil
	case ended != nil || st.LastTerminationState.Terminated != nil:
		return bad("container %q in pod %q is terminated", name, pod.Name)
	case st.State.Waiting != nil:
		return bad("container %q in pod %q is waiting to start: %s", name, pod.Name, waitingText(st.State.Waiting.Reason))
	}
	return bad("container %q in pod %q is waiting to start - no logs yet", name, pod.Name)
}

func waitingText(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}
