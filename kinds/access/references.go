package access

import (
	corev1 "k8s.io/api/core/v1"
)

// References are the objects of its own namespace that a pod needs.
type References struct {
	Secrets, ConfigMaps, Claims, ResourceClaims map[string]bool
}

// PodReferences collects what a pod refers to in its spec (and, for resource claims, in its status).
func PodReferences(pod *corev1.Pod) References {
	r := References{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, s := range pod.Spec.ImagePullSecrets {
		r.secret(s.Name)
	}
	r.containers(&pod.Spec)
	for i := range pod.Spec.Volumes {
		r.volume(pod, &pod.Spec.Volumes[i])
	}
	r.resourceClaims(pod)
	return r
}

func (r References) secret(name string)    { add(r.Secrets, name) }
func (r References) configMap(name string) { add(r.ConfigMaps, name) }

func add(set map[string]bool, name string) {
	if name != "" {
		set[name] = true
	}
}

func (r References) containers(spec *corev1.PodSpec) {
	for i := range spec.InitContainers {
		r.environment(spec.InitContainers[i].Env, spec.InitContainers[i].EnvFrom)
	}
	for i := range spec.Containers {
		r.environment(spec.Containers[i].Env, spec.Containers[i].EnvFrom)
	}
	for i := range spec.EphemeralContainers {
		r.environment(spec.EphemeralContainers[i].Env, spec.EphemeralContainers[i].EnvFrom)
	}
}

func (r References) environment(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if s := e.ValueFrom.SecretKeyRef; s != nil {
			r.secret(s.Name)
		}
		if c := e.ValueFrom.ConfigMapKeyRef; c != nil {
			r.configMap(c.Name)
		}
	}
	for _, f := range from {
		if f.SecretRef != nil {
			r.secret(f.SecretRef.Name)
		}
		if f.ConfigMapRef != nil {
			r.configMap(f.ConfigMapRef.Name)
		}
	}
}

func (r References) volume(pod *corev1.Pod, v *corev1.Volume) {
	local := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			r.secret(ref.Name)
		}
	}
	switch {
	case v.Secret != nil:
		r.secret(v.Secret.SecretName)
	case v.ConfigMap != nil:
		r.configMap(v.ConfigMap.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				r.secret(s.Secret.Name)
			}
			if s.ConfigMap != nil {
				r.configMap(s.ConfigMap.Name)
			}
		}
	case v.PersistentVolumeClaim != nil:
		add(r.Claims, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		add(r.Claims, pod.Name+"-"+v.Name)
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		r.secret(v.AzureFile.SecretName)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	}
}

// resourceClaims are named in the spec, or made from a template and named in the status.
func (r References) resourceClaims(pod *corev1.Pod) {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			add(r.ResourceClaims, *c.ResourceClaimName)
		}
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			add(r.ResourceClaims, *s.ResourceClaimName)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		add(r.ResourceClaims, s.ResourceClaimName)
	}
}

// VolumeSecrets are the secrets that a node needs to mount a persistent volume. claim is the namespace of the claim that it is bound to,
// where secrets without a namespace of their own are.
func VolumeSecrets(v *corev1.PersistentVolume, claim string) []corev1.SecretReference {
	var out []corev1.SecretReference
	use := func(refs ...*corev1.SecretReference) {
		for _, ref := range refs {
			if ref == nil || ref.Name == "" {
				continue
			}
			c := *ref
			if c.Namespace == "" {
				c.Namespace = claim
			}
			out = append(out, c)
		}
	}
	s := &v.Spec.PersistentVolumeSource
	switch {
	case s.CSI != nil:
		use(s.CSI.NodePublishSecretRef, s.CSI.NodeStageSecretRef, s.CSI.NodeExpandSecretRef)
	case s.AzureFile != nil:
		ref := &corev1.SecretReference{Name: s.AzureFile.SecretName}
		if s.AzureFile.SecretNamespace != nil {
			ref.Namespace = *s.AzureFile.SecretNamespace
		}
		use(ref)
	case s.CephFS != nil:
		use(s.CephFS.SecretRef)
	case s.Cinder != nil:
		use(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		use(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		use(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		use(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		use(s.ISCSI.SecretRef)
	case s.StorageOS != nil && s.StorageOS.SecretRef != nil:
		use(&corev1.SecretReference{Namespace: s.StorageOS.SecretRef.Namespace, Name: s.StorageOS.SecretRef.Name})
	}
	return out
}
