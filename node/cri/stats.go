package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats answers the use of one container.
func (c *Conn) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	return r.GetStats(), err
}

// ListContainerStats answers the use of the running containers.
func (c *Conn) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	return r.GetStats(), err
}

// PodSandboxStats answers the use of one sandbox.
func (c *Conn) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id})
	return r.GetStats(), err
}

// ListPodSandboxStats answers the use of the sandboxes.
func (c *Conn) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	return r.GetStats(), err
}

// ListMetricDescriptors lists the metrics that ListPodSandboxMetrics answers.
func (c *Conn) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	return r.GetDescriptors(), err
}

// ListPodSandboxMetrics answers the metrics of the sandboxes.
func (c *Conn) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	return r.GetPodMetrics(), err
}
