package core

import (
	"hash/maphash"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/internal/alike"
	"github.com/yare-project/yare/internal/plain"
)

var (
	templateSeed = maphash.MakeSeed()
	podSpecs     = alike.New[corev1.PodSpec]("NodeName")
)

// podTemplateKey tells apart what runs in a pod and for whom, not what it says in detail.
func podTemplateKey(pod *corev1.Pod) uint64 {
	var h maphash.Hash
	h.SetSeed(templateSeed)
	part := func(s string) { _, _ = h.WriteString(s); _ = h.WriteByte(0) }
	part(pod.Namespace)
	part(pod.GenerateName)
	for i := range pod.OwnerReferences {
		part(string(pod.OwnerReferences[i].UID))
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			part(containers[i].Name)
			part(containers[i].Image)
		}
	}
	return h.Sum64()
}

// sharePod: validation and warnings look at the spec, at annotations, at whether there is a node, and at whether the name could be a host's.
func sharePod(pod, like *corev1.Pod) bool {
	alike.Strings(&pod.Labels, like.Labels)
	annotations := alike.Strings(&pod.Annotations, like.Annotations)
	spec := podSpecs.Share(&pod.Spec, &like.Spec)
	node := pod.Spec.NodeName
	return annotations && spec && (node == "") == (like.Spec.NodeName == "") && (node == "" || plain.Subdomain(node)) && plain.Label(pod.Name)
}
