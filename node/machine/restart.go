package machine

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// IsSidecar answers whether an init container is one that keeps running beside the main containers.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// ShouldRestart answers whether a container that ended with code runs again, by its own rules, its own policy, or the pod's.
// init says that it is an init container, for which a policy of Always means: until it succeeds.
func ShouldRestart(pod *corev1.Pod, c *corev1.Container, init bool, code int32) bool {
	if init && IsSidecar(c) {
		return true
	}
	if rule := matchingRule(c, code); rule != nil {
		return true // both actions, Restart and RestartAllContainers, run it again
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return !init || code != 0
}

func matchingRule(c *corev1.Container, code int32) *corev1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, code)
		if in == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return r
		}
	}
	return nil
}

// restartsAll answers whether an exit with code makes all containers of the pod start anew.
func restartsAll(c *corev1.Container, code int32) bool {
	r := matchingRule(c, code)
	return r != nil && r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// Hash identifies the part of a container's spec whose change means a new container: name and image. It equals the
// kubelet's, so that containers started by one are adopted by the other.
func Hash(c *corev1.Container) string {
	b, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil { // two strings always marshal
		return ""
	}
	h := fnv.New32a()
	_, _ = h.Write(b)
	return fmt.Sprintf("%x", h.Sum32())
}

// Spec finds a container's spec by name among all kinds; kind is "containers", "initContainers" or "ephemeralContainers".
func Spec(pod *corev1.Pod, name string) (c *corev1.Container, kind string) {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i], "containers"
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i], "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon), "ephemeralContainers"
		}
	}
	return nil, ""
}

// FullName is how messages name a pod: name_namespace(uid).
func FullName(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
