package admission

import (
	"context"
	"encoding/json"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/core"
)

// tolerationRestriction adds a namespace's own tolerations to its pods and refuses pods that tolerate more than the namespace may. What annotations of
// the namespace do not say, the configuration does.
type tolerationRestriction struct{ tolerationFile }

// tolerationFile is the plugin's configuration.
type tolerationFile struct {
	metav1.TypeMeta `json:",inline"`
	Default         []corev1.Toleration `json:"default,omitempty"`
	Whitelist       []corev1.Toleration `json:"whitelist,omitempty"`
}

const (
	defaultTolerationsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

func (tolerationRestriction) Name() string { return "PodTolerationRestriction" }

func (p tolerationRestriction) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create, admissionv1.Update)
	if !ok {
		return nil
	}
	var more []corev1.Toleration
	if r.Operation == admissionv1.Create {
		ns, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
		if err != nil {
			return err
		}
		own, set, err := tolerationsIn(r, ns, defaultTolerationsAnnotation)
		if err != nil {
			return err
		}
		if more = slices.Clone(own); !set {
			more = slices.Clone(p.Default)
		}
	}
	if core.QOSClass(&pod.Spec) != corev1.PodQOSBestEffort {
		more = append(more, corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	if len(more) > 0 {
		pod.Spec.Tolerations = mergeTolerations(append(slices.Clone(pod.Spec.Tolerations), more...))
	}
	return nil
}

func (p tolerationRestriction) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := podOf(r, admissionv1.Create, admissionv1.Update)
	if !ok || len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	ns, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
	if err != nil {
		return err
	}
	allowed, set, err := tolerationsIn(r, ns, allowedTolerationsAnnotation)
	if err != nil {
		return err
	}
	whose := "namespace"
	if !set {
		allowed, whose = p.Whitelist, "cluster"
	}
	if len(allowed) == 0 {
		return nil
	}
	for _, t := range pod.Spec.Tolerations {
		if !slices.ContainsFunc(allowed, func(a corev1.Toleration) bool { return includes(a, t) }) {
			return forbid(r, "pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", whose)
		}
	}
	return nil
}

// tolerationsIn reads an annotation of a namespace. An empty one counts as set: no tolerations.
func tolerationsIn(r *kind.AdmissionRequest, ns *corev1.Namespace, key string) (list []corev1.Toleration, set bool, err error) {
	text, set := ns.Annotations[key]
	if !set || text == "" {
		return nil, set, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, true, forbid(r, "the annotation %s of namespace %s cannot be read: %v", key, ns.Name, err)
	}
	return list, true, nil
}

// mergeTolerations leaves out what another one includes.
func mergeTolerations(all []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for i, t := range all {
		before := slices.ContainsFunc(out, func(o corev1.Toleration) bool { return includes(o, t) })
		after := slices.ContainsFunc(all[i+1:], func(o corev1.Toleration) bool { return !equality.Semantic.DeepEqual(o, t) && includes(o, t) })
		if !before && !after {
			out = append(out, t)
		}
	}
	return out
}

// includes tells whether a tolerates all that t does.
func includes(a, t corev1.Toleration) bool {
	switch {
	case equality.Semantic.DeepEqual(a, t):
		return true
	case a.Key != t.Key && (a.Key != "" || a.Operator != corev1.TolerationOpExists):
		return false
	case a.Effect != t.Effect && a.Effect != "":
		return false
	case a.Effect == corev1.TaintEffectNoExecute && a.TolerationSeconds != nil && (t.TolerationSeconds == nil || *t.TolerationSeconds > *a.TolerationSeconds):
		return false
	case a.Operator == corev1.TolerationOpExists:
		return true
	case a.Operator == corev1.TolerationOpEqual || a.Operator == "":
		return (t.Operator == corev1.TolerationOpEqual || t.Operator == "") && a.Value == t.Value
	}
	return false
}
