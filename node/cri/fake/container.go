package fake

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/exec"
)

type container struct {
	seq     int
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	status  *runtimeapi.ContainerStatus
	stop    chan struct{} // closed by the stop signal
	stopped bool
	kill    context.CancelFunc
	done    chan struct{} // closed when it has exited
	log     *logFile
}

func (c *container) snapshot() *runtimeapi.ContainerStatus {
	return proto.Clone(c.status).(*runtimeapi.ContainerStatus)
}

// CreateContainer makes a container in a ready sandbox.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := r.fail("CreateContainer"); err != nil {
		return "", err
	}
	s := r.sandboxes[sandboxID]
	if s == nil {
		return "", notFound("sandbox", sandboxID)
	}
	if s.status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		return "", fmt.Errorf("sandbox %q is not ready", sandboxID)
	}
	for _, c := range r.containers {
		if c.sandbox == s && c.config.Metadata.Name == config.Metadata.Name && c.config.Metadata.Attempt == config.Metadata.Attempt {
			return "", fmt.Errorf("failed to reserve container name %s_%d: name is reserved", config.Metadata.Name, config.Metadata.Attempt)
		}
	}
	for _, m := range config.Mounts {
		if m.HostPath == "" {
			continue
		}
		if _, err := os.Stat(m.HostPath); err != nil {
			return "", fmt.Errorf("failed to mount %s at %s: %w", m.HostPath, m.ContainerPath, err)
		}
	}
	image := config.Image.GetUserSpecifiedImage()
	if image == "" {
		image = config.Image.GetImage()
	}
	id, seq := r.id("c0")
	c := &container{seq: seq, sandbox: s, config: config, stop: make(chan struct{}), done: make(chan struct{}), kill: func() {},
		status: &runtimeapi.ContainerStatus{Id: id, Metadata: config.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED,
			CreatedAt: r.cfg.Clock.Now().UnixNano(), Image: &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: image},
			ImageRef: config.Image.GetImage(), ImageId: config.Image.GetImage(), Labels: config.Labels, Annotations: config.Annotations,
			Mounts: config.Mounts, StopSignal: config.StopSignal, LogPath: filepath.Join(s.config.LogDirectory, config.LogPath),
			Resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()}}}
	r.containers[id] = c
	r.calls = append(r.calls, "CreateContainer "+config.Metadata.Name)
	r.publish(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return id, nil
}

// StartContainer runs the container's program.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	if c.status.State != runtimeapi.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("container %q is in state %v, want created", id, c.status.State)
	}
	if err := r.fail("StartContainer"); err != nil {
		// As containerd does: a container that can't be started has exited with code 128.
		c.status.StartedAt = 0
		r.finishAs(c, 128, "StartError", err.Error())
		return err
	}
	log, err := openLog(c.status.LogPath, r.cfg.Clock)
	if err != nil {
		return err
	}
	c.log = log
	c.status.State, c.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, r.cfg.Clock.Now().UnixNano()
	ctx, cancel := context.WithCancel(context.Background())
	c.kill = cancel
	r.calls = append(r.calls, "StartContainer "+c.config.Metadata.Name)
	r.publish(c.sandbox, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	program := r.programs[c.status.Image.Image]
	if program == nil {
		program = Shell
	}
	process := newProcess(c, r.cfg.Clock)
	go func() {
		code := program(ctx, process)
		if ctx.Err() != nil && code == 0 {
			code = 137
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finish(c, int32(code), "")
	}()
	return nil
}

// StopContainer closes the process's Stop channel, waits up to timeout seconds of the clock for it to end, and then kills it.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	r.mu.Lock()
	if err := r.fail("StopContainer"); err != nil {
		r.mu.Unlock()
		return err
	}
	c := r.containers[id]
	if c == nil || c.status.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		r.mu.Unlock()
		return nil
	}
	r.calls = append(r.calls, "StopContainer "+c.config.Metadata.Name)
	if c.status.State == runtimeapi.ContainerState_CONTAINER_CREATED {
		r.finish(c, 137, "")
		r.mu.Unlock()
		return nil
	}
	if timeout > 0 && !c.stopped {
		c.stopped = true
		close(c.stop)
	}
	r.mu.Unlock()
	if timeout > 0 {
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-r.cfg.Clock.After(time.Duration(timeout) * time.Second):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish(c, 137, "")
	return nil
}

