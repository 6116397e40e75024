package fake

import (
	"context"
	"fmt"
	"sort"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	seq    int
	config *runtimeapi.PodSandboxConfig
	status *runtimeapi.PodSandboxStatus
}

func (s *sandbox) snapshot() *runtimeapi.PodSandboxStatus {
	return proto.Clone(s.status).(*runtimeapi.PodSandboxStatus)
}

// RunPodSandbox makes a ready sandbox with an address, unless it uses the host's network.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := r.fail("RunPodSandbox"); err != nil {
		return "", err
	}
	m := config.GetMetadata()
	for _, s := range r.sandboxes {
		if s.config.Metadata.Uid == m.GetUid() && s.config.Metadata.Attempt == m.GetAttempt() {
			return "", fmt.Errorf("failed to reserve sandbox name %s_%s_%s_%d: name is reserved", m.Name, m.Namespace, m.Uid, m.Attempt)
		}
	}
	id, seq := r.id("5a")
	st := &runtimeapi.PodSandboxStatus{Id: id, Metadata: m, CreatedAt: r.cfg.Clock.Now().UnixNano(), RuntimeHandler: handler,
		Labels: config.Labels, Annotations: config.Annotations, Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()}}}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		r.addr = r.addr.Next()
		st.Network.Ip = r.addr.String()
	}
	s := &sandbox{seq: seq, config: config, status: st}
	r.sandboxes[id] = s
	r.calls = append(r.calls, "RunPodSandbox "+m.GetName())
	r.publish(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.publish(s, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return id, nil
}

// StopPodSandbox kills the containers of a sandbox and makes it not ready. A sandbox that is gone is no error.
func (r *Runtime) StopPodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("StopPodSandbox"); err != nil {
		return err
	}
	if s := r.sandboxes[id]; s != nil {
		r.calls = append(r.calls, "StopPodSandbox "+s.config.Metadata.Name)
		r.stopSandbox(s)
	}
	return nil
}

// KillSandbox makes the pod's newest sandbox die, as when its pause process is killed.
func (r *Runtime) KillSandbox(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest *sandbox
	for _, s := range r.sandboxes {
		if s.config.Metadata.Name == pod && (newest == nil || s.seq > newest.seq) {
			newest = s
		}
	}
	if newest != nil {
		r.stopSandbox(newest)
	}
}

func (r *Runtime) stopSandbox(s *sandbox) {
	for _, c := range r.sortedContainers(s.status.Id) {
		r.finish(c, 137, "")
	}
	if s.status.State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		return
	}
	s.status.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	r.publish(s, s.status.Id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// RemovePodSandbox removes a sandbox and its containers. A sandbox that is gone is no error.
func (r *Runtime) RemovePodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("RemovePodSandbox"); err != nil {
		return err
	}
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	r.stopSandbox(s)
	for _, c := range r.sortedContainers(id) {
		r.remove(c)
	}
	delete(r.sandboxes, id)
	r.calls = append(r.calls, "RemovePodSandbox "+s.config.Metadata.Name)
	r.publish(s, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// PodSandboxStatus answers one sandbox and its containers.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: s.snapshot(), Timestamp: r.cfg.Clock.Now().UnixNano()}
	for _, c := range r.sortedContainers(id) {
		resp.ContainersStatuses = append(resp.ContainersStatuses, c.snapshot())
	}
	return resp, nil
}

// ListPodSandbox lists sandboxes, oldest first.
func (r *Runtime) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("ListPodSandbox"); err != nil {
		return nil, err
	}
	var list []*sandbox
	for _, s := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != s.status.Id || f.GetState() != nil && f.GetState().State != s.status.State || !matches(s.status.Labels, f.GetLabelSelector()) {
			continue
		}
		list = append(list, s)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].seq < list[j].seq })
	out := make([]*runtimeapi.PodSandbox, len(list))
	for i, s := range list {
		out[i] = &runtimeapi.PodSandbox{Id: s.status.Id, Metadata: s.status.Metadata, State: s.status.State, CreatedAt: s.status.CreatedAt,
			Labels: s.status.Labels, Annotations: s.status.Annotations, RuntimeHandler: s.status.RuntimeHandler}
	}
	return out, nil
}

// UpdatePodSandboxResources accepts anything for a sandbox that exists.
func (r *Runtime) UpdatePodSandboxResources(_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandboxes[req.PodSandboxId] == nil {
		return nil, notFound("sandbox", req.PodSandboxId)
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
