package objects

import (
	corev1 "k8s.io/api/core/v1"
)

// Of lists the config maps and secrets that a pod refers to: in volumes, in the environment of its containers, and for pulling images.
func Of(pod *corev1.Pod) []Key {
	r := &refs{namespace: pod.Namespace, seen: map[Key]bool{}}
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i])
	}
	for i := range pod.Spec.InitContainers {
		r.env(pod.Spec.InitContainers[i].EnvFrom, pod.Spec.InitContainers[i].Env)
	}
	for i := range pod.Spec.Containers {
		r.env(pod.Spec.Containers[i].EnvFrom, pod.Spec.Containers[i].Env)
	}
	for i := range pod.Spec.EphemeralContainers {
		r.env(pod.Spec.EphemeralContainers[i].EnvFrom, pod.Spec.EphemeralContainers[i].Env)
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		r.add("secrets", s.Name)
	}
	return r.list
}

type refs struct {
	namespace string
	seen      map[Key]bool
	list      []Key
}

func (r *refs) add(resource, name string) {
	k := Key{resource, r.namespace, name}
	if name != "" && !r.seen[k] {
		r.seen[k] = true
		r.list = append(r.list, k)
	}
}

func (r *refs) volume(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		r.add("configmaps", v.ConfigMap.Name)
	case v.Secret != nil:
		r.add("secrets", v.Secret.SecretName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				r.add("configmaps", s.ConfigMap.Name)
			}
			if s.Secret != nil {
				r.add("secrets", s.Secret.Name)
			}
		}
	}
}

func (r *refs) env(from []corev1.EnvFromSource, env []corev1.EnvVar) {
	for _, e := range from {
		if e.ConfigMapRef != nil {
			r.add("configmaps", e.ConfigMapRef.Name)
		}
		if e.SecretRef != nil {
			r.add("secrets", e.SecretRef.Name)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if c := e.ValueFrom.ConfigMapKeyRef; c != nil {
			r.add("configmaps", c.Name)
		}
		if s := e.ValueFrom.SecretKeyRef; s != nil {
			r.add("secrets", s.Name)
		}
	}
}
