package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass says how a pod is treated when its node runs short: Guaranteed if CPU and memory of everything in it are limited and requests equal
// limits, BestEffort if nothing is requested or limited, Burstable otherwise. Resources of the pod as a whole, if set, are what counts.
func QOSClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	requests, limits, allLimited := corev1.ResourceList{}, corev1.ResourceList{}, true
	if r := spec.Resources; r != nil {
		sumCompute(requests, r.Requests)
		if n := sumCompute(limits, r.Limits); len(r.Limits) > 0 && n < 2 {
			allLimited = false
		}
	} else {
		for _, c := range slices.Concat(spec.Containers, spec.InitContainers) {
			sumCompute(requests, c.Resources.Requests)
			if sumCompute(limits, c.Resources.Limits) < 2 {
				allLimited = false
			}
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	if allLimited && len(requests) == len(limits) {
		same := true
		for name, request := range requests {
			limit, there := limits[name]
			same = same && there && limit.Cmp(request) == 0
		}
		if same {
			return corev1.PodQOSGuaranteed
		}
	}
	return corev1.PodQOSBurstable
}

// sumCompute adds the CPU and memory of from that are above zero, and says how many of the two there were.
func sumCompute(to, from corev1.ResourceList) (n int) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		amount, there := from[name]
		if !there || amount.Cmp(resource.Quantity{}) <= 0 {
			continue
		}
		n++
		sum := to[name].DeepCopy()
		sum.Add(amount)
		to[name] = sum
	}
	return n
}
