package admission

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// defaultTolerations lets a pod stay for a while on a node that is not ready or not reachable, unless the pod says otherwise.
type defaultTolerations struct{ notReady, unreachable int64 }

// tolerateSeconds is how long, where the configuration does not say: five minutes, as Kubernetes.
const tolerateSeconds = 300

func newDefaultTolerations(cfg Config) defaultTolerations {
	return defaultTolerations{ptr.Deref(cfg.NotReadySeconds, tolerateSeconds), ptr.Deref(cfg.UnreachableSeconds, tolerateSeconds)}
}

func (defaultTolerations) Name() string { return "DefaultTolerationSeconds" }

func (d defaultTolerations) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !on(r, "", "pods", admissionv1.Create, admissionv1.Update) {
		return nil
	}
	d.add(pod, corev1.TaintNodeNotReady, d.notReady)
	d.add(pod, corev1.TaintNodeUnreachable, d.unreachable)
	return nil
}

func (defaultTolerations) add(pod *corev1.Pod, key string, seconds int64) {
	if !toleratesEviction(pod.Spec.Tolerations, key) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		})
	}
}

// toleratesEviction tells whether the pod has its own say about a taint's NoExecute effect.
func toleratesEviction(tolerations []corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
