package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	podresource "k8s.io/component-helpers/resource"
)

const (
	requestsPrefix    = corev1.DefaultResourceRequestsPrefix
	limitsPrefix      = "limits."
	hugePagesPrefix   = corev1.ResourceHugePagesPrefix
	deviceClassPrefix = resourcev1.ResourceDeviceClassPrefix
)

// measured are the amounts of a pod that have one name by themselves and for requests, and one for limits.
var measured = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

func podCovers(name corev1.ResourceName) bool {
	s := string(name)
	base := strings.TrimPrefix(s, requestsPrefix)
	switch {
	case name == corev1.ResourcePods, strings.HasPrefix(base, hugePagesPrefix):
		return true
	case slices.Contains(measured, corev1.ResourceName(base)):
		return true
	case strings.HasPrefix(s, limitsPrefix):
		return slices.Contains(measured, corev1.ResourceName(strings.TrimPrefix(s, limitsPrefix)))
	}
	return base != s && extended(base)
}

// extended tells whether a resource is one that the cluster, not Kubernetes, named: such as example.com/gpu.
func extended(name string) bool {
	native := !strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/")
	return !native && !strings.HasPrefix(name, requestsPrefix) || strings.HasPrefix(name, deviceClassPrefix)
}

// usePod adds a pod's use. One that has finished, or is deleted and past its grace period (its node may be lost), uses nothing but its count.
func usePod(out corev1.ResourceList, pod *corev1.Pod, now time.Time) {
	if until, ok := ChargedUntil(pod); ok && now.After(until) || finished(pod) {
		return
	}
	opts := podresource.PodResourcesOptions{UseStatusResources: true}
	compute(out, podresource.PodRequests(pod, opts), podresource.PodLimits(pod, opts))
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// ChargedUntil is when a deleted pod's compute resources are no longer counted although it is still there; false for one that is not deleted.
func ChargedUntil(pod *corev1.Pod) (time.Time, bool) {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second), true
}

// compute names what requests and limits use.
func compute(out, requests, limits corev1.ResourceList) {
	out[corev1.ResourcePods] = one
	for name, q := range requests {
		switch {
		case slices.Contains(measured, name), strings.HasPrefix(string(name), hugePagesPrefix):
			out[name], out[requestsPrefix+name] = q, q
		case extended(string(name)):
			out[requestsPrefix+name] = q
		}
	}
	for name, q := range limits {
		if slices.Contains(measured, name) {
			out[limitsPrefix+name] = q
		}
	}
}

// demanded are the amounts that every container must name when a quota bounds them. Later resources were spared this rule.
var demanded = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory}

func missing(pod *corev1.Pod, bounded []corev1.ResourceName) string {
	if podresource.IsPodLevelResourcesSet(pod) {
		return ""
	}
	lacks := map[corev1.ResourceName][]string{}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			has := corev1.ResourceList{}
			compute(has, c.Resources.Requests, c.Resources.Limits)
			for _, n := range bounded {
				if _, named := has[n]; !named && slices.Contains(demanded, n) {
					lacks[n] = append(lacks[n], c.Name)
				}
			}
		}
	}
	var out []string
	for _, n := range demanded {
		if names := lacks[n]; len(names) > 0 {
			slices.Sort(names)
			out = append(out, fmt.Sprintf("%s for: %s", n, strings.Join(slices.Compact(names), ",")))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
