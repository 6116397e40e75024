package core

import corev1 "k8s.io/api/core/v1"

// DropDisabled takes out of a template the fields that Kubernetes 1.36 has behind feature gates which are off by default, as its API server does.
// A field that old uses stays. Either may be nil.
func DropDisabled(template, old *corev1.PodTemplateSpec) {
	if template == nil {
		return
	}
	var was *corev1.PodSpec
	if old != nil {
		was = &old.Spec
	}
	dropDisabled(&template.Spec, usesDisabled(was))
}

// disabled says which of the fields behind gates a spec uses.
type disabled struct {
	stopSignal  bool // ContainerStopSignals
	trustBundle bool // ClusterTrustBundleProjection
	certificate bool // PodCertificateRequest
}

func usesDisabled(spec *corev1.PodSpec) disabled {
	var d disabled
	if spec == nil {
		return d
	}
	eachLifecycle(spec, func(l **corev1.Lifecycle) { d.stopSignal = d.stopSignal || (*l).StopSignal != nil })
	eachProjection(spec, func(s *corev1.VolumeProjection) {
		d.trustBundle = d.trustBundle || s.ClusterTrustBundle != nil
		d.certificate = d.certificate || s.PodCertificate != nil
	})
	return d
}

func dropDisabled(spec *corev1.PodSpec, keep disabled) {
	if !keep.stopSignal {
		eachLifecycle(spec, dropStopSignal)
	}
	eachProjection(spec, func(s *corev1.VolumeProjection) {
		if !keep.trustBundle {
			s.ClusterTrustBundle = nil
		}
		if !keep.certificate {
			s.PodCertificate = nil
		}
	})
}

// dropStopSignal leaves no lifecycle where the signal was all of it.
func dropStopSignal(l **corev1.Lifecycle) {
	if (*l).StopSignal == nil {
		return
	}
	(*l).StopSignal = nil
	if (*l).PostStart == nil && (*l).PreStop == nil {
		*l = nil
	}
}

func eachLifecycle(spec *corev1.PodSpec, f func(**corev1.Lifecycle)) {
	visit := func(l **corev1.Lifecycle) {
		if *l != nil {
			f(l)
		}
	}
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i].Lifecycle)
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i].Lifecycle)
	}
	for i := range spec.EphemeralContainers {
		visit(&spec.EphemeralContainers[i].Lifecycle)
	}
}

func eachProjection(spec *corev1.PodSpec, f func(*corev1.VolumeProjection)) {
	for i := range spec.Volumes {
		p := spec.Volumes[i].Projected
		if p == nil {
			continue
		}
		for j := range p.Sources {
			f(&p.Sources[j])
		}
	}
}

// dropDisabledStatus does the same for a pod's status: what devices take of a node's allocatable resources (DRANodeAllocatableResources), and the
// digests of image volumes (ImageVolumeWithDigest).
func dropDisabledStatus(status, old *corev1.PodStatus) {
	if len(old.NodeAllocatableResourceClaimStatuses) == 0 {
		status.NodeAllocatableResourceClaimStatuses = nil
	}
	if anyVolumeStatus(old) {
		return
	}
	eachMount(status, func(m *corev1.VolumeMountStatus) {
		if m.VolumeStatus != nil { // what is unchanged may be shared with the stored state
			m.VolumeStatus = nil
		}
	})
}

func anyVolumeStatus(status *corev1.PodStatus) bool {
	found := false
	eachMount(status, func(m *corev1.VolumeMountStatus) { found = found || m.VolumeStatus != nil })
	return found
}

func eachMount(status *corev1.PodStatus, f func(*corev1.VolumeMountStatus)) {
	visit := func(list []corev1.ContainerStatus) {
		for i := range list {
			for j := range list[i].VolumeMounts {
				f(&list[i].VolumeMounts[j])
			}
		}
	}
	visit(status.InitContainerStatuses)
	visit(status.ContainerStatuses)
	visit(status.EphemeralContainerStatuses)
}