// Exit makes a running container end with code, as if its process had. It answers whether there was one to end.
func (r *Runtime) Exit(id string, code int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil || c.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return false
	}
	r.finish(c, int32(code), "")
	return true
}

// OOMKill makes a running container end as when the kernel kills it for its memory.
func (r *Runtime) OOMKill(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil && c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.finishAs(c, 137, "OOMKilled", "")
	}
}

func (r *Runtime) finish(c *container, code int32, message string) {
	reason := "Error"
	if code == 0 {
		reason = "Completed"
	}
	r.finishAs(c, code, reason, message)
}

func (r *Runtime) finishAs(c *container, code int32, reason, message string) {
	if c.status.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	c.status.State, c.status.ExitCode, c.status.Reason, c.status.Message = runtimeapi.ContainerState_CONTAINER_EXITED, code, reason, message
	c.status.FinishedAt = r.cfg.Clock.Now().UnixNano()
	c.kill()
	close(c.done)
	if c.log != nil {
		c.log.close()
	}
	r.publish(c.sandbox, c.status.Id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// RemoveContainer removes a container, killing it first. A container that is gone is no error.
func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("RemoveContainer"); err != nil {
		return err
	}
	if c := r.containers[id]; c != nil {
		r.calls = append(r.calls, "RemoveContainer "+c.config.Metadata.Name)
		r.finish(c, 137, "")
		r.remove(c)
	}
	return nil
}

func (r *Runtime) remove(c *container) {
	delete(r.containers, c.status.Id)
	r.publish(c.sandbox, c.status.Id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// ContainerStatus answers one container.
func (r *Runtime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound("container", id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.snapshot()}, nil
}

// ListContainers lists containers, oldest first.
func (r *Runtime) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("ListContainers"); err != nil {
		return nil, err
	}
	var out []*runtimeapi.Container
	for _, c := range r.sortedContainers(f.GetPodSandboxId()) {
		s := c.status
		if f.GetId() != "" && f.GetId() != s.Id || f.GetState() != nil && f.GetState().State != s.State || !matches(s.Labels, f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.Container{Id: s.Id, PodSandboxId: c.sandbox.status.Id, Metadata: s.Metadata, Image: s.Image, ImageRef: s.ImageRef,
			ImageId: s.ImageId, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations})
	}
	return out, nil
}

// UpdateContainerResources records new limits.
func (r *Runtime) UpdateContainerResources(_ context.Context, id string, res *runtimeapi.ContainerResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("UpdateContainerResources"); err != nil {
		return err
	}
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	c.status.Resources = res
	r.calls = append(r.calls, "UpdateContainerResources "+c.config.Metadata.Name)
	return nil
}

// ExecSync answers by the function that OnExec set.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, _ time.Duration) ([]byte, []byte, error) {
	r.mu.Lock()
	c, f, err := r.containers[id], r.exec, r.fail("ExecSync")
	r.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	if c == nil {
		return nil, nil, notFound("container", id)
	}
	r.mu.Lock()
	st := c.snapshot()
	r.mu.Unlock()
	if st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, nil, fmt.Errorf("container %q is not running", id)
	}
	if f == nil {
		return nil, nil, nil
	}
	stdout, stderr, code := f(st, cmd)
	if code != 0 {
		err = exec.CodeExitError{Err: fmt.Errorf("command %q ended with exit code %d", cmd, code), Code: code}
	}
	return []byte(stdout), []byte(stderr), err
}

// ReopenContainerLog opens the log file anew.
func (r *Runtime) ReopenContainerLog(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil || c.log == nil {
		return notFound("running container", id)
	}
	return c.log.reopen()
}
