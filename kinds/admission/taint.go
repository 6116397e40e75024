package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/kind"
)

// newNodeTaint keeps pods off a new node until its conditions are known: the node life-cycle loop takes the taint away.
type newNodeTaint struct{}

func (newNodeTaint) Name() string { return "TaintNodesByCondition" }

func (newNodeTaint) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	node, ok := r.Object.(*corev1.Node)
	if !ok || !on(r, "", "nodes", admissionv1.Create) {
		return nil
	}
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}
