package why

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// unready says what a pod on a node waits for.
func unready(f Facts, p *corev1.Pod) []Wait {
	if w, silent := silentNode(f, p); silent {
		return []Wait{w}
	}
	agent := "node agent of " + p.Spec.NodeName
	var out []Wait
	add := func(w Wait) {
		if w.Loop == "" {
			w.Loop = agent
		}
		out = append(out, w)
	}
	for k := range p.Spec.InitContainers {
		spec := &p.Spec.InitContainers[k]
		s := statusOf(p.Status.InitContainerStatuses, spec.Name)
		sidecar := spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if s == nil || s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 || sidecar && s.Started != nil && *s.Started {
			continue
		}
		add(initWait(f, s, sidecar))
		return out // the others wait for this one
	}
	for k := range p.Spec.Containers {
		s := statusOf(p.Status.ContainerStatuses, p.Spec.Containers[k].Name)
		if s == nil || s.Ready {
			continue
		}
		if w, ok := containerWait(f, s); ok {
			add(w)
		}
	}
	if len(out) > 0 {
		return out
	}
	if w, ok := beginning(f); ok {
		add(w)
		return append(out, claimWaits(f)...)
	}
	return gates(p, agent)
}

func statusOf(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for k := range list {
		if list[k].Name == name {
			return &list[k]
		}
	}
	return nil
}

func initWait(f Facts, s *corev1.ContainerStatus, sidecar bool) Wait {
	if s.State.Running != nil {
		at := s.State.Running.StartedAt.Time
		if sidecar {
			return Wait{Loop: "sidecar container " + s.Name, For: "its startup probe to pass; the containers start after it", Since: &at}
		}
		return Wait{Loop: "init container " + s.Name, For: "its own work; the containers start when it ends with 0", Since: &at}
	}
	if w, ok := containerWait(f, s); ok {
		return w
	}
	return Wait{For: "init container " + s.Name + " to start"}
}

// containerWait says what one container waits for.
func containerWait(f Facts, s *corev1.ContainerStatus) (Wait, bool) {
	switch {
	case s.State.Waiting != nil:
		return waiting(f, s)
	case s.State.Terminated != nil:
		t := s.State.Terminated
		at := t.FinishedAt.Time
		return Wait{For: fmt.Sprintf("container %s to be started again: it ended with %d (%s)", s.Name, t.ExitCode, t.Reason), Since: &at, Changes: exitAdvice(s.Name, t, f)}, true
	case s.State.Running == nil:
		return Wait{}, false
	}
	at := s.State.Running.StartedAt.Time
	kind := "readiness"
	if s.Started != nil && !*s.Started {
		kind = "startup"
	}
	w := Wait{For: fmt.Sprintf("the %s probe of container %s to pass", kind, s.Name), Since: &at}
	if e := latest(f.Events, "Unhealthy"); e != nil {
		_, last, count := when(e)
		w.For += fmt.Sprintf("; it failed %d times, last %s ago: %s", count, age(f.Now.Sub(last)), brief(e.Message))
	}
	return w, true
}

// waiting says why a container has not started.
func waiting(f Facts, s *corev1.ContainerStatus) (Wait, bool) {
	reason, message := s.State.Waiting.Reason, brief(s.State.Waiting.Message)
	switch reason {
	case "ContainerCreating", "PodInitializing", "":
		return beginning(f)
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable":
		if e := latest(f.Events, "Failed"); e != nil && strings.Contains(message, "Back-off") {
			message = brief(e.Message) // the cause, not the pause
		}
		w := Wait{For: fmt.Sprintf("image %s of container %s (%s): %s", s.Image, s.Name, reason, message)}
		switch reason {
		case "ErrImageNeverPull":
			w.Changes = []string{"the image imported on the node (yare image import)", "an imagePullPolicy other than Never"}
		case "InvalidImageName":
			w.Changes = []string{"a valid image name"}
		default:
			w.Changes = []string{"an image name that the registry knows", "imagePullSecrets, if it is private", "the image imported on the node (yare image import)"}
		}
		return w, true
	case "CreateContainerConfigError":
		return Wait{For: fmt.Sprintf("what container %s is configured with: %s", s.Name, message)}, true
	case "CrashLoopBackOff":
		w := Wait{For: fmt.Sprintf("the back-off of container %s, which ended %d times", s.Name, s.RestartCount)}
		if t := s.LastTerminationState.Terminated; t != nil {
			w.For = fmt.Sprintf("%s; last with %d (%s)", w.For, t.ExitCode, t.Reason)
			if t.Message != "" {
				w.For += ": " + brief(t.Message)
			}
			w.Changes = exitAdvice(s.Name, t, f)
		}
		return w, true
	}
	return Wait{For: fmt.Sprintf("container %s (%s): %s", s.Name, reason, message)}, true
}

func exitAdvice(name string, t *corev1.ContainerStateTerminated, f Facts) []string {
	if t.Reason == "OOMKilled" {
		return []string{"a higher memory limit for container " + name, "a program that uses less memory"}
	}
	return []string{fmt.Sprintf("what the log says: kubectl logs -n %s %s -c %s --previous", f.Object.GetNamespace(), f.Object.GetName(), name)}
}

// troubles are the events by which a node says what keeps a pod from starting, the earlier hop first.
var troubles = []struct{ what, reasons string }{
	{"a volume to be attached", "FailedAttachVolume"},
	{"a volume to be mounted", "FailedMount FailedMapVolume"},
	{"devices", "FailedPrepareDynamicResources UnexpectedAdmissionError"},
	{"the sandbox and its network", "FailedCreatePodSandBox FailedCreatePodContainer NetworkNotReady"},
}

// beginning says at which hop a pod is whose containers have not started.
func beginning(f Facts) (Wait, bool) {
	for _, t := range troubles {
		if e := latest(f.Events, strings.Fields(t.reasons)...); e != nil {
			first, _, count := when(e)
			return Wait{For: fmt.Sprintf("%s; failed %d times: %s", t.what, count, brief(e.Message)), Since: &first}, true
		}
	}
	pulling, pulled := latest(f.Events, "Pulling"), latest(f.Events, "Pulled")
	if pulling != nil {
		at, last, _ := when(pulling)
		if pulled == nil || before(pulled, last) {
			return Wait{For: "the pull to end: " + brief(pulling.Message), Since: &at}, true
		}
	}
	p, ok := f.Object.(*corev1.Pod)
	if !ok || len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting == nil {
		return Wait{}, false
	}
	if c := conditionOf(p, corev1.PodReadyToStartContainers); c == nil || c.Status != corev1.ConditionTrue {
		return Wait{For: "the volumes, the sandbox and the network of the pod to be made"}, true
	}
	return Wait{For: "the containers to be made"}, true
}

func before(e *corev1.Event, t time.Time) bool {
	_, last, _ := when(e)
	return last.Before(t)
}

// gates are conditions that others must set.
func gates(p *corev1.Pod, agent string) []Wait {
	var out []Wait
	for _, g := range p.Spec.ReadinessGates {
		if c := conditionOf(p, g.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			w := Wait{Loop: "whoever sets condition " + string(g.ConditionType), For: "its own reasons: the pod has it as a readiness gate"}
			if c != nil && c.Message != "" {
				w.For = brief(c.Message)
			}
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		out = append(out, Wait{Loop: agent, For: "the pod's status to be written"})
	}
	return out
}
