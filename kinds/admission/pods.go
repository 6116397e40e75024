package admission

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podresource "k8s.io/component-helpers/resource"

	"github.com/yare-project/yare/kind"
)

// podOf is the pod of a request that creates one or changes its main part.
func podOf(r *kind.AdmissionRequest, operations ...admissionv1.Operation) (*corev1.Pod, bool) {
	pod, ok := r.Object.(*corev1.Pod)
	return pod, ok && on(r, "", "pods", operations...)
}

// alwaysPull makes nodes check a pod's right to its images each time: one that is on the node already might be somebody else's.
type alwaysPull struct{}

func (alwaysPull) Name() string { return "AlwaysPullImages" }

func (alwaysPull) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create, admissionv1.Update)
	if !ok || onlyOldImages(r, pod) {
		return nil
	}
	eachContainer(&pod.Spec, func(_ *field.Path, _ string, policy *corev1.PullPolicy) { *policy = corev1.PullAlways })
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
	return nil
}

func (alwaysPull) Validate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create, admissionv1.Update)
	if !ok || onlyOldImages(r, pod) {
		return nil
	}
	var faults []error
	check := func(at *field.Path, policy corev1.PullPolicy) {
		if policy != corev1.PullAlways {
			faults = append(faults, field.NotSupported(at, policy, []corev1.PullPolicy{corev1.PullAlways}))
		}
	}
	eachContainer(&pod.Spec, func(at *field.Path, _ string, policy *corev1.PullPolicy) { check(at.Child("imagePullPolicy"), *policy) })
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			check(field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy"), image.PullPolicy)
		}
	}
	if len(faults) > 0 {
		return forbid(r, "%w", utilerrors.NewAggregate(faults))
	}
	return nil
}

// eachContainer visits the containers of a pod, those that start first and those that are added later too.
func eachContainer(spec *corev1.PodSpec, visit func(at *field.Path, image string, policy *corev1.PullPolicy)) {
	at := field.NewPath("spec")
	for i := range spec.InitContainers {
		visit(at.Child("initContainers").Index(i), spec.InitContainers[i].Image, &spec.InitContainers[i].ImagePullPolicy)
	}
	for i := range spec.Containers {
		visit(at.Child("containers").Index(i), spec.Containers[i].Image, &spec.Containers[i].ImagePullPolicy)
	}
	for i := range spec.EphemeralContainers {
		visit(at.Child("ephemeralContainers").Index(i), spec.EphemeralContainers[i].Image, &spec.EphemeralContainers[i].ImagePullPolicy)
	}
}

// onlyOldImages tells an update that names no image that the pod did not have.
func onlyOldImages(r *kind.AdmissionRequest, pod *corev1.Pod) bool {
	old, ok := r.Old.(*corev1.Pod)
	if !ok || r.Operation != admissionv1.Update {
		return false
	}
	had, only := sets.New[string](), true
	eachContainer(&old.Spec, func(_ *field.Path, image string, _ *corev1.PullPolicy) { had.Insert(image) })
	eachContainer(&pod.Spec, func(_ *field.Path, image string, _ *corev1.PullPolicy) { only = only && had.Has(image) })
	return only
}

// hardAntiAffinity lets pods keep others away from their node only: one that keeps them away from a zone could claim all of it.
type hardAntiAffinity struct{}

func (hardAntiAffinity) Name() string { return "LimitPodHardAntiAffinityTopology" }

func (hardAntiAffinity) Validate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create, admissionv1.Update)
	if !ok || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return forbid(r, "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname)
		}
	}
	return nil
}

// extendedTolerations lets a pod that asks for an extended resource (a GPU, say) onto the nodes that are kept free for such pods by a taint of the
// resource's name.
type extendedTolerations struct{}

func (extendedTolerations) Name() string { return "ExtendedResourceToleration" }

func (extendedTolerations) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create, admissionv1.Update)
	if !ok {
		return nil
	}
	wanted := sets.New[string]()
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if extendedResource(name) {
					wanted.Insert(string(name))
				}
			}
		}
	}
	for _, name := range sets.List(wanted) {
		tolerate(pod, corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return nil
}

// extendedResource tells names that are neither Kubernetes' own nor of the quota of another.
func extendedResource(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// tolerate adds a toleration, or replaces the one that is about the same taint.
func tolerate(pod *corev1.Pod, t corev1.Toleration) {
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].MatchToleration(&t) {
			pod.Spec.Tolerations[i] = t
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
}

// podResize refuses a resize that the pod's node cannot give, at once and not after a while.
type podResize struct{}

func (podResize) Name() string { return "PodResizeValidator" }

func (podResize) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !onSub(r, "", "pods", "resize", admissionv1.Update) || pod.Spec.NodeName == "" || r.Old == nil || r.Old.GetGeneration() == pod.Generation {
		return nil
	}
	node, err := nodeFor(ctx, env, r, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	if os, known := node.Labels[corev1.LabelOSStable]; known && os != "linux" {
		return because(forbid(r, "pod resize is only supported on linux nodes, node %q is %q", node.Name, os), "UnsupportedPlatform")
	}
	if text := beyond(pod, node.Status.Allocatable); text != "" {
		return because(forbid(r, "node didn't have enough allocatable resources: %s", text), "NodeCapacity")
	}
	return nil
}

func nodeFor(ctx context.Context, env kind.Env, r *kind.AdmissionRequest, name string) (*corev1.Node, error) {
	node, err := get[*corev1.Node](ctx, env, "", "nodes", "", name)
	if err != nil {
		return nil, forbid(r, "node %q not found", name)
	}
	return node, nil
}

// beyond says which of a pod's requests a node could never give.
func beyond(pod *corev1.Pod, allocatable corev1.ResourceList) string {
	requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	var out []string
	if want, have := requests.Cpu(), allocatable.Cpu(); want.Cmp(*have) > 0 {
		out = append(out, fmt.Sprintf("cpu, requested: %d, allocatable: %d", want.MilliValue(), have.MilliValue()))
	}
	if want, have := requests.Memory(), allocatable.Memory(); want.Cmp(*have) > 0 {
		out = append(out, fmt.Sprintf("memory, requested: %d, allocatable: %d", want.Value(), have.Value()))
	}
	return strings.Join(out, "; ")
}
