package kubeletapi

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func podList() *corev1.PodList {
	return &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
}

// pods lists what should run here.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	list := podList()
	for _, p := range s.cfg.View.Pods() {
		item := *p
		item.TypeMeta = metav1.TypeMeta{}
		list.Items = append(list.Items, item)
	}
	s.writeJSON(w, list)
}

// runningPods lists what does run here, as the container runtime knows it.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	sandboxes, err := s.cfg.Runtime.ListPodSandbox(r.Context(), &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		s.fail(w, err)
		return
	}
	containers, err := s.cfg.Runtime.ListContainers(r.Context(), &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		s.fail(w, err)
		return
	}
	bySandbox := map[string][]corev1.Container{}
	for _, c := range containers {
		bySandbox[c.PodSandboxId] = append(bySandbox[c.PodSandboxId], corev1.Container{Name: c.GetMetadata().GetName(), Image: c.GetImage().GetImage()})
	}
	list := podList()
	for _, p := range sandboxes {
		m := p.GetMetadata()
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Namespace: m.GetNamespace(), UID: types.UID(m.GetUid())},
			Spec:       corev1.PodSpec{Containers: bySandbox[p.Id]},
		})
	}
	s.writeJSON(w, list)
}
