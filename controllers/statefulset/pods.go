package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/controllers/owned"
)

// split reads a pod's name as its set's name and its number.
func split(name string) (set string, number int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	return name[:i], n, err == nil && n >= 0 && strconv.Itoa(n) == name[i+1:]
}

func firstNumber(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func replicasOf(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// newPod is the pod of a number in the state of a revision.
func newPod(set *appsv1.StatefulSet, template *corev1.PodTemplateSpec, revision string, number int) *corev1.Pod {
	p := owned.NewPod(template, set.Namespace, set.Name, owned.Owner(set, kind))
	p.GenerateName, p.Name = "", fmt.Sprintf("%s-%d", set.Name, number)
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, set.Spec.ServiceName
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.StatefulSetRevisionLabel] = revision
	identify(set, p, number)
	return p
}

// identify gives a pod what its number means: labels and claims. Its revision, once made, is not touched.
func identify(set *appsv1.StatefulSet, p *corev1.Pod, number int) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.StatefulSetPodNameLabel], p.Labels[appsv1.PodIndexLabel] = p.Name, strconv.Itoa(number)
	var volumes []corev1.Volume
	for _, t := range set.Spec.VolumeClaimTemplates {
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, t.Name, number)}}})
	}
	for _, v := range p.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(c corev1.Volume) bool { return c.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	p.Spec.Volumes = volumes
}

// identified tells whether a pod has the labels of its number.
func identified(p *corev1.Pod, number int) bool {
	return p.Labels[appsv1.StatefulSetPodNameLabel] == p.Name && p.Labels[appsv1.PodIndexLabel] == strconv.Itoa(number)
}

func claimName(set *appsv1.StatefulSet, template string, number int) string {
	return fmt.Sprintf("%s-%s-%d", template, set.Name, number)
}

// newClaim is the claim of a number by a template.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, number int) *corev1.PersistentVolumeClaim {
	c := template.DeepCopy()
	c.Name, c.Namespace = claimName(set, template.Name, number), set.Namespace
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	if set.Spec.Selector != nil {
		maps.Copy(c.Labels, set.Spec.Selector.MatchLabels)
	}
	c.Status = corev1.PersistentVolumeClaimStatus{}
	return c
}

// withOwners gives a claim the owners that the retention policy asks for: the set, so that the claim goes with it; and the pod, while it is being scaled
// away, so that the claim goes with that. pod is nil for a pod that stays. The claim itself is returned if nothing changes.
func withOwners(set *appsv1.StatefulSet, c *corev1.PersistentVolumeClaim, p *corev1.Pod) *corev1.PersistentVolumeClaim {
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	whenDeleted, whenScaled := false, false
	if policy != nil {
		whenDeleted = policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		whenScaled = policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	var refs []metav1.OwnerReference
	for _, ref := range c.OwnerReferences {
		ours := ref.UID == set.UID || ref.Kind == "Pod" && ref.APIVersion == "v1"
		if !ours {
			refs = append(refs, ref)
		}
	}
	switch {
	case p != nil && whenScaled:
		refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID})
	case whenDeleted:
		refs = append(refs, metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: set.Name, UID: set.UID})
	}
	if equality.Semantic.DeepEqual(refs, withoutFlags(c.OwnerReferences)) {
		return c
	}
	c = c.DeepCopy()
	c.OwnerReferences = refs
	return c
}

// withoutFlags ignores who controls a claim or blocks on it: this loop sets neither.
func withoutFlags(refs []metav1.OwnerReference) []metav1.OwnerReference {
	out := slices.Clone(refs)
	for i := range out {
		if out[i].Kind == kind.Kind || out[i].Kind == "Pod" {
			out[i].Controller, out[i].BlockOwnerDeletion = nil, nil
		}
	}
	return out
}
