package why

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// namespace explains a Namespace: what keeps one that is being deleted.
func namespace(f Facts, n *corev1.Namespace) Report {
	r := Report{Object: "namespace/" + n.Name, Steps: append([]Step{created(n)}, eventSteps(f.Events)...), State: strings.ToLower(string(n.Status.Phase))}
	if n.DeletionTimestamp == nil {
		return r
	}
	deleted(&r, n, f.Now) // its own finalizers; what is in it comes below
	since := n.DeletionTimestamp.Time
	for _, c := range n.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		w := Wait{Loop: "namespace controller", Since: &since, For: brief(c.Message)}
		switch c.Type {
		case corev1.NamespaceContentRemaining:
			w.For = "what is in it to go: " + brief(c.Message)
		case corev1.NamespaceFinalizersRemaining:
			w.Loop, w.For = "the owners of finalizers of what is in it", brief(c.Message)
			w.Changes = []string{"whoever set the finalizers running, so that it takes them off"}
		case corev1.NamespaceDeletionDiscoveryFailure:
			w.For = "every API to say what it serves: " + brief(c.Message)
			w.Changes = []string{"the API server behind the APIService that fails running, or the APIService deleted"}
		case corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceDeletionContentFailure:
			w.For = "another try: " + brief(c.Message)
		default:
			continue
		}
		r.Waits = append(r.Waits, w)
	}
	if len(r.Waits) == 0 {
		r.Waits = []Wait{{Loop: "namespace controller", For: "its turn: it has said nothing yet", Since: &since}}
	}
	return r
}
