package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Member is the k-th pod that a StatefulSet gets for its template as it is, and that pod's claims. revision is the template's name.
func Member(set *appsv1.StatefulSet, revision string, k int) (*corev1.Pod, []*corev1.PersistentVolumeClaim) {
	number := firstNumber(set) + k
	var claims []*corev1.PersistentVolumeClaim
	for i := range set.Spec.VolumeClaimTemplates {
		claims = append(claims, newClaim(set, &set.Spec.VolumeClaimTemplates[i], number))
	}
	return newPod(set, &set.Spec.Template, revision, number), claims
}
