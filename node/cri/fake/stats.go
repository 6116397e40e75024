package fake

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *Runtime) stats(c *container) *runtimeapi.ContainerStats {
	now := r.cfg.Clock.Now().UnixNano()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.status.Id, Metadata: c.status.Metadata, Labels: c.status.Labels, Annotations: c.status.Annotations},
		Cpu:        &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{}},
		Memory:     &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{}},
	}
}

// ContainerStats answers zero use.
func (r *Runtime) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound("container", id)
	}
	return r.stats(c), nil
}

// ListContainerStats answers zero use for each running container.
func (r *Runtime) ListContainerStats(_ context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.ContainerStats
	for _, c := range r.sortedContainers(f.GetPodSandboxId()) {
		if c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING && matches(c.status.Labels, f.GetLabelSelector()) {
			out = append(out, r.stats(c))
		}
	}
	return out, nil
}

// PodSandboxStats answers zero use.
func (r *Runtime) PodSandboxStats(_ context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	return &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{Id: id, Metadata: s.status.Metadata, Labels: s.status.Labels}}, nil
}

// ListPodSandboxStats answers zero use for each sandbox.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	list, err := r.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{Id: f.GetId(), LabelSelector: f.GetLabelSelector()})
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandboxStats
	for _, s := range list {
		if st, err := r.PodSandboxStats(ctx, s.Id); err == nil {
			out = append(out, st)
		}
	}
	return out, nil
}

// ListMetricDescriptors answers none.
func (r *Runtime) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, nil
}

// ListPodSandboxMetrics answers none.
func (r *Runtime) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, nil
}
