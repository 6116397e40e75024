// Package downward answers the fields of a pod that its own containers can ask for: in environment variables (fieldRef, resourceFieldRef) and
// in downwardAPI volumes. The set of fields and their formats are those of the Kubernetes API documentation ("downward API").
//
// All functions are pure. Safe for concurrent use.
package downward

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Facts is what the pod object alone does not say.
type Facts struct {
	PodIPs, HostIPs []string
	// Allocatable stands in for limits that a container does not have.
	Allocatable corev1.ResourceList
}

// Field answers the value of a field path such as "metadata.labels['app']".
func Field(pod *corev1.Pod, path string, f Facts) (string, error) {
	if base, key, ok := subscript(path); ok {
		switch base {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return Lines(pod.Labels), nil
	case "metadata.annotations":
		return Lines(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(f.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(f.HostIPs, ","), nil
	case "status.podIP":
		return first(f.PodIPs), nil
	case "status.podIPs":
		return strings.Join(f.PodIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func subscript(path string) (base, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	base, key, ok = strings.Cut(rest, "['")
	return base, key, ok && base != ""
}

// Lines formats a map as lines of key="escaped value", sorted by key.
func Lines(m map[string]string) string {
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s=%q", k, m[k])
	}
	return b.String()
}

// Resource answers a limit or request of a container, in units of the selector's divisor, rounded up. A limit of CPU, memory or ephemeral
// storage that is not set is the node's allocatable amount.
func Resource(pod *corev1.Pod, self *corev1.Container, sel *corev1.ResourceFieldSelector, f Facts) (string, error) {
	c := self
	if sel.ContainerName != "" {
		if c = find(pod, sel.ContainerName); c == nil {
			return "", fmt.Errorf("container %s not found", sel.ContainerName)
		}
	}
	if c == nil {
		return "", fmt.Errorf("resource %s: containerName is required", sel.Resource)
	}
	kind, name, _ := strings.Cut(sel.Resource, ".")
	var list corev1.ResourceList
	switch kind {
	case "limits":
		list = c.Resources.Limits
	case "requests":
		list = c.Resources.Requests
	}
	n := corev1.ResourceName(name)
	if list == nil && kind != "limits" && kind != "requests" || !supported(n) {
		return "", fmt.Errorf("unsupported container resource : %v", sel.Resource)
	}
	q, set := list[n]
	if kind == "limits" && (!set || q.IsZero()) {
		q = f.Allocatable[n]
	}
	return divide(q, sel.Divisor, n), nil
}

func supported(n corev1.ResourceName) bool {
	return n == corev1.ResourceCPU || n == corev1.ResourceMemory || n == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(n), corev1.ResourceHugePagesPrefix)
}

func divide(q, divisor resource.Quantity, n corev1.ResourceName) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	have, by := q.Value(), divisor.Value()
	if n == corev1.ResourceCPU {
		have, by = q.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(have)/float64(by))), 10)
}

func find(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
