package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Member is the pod that a DaemonSet gets on a node for its template as it is; nil if it gets none there. revision is the template's name.
func Member(ds *appsv1.DaemonSet, node *corev1.Node, revision string) *corev1.Pod {
	if run, _ := belongs(modelOf(ds), node); !run {
		return nil
	}
	return newPod(ds, node.Name, revision)
}
