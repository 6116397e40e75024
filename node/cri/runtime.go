package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/exec"
)

// Version answers the runtime's name and versions.
func (c *Conn) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: apiVersion})
}

// RunPodSandbox makes and starts a sandbox and returns its id.
func (c *Conn) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	ctx, cancel := bounded(ctx, sandboxTimeout)
	defer cancel()
	r, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", err
	}
	if r.PodSandboxId == "" {
		return "", fmt.Errorf("the runtime made a sandbox for %s/%s without an id", config.Metadata.GetNamespace(), config.Metadata.GetName())
	}
	return r.PodSandboxId, nil
}

// StopPodSandbox kills what runs in the sandbox and gives its network back.
func (c *Conn) StopPodSandbox(ctx context.Context, id string) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox removes a sandbox and everything in it.
func (c *Conn) RemovePodSandbox(ctx context.Context, id string) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// PodSandboxStatus answers the state and addresses of a sandbox.
func (c *Conn) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
}

// ListPodSandbox lists sandboxes.
func (c *Conn) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	return r.GetItems(), err
}

// PortForward prepares a streaming address.
func (c *Conn) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.PortForward(ctx, req)
}

// UpdatePodSandboxResources tells the runtime of the pod's new resources.
func (c *Conn) UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.UpdatePodSandboxResources(ctx, req)
}

// CreateContainer makes a container in a sandbox and returns its id.
func (c *Conn) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	ctx, cancel := bounded(ctx, sandboxTimeout)
	defer cancel()
	r, err := c.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: config, SandboxConfig: sandboxConfig})
	if err != nil {
		return "", err
	}
	if r.ContainerId == "" {
		return "", fmt.Errorf("the runtime made container %s without an id", config.Metadata.GetName())
	}
	return r.ContainerId, nil
}

// StartContainer starts a made container.
func (c *Conn) StartContainer(ctx context.Context, id string) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends the stop signal, and kills after timeout seconds.
func (c *Conn) StopContainer(ctx context.Context, id string, timeout int64) error {
	ctx, cancel := bounded(ctx, callTimeout+time.Duration(timeout)*time.Second)
	defer cancel()
	_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout})
	return err
}

// RemoveContainer removes a container.
func (c *Conn) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// ListContainers lists containers.
func (c *Conn) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	return r.GetContainers(), err
}

// ContainerStatus answers the state of a container.
func (c *Conn) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
}

// UpdateContainerResources changes the limits of a running container.
func (c *Conn) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: r.GetLinux(), Windows: r.GetWindows()})
	return err
}

// ExecSync runs a command to its end. A command that ends with another code than zero gives an exec.CodeExitError.
// A zero timeout means no limit but ctx's.
func (c *Conn) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		// The runtime enforces the timeout on the command; it answers once nobody holds the output open any more, which a child that the
		// command left behind may do for a while.
		ctx, cancel = bounded(ctx, timeout+callTimeout)
		defer cancel()
	}
	seconds := int64((timeout + time.Second - 1) / time.Second)
	r, err := c.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds})
	if err != nil {
		return nil, nil, err
	}
	if r.ExitCode != 0 {
		err = exec.CodeExitError{Err: fmt.Errorf("command %q ended with exit code %d", cmd, r.ExitCode), Code: int(r.ExitCode)}
	}
	return r.Stdout, r.Stderr, err
}

// Exec prepares a streaming address.
func (c *Conn) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.Exec(ctx, req)
}

// Attach prepares a streaming address.
func (c *Conn) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.Attach(ctx, req)
}

// ReopenContainerLog makes the runtime open the log file anew after a rotation.
func (c *Conn) ReopenContainerLog(ctx context.Context, id string) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// CheckpointContainer writes a checkpoint; it lasts as long as ctx allows.
func (c *Conn) CheckpointContainer(ctx context.Context, req *runtimeapi.CheckpointContainerRequest) error {
	_, err := c.runtime.CheckpointContainer(ctx, req)
	return err
}

// GetContainerEvents sends the runtime's events to events until the stream or ctx ends; the error says why it ended.
// established, if not nil, is called once events flow.
func (c *Conn) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	if established != nil {
		established(stream)
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case events <- event:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// UpdateRuntimeConfig tells the runtime of the pod network.
func (c *Conn) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: config})
	return err
}

// Status answers the runtime's conditions.
func (c *Conn) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: verbose})
}

// RuntimeConfig answers the runtime's cgroup driver.
func (c *Conn) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
}
