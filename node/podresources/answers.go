package podresources

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// List implements podresourcesv1.PodResourcesListerServer.
func (s *Server) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	out := &podresourcesv1.ListPodResourcesResponse{}
	for _, pod := range s.active() {
		out.PodResources = append(out.PodResources, s.of(pod))
	}
	return out, nil
}

// Get implements podresourcesv1.PodResourcesListerServer.
func (s *Server) Get(_ context.Context, r *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	pod, ok := s.cfg.Pod(r.GetPodNamespace(), r.GetPodName())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: s.of(pod)}, nil
}

// GetAllocatableResources implements podresourcesv1.PodResourcesListerServer. What claims may get is in ResourceSlices; the API has no place for it.
func (s *Server) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return &podresourcesv1.AllocatableResourcesResponse{}, nil
}

// active lists the pods that are not over.
func (s *Server) active() []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range s.cfg.Pods() {
		if p := pod.Status.Phase; p != corev1.PodSucceeded && p != corev1.PodFailed {
			out = append(out, pod)
		}
	}
	return out
}

func (s *Server) of(pod *corev1.Pod) *podresourcesv1.PodResources {
	out := &podresourcesv1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for _, c := range lasting(pod) {
		out.Containers = append(out.Containers, &podresourcesv1.ContainerResources{Name: c.Name, DynamicResources: s.dynamic(pod, c)})
	}
	return out
}

// lasting lists the containers that run as long as the pod: sidecars, then the others.
func lasting(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for i := range pod.Spec.InitContainers {
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			out = append(out, &pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	return out
}

// dynamic lists the devices of a container's claims; none, as the kubelet has it, while they are not prepared.
func (s *Server) dynamic(pod *corev1.Pod, c *corev1.Container) []*podresourcesv1.DynamicResource {
	uses, err := s.cfg.Uses(pod, c)
	if err != nil {
		return nil
	}
	var out []*podresourcesv1.DynamicResource
	for _, u := range uses {
		r := &podresourcesv1.DynamicResource{ClaimName: u.Claim, ClaimNamespace: u.Namespace}
		for _, d := range u.Devices {
			device := &podresourcesv1.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Name, ShareId: d.Share}
			for _, id := range d.CDI {
				device.CdiDevices = append(device.CdiDevices, &podresourcesv1.CDIDevice{Name: id})
			}
			r.ClaimResources = append(r.ClaimResources, device)
		}
		out = append(out, r)
	}
	return out
}

// first serves the first version, which knows device plugins' devices only.
type first struct {
	v1alpha1.UnsafePodResourcesListerServer
	s *Server
}

// List implements v1alpha1.PodResourcesListerServer.
func (f first) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, pod := range f.s.active() {
		p := &v1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for i := range pod.Spec.Containers {
			p.Containers = append(p.Containers, &v1alpha1.ContainerResources{Name: pod.Spec.Containers[i].Name})
		}
		out.PodResources = append(out.PodResources, p)
	}
	return out, nil
}
