package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// DefaultPod fills what a Pod's author left out: everything [DefaultPodSpec] does, and what a Pod gets but a template doesn't (requests
// from limits, host ports, service links). It is idempotent.
func DefaultPod(pod *corev1.Pod) {
	// Only a pod's own grace is mended: one in a template stays what its author wrote.
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
	for i := range pod.Spec.Containers {
		requestsFromLimits(&pod.Spec.Containers[i].Resources)
	}
	for i := range pod.Spec.InitContainers {
		requestsFromLimits(&pod.Spec.InitContainers[i].Resources)
	}
	defaultPodLevelResources(pod)
	if pod.Spec.EnableServiceLinks == nil {
		pod.Spec.EnableServiceLinks = ptr.To(corev1.DefaultEnableServiceLinks)
	}
	if pod.Spec.HostNetwork {
		hostPortsFromContainerPorts(pod.Spec.Containers)
		hostPortsFromContainerPorts(pod.Spec.InitContainers)
	}
	DefaultPodSpec(&pod.Spec)
	defaultPodStatus(&pod.Status)
}

// DefaultPodTemplate fills what a template's author left out. It is idempotent.
func DefaultPodTemplate(template *corev1.PodTemplateSpec) {
	DefaultPodSpec(&template.Spec)
}

// DefaultPodSpec fills what a Pod and a template have in common. It is idempotent. Values are those of the Kubernetes API reference; a
// value that is new in a release must not be added here, because it would change the hash of existing templates.
func DefaultPodSpec(spec *corev1.PodSpec) {
	defaultTo(&spec.DNSPolicy, corev1.DNSClusterFirst)
	defaultTo(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	defaultTo(&spec.SchedulerName, corev1.DefaultSchedulerName)
	defaultPtr(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	syncServiceAccountName(spec)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		defaultContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

// syncServiceAccountName keeps the deprecated alias serviceAccount equal to serviceAccountName, which wins when both are set.
func syncServiceAccountName(spec *corev1.PodSpec) {
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

func defaultPodStatus(status *corev1.PodStatus) {
	switch {
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	}
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			roundUp(list[i].AllocatedResources)
			if list[i].Resources != nil {
				roundUp(list[i].Resources.Limits)
				roundUp(list[i].Resources.Requests)
			}
		}
	}
	roundUp(status.AllocatedResources)
	if status.Resources != nil {
		roundUp(status.Resources.Limits)
		roundUp(status.Resources.Requests)
	}
}

// requestsFromLimits: a limit without a request is also the request.
func requestsFromLimits(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	fillMissing(r.Requests, r.Limits, func(corev1.ResourceName) bool { return true })
}

// defaultPodLevelResources follows KEP-2837: huge page limits of a pod come from its containers' limits, its requests from their requests
// first and from its own limits after.
func defaultPodLevelResources(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	limits, requests := ensure(r.Limits), ensure(r.Requests)
	fillMissing(limits, resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}), func(name corev1.ResourceName) bool {
		_, requested := r.Requests[name]
		return resourcehelper.IsSupportedPodLevelResource(name) && isHugePage(name) && !requested
	})
	if len(limits) > 0 {
		r.Limits = limits
	}
	if len(r.Limits) == 0 {
		return
	}
	fillMissing(requests, resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}), func(name corev1.ResourceName) bool {
		return resourcehelper.IsSupportedPodLevelResource(name) && overcommitAllowed(name)
	})
	fillMissing(requests, r.Limits, resourcehelper.IsSupportedPodLevelResource)
	if len(requests) > 0 {
		r.Requests = requests
	}
}

func hostPortsFromContainerPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			defaultTo(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
		}
	}
}

// roundUp raises amounts to whole thousandths, the finest the API stores.
func roundUp(list corev1.ResourceList) {
	for name, amount := range list {
		if !amount.RoundUp(resource.Milli) { // what needs none is not touched: others may be reading it
			list[name] = amount
		}
	}
}

func ensure(list corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return corev1.ResourceList{}
	}
	return list
}

func fillMissing(dst, src corev1.ResourceList, want func(corev1.ResourceName) bool) {
	for name, amount := range src {
		if _, there := dst[name]; !there && want(name) {
			dst[name] = amount.DeepCopy()
		}
	}
}

func defaultTo[T comparable](at *T, value T) {
	var zero T
	if *at == zero {
		*at = value
	}
}

func defaultPtr[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}
