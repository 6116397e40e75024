package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// replaceEphemeralContainers takes over the debugging containers of an update.
func replaceEphemeralContainers(pod, from *corev1.Pod) {
	keep := usesDisabled(&pod.Spec)
	pod.Spec.EphemeralContainers = from.Spec.EphemeralContainers
	dropDisabled(&pod.Spec, keep)
	DefaultPod(pod)
}

// validateEphemeralContainersUpdate: debugging containers may be added, never changed or taken away.
func validateEphemeralContainersUpdate(pod, old *corev1.Pod) field.ErrorList {
	if isMirror(&old.ObjectMeta) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	var p problems
	p.add(validateWholePod(pod)...)
	path := field.NewPath("spec", "ephemeralContainers")
	now := map[string]*corev1.EphemeralContainer{}
	for i := range pod.Spec.EphemeralContainers {
		now[pod.Spec.EphemeralContainers[i].Name] = &pod.Spec.EphemeralContainers[i]
	}
	for _, was := range old.Spec.EphemeralContainers {
		if c := now[was.Name]; c == nil {
			p.forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name))
		} else if !apiequality.Semantic.DeepEqual(was, *c) {
			p.forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name, diff.Diff(was, *c)))
		}
	}
	return p.list
}

// replaceResources takes over the resources and resize policies of an update. A different list of containers is taken over whole, for
// validation to refuse.
func replaceResources(pod, from *corev1.Pod) {
	keep := usesDisabled(&pod.Spec)
	pod.Spec.Resources = from.Spec.Resources
	pod.Spec.Containers = resizedContainers(pod.Spec.Containers, from.Spec.Containers)
	pod.Spec.InitContainers = resizedContainers(pod.Spec.InitContainers, from.Spec.InitContainers)
	dropDisabled(&pod.Spec, keep)
	DefaultPod(pod)
}

func resizedContainers(was, now []corev1.Container) []corev1.Container {
	if len(was) != len(now) {
		return now
	}
	for i := range was {
		if was[i].Name != now[i].Name {
			return now
		}
	}
	for i := range was {
		was[i].Resources, was[i].ResizePolicy = now[i].Resources, now[i].ResizePolicy
	}
	return was
}

// validatePodResize: CPU and memory of a running pod may change, not vanish, and the pod stays in its class.
func validatePodResize(pod, old *corev1.Pod) field.ErrorList {
	switch {
	case isMirror(&old.ObjectMeta):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	var p problems
	path := field.NewPath("spec")
	p.add(validateWholePod(pod)...)
	before := old.Status.QOSClass
	if before == "" {
		before = QOSClass(&old.Spec)
	}
	if QOSClass(&pod.Spec) != before {
		p.invalid(path, before, "Pod QOS Class may not change as a result of resizing")
	}
	if len(old.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		p.forbidden(path, "pods with node allocatable resource claims cannot be resized")
	}
	rest := pod.Spec.DeepCopy()
	checkPodLevelResize(&p, rest, &old.Spec, path)
	ordered := sameContainers(&p, pod.Spec.Containers, old.Spec.Containers, "containers", path)
	ordered = sameContainers(&p, pod.Spec.InitContainers, old.Spec.InitContainers, "initContainers", path) && ordered
	if !ordered {
		return p.list
	}
	checkContainerResizes(&p, rest.InitContainers, old.Spec.InitContainers, path.Child("initContainers"), true)
	checkContainerResizes(&p, rest.Containers, old.Spec.Containers, path.Child("containers"), false)
	if len(p.list) == 0 && !apiequality.Semantic.DeepEqual(*rest, old.Spec) {
		p.forbidden(path, "only cpu and memory resources are mutable")
	}
	return p.list
}

func sameContainers(p *problems, now, was []corev1.Container, name string, path *field.Path) bool {
	if len(now) != len(was) {
		p.forbidden(path.Child(name), name+" may not be added or removed on resize")
		return false
	}
	same := true
	for i := range was {
		if now[i].Name != was[i].Name {
			p.forbidden(path.Child(name).Index(i).Child("name"), name+" may not be renamed or reordered on resize")
			same = false
		}
	}
	return same
}

// checkContainerResizes checks each container's change and puts the old CPU and memory back into rest.
func checkContainerResizes(p *problems, rest, was []corev1.Container, path *field.Path, init bool) {
	for i := range was {
		c, at := &rest[i], path.Index(i)
		if removed(c.Resources.Requests, was[i].Resources.Requests) {
			p.forbidden(at.Child("resources", "requests"), "resource requests cannot be removed")
		}
		if removed(c.Resources.Limits, was[i].Resources.Limits) {
			p.forbidden(at.Child("resources", "limits"), "resource limits cannot be removed")
		}
		c.Resources.Requests = withOldCompute(c.Resources.Requests, was[i].Resources.Requests)
		c.Resources.Limits = withOldCompute(c.Resources.Limits, was[i].Resources.Limits)
		if apiequality.Semantic.DeepEqual(*c, was[i]) {
			continue
		}
		if init {
			p.forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable")
		} else {
			p.forbidden(field.NewPath("spec"), "only cpu and memory resources are mutable")
		}
	}
}

func checkPodLevelResize(p *problems, rest, was *corev1.PodSpec, path *field.Path) {
	if was.Resources != nil && rest.Resources == nil {
		p.forbidden(path.Child("resources"), "pod-level resources cannot be removed")
		return
	}
	if rest.Resources == nil {
		return
	}
	old := corev1.ResourceRequirements{}
	if was.Resources != nil {
		old = *was.Resources
	}
	if removed(rest.Resources.Requests, old.Requests) {
		p.forbidden(path.Child("resources", "requests"), "pod-level resource requests cannot be removed")
	}
	if removed(rest.Resources.Limits, old.Limits) {
		p.forbidden(path.Child("resources", "limits"), "pod-level resource limits cannot be removed")
	}
	rest.Resources.Requests = withOldCompute(rest.Resources.Requests, old.Requests)
	rest.Resources.Limits = withOldCompute(rest.Resources.Limits, old.Limits)
	if !apiequality.Semantic.DeepEqual(*rest.Resources, old) {
		p.forbidden(path, "only cpu and memory resources are mutable at pod-level")
	}
	if was.Resources == nil && len(rest.Resources.Requests)+len(rest.Resources.Limits)+len(rest.Resources.Claims) == 0 {
		rest.Resources = nil
	}
}

func removed(now, was corev1.ResourceList) bool {
	for name := range was {
		if _, there := now[name]; !there {
			return true
		}
	}
	return false
}

// withOldCompute is now with the CPU and memory of was.
func withOldCompute(now, was corev1.ResourceList) corev1.ResourceList {
	if now == nil && was == nil {
		return nil
	}
	out := corev1.ResourceList{}
	for name, amount := range now {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			out[name] = amount
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if amount, there := was[name]; there {
			out[name] = amount
		}
	}
	return out
}
