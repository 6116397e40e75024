package fake

import (
	"context"
	"errors"
	"io"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stream is one subscriber with a queue of its own, so that a slow one holds up nobody.
type stream struct {
	mu     sync.Mutex
	queue  []*runtimeapi.ContainerEventResponse
	wake   chan struct{}
	broken chan struct{}
}

func (s *stream) push(e *runtimeapi.ContainerEventResponse) {
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stream) pop() *runtimeapi.ContainerEventResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	e := s.queue[0]
	s.queue = s.queue[1:]
	return e
}

// publish sends an event about id with the state of its whole pod, as containerd does. r.mu is held.
func (r *Runtime) publish(s *sandbox, id string, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: r.cfg.Clock.Now().UnixNano(), PodSandboxStatus: s.snapshot()}
	for _, c := range r.sortedContainers(s.status.Id) {
		e.ContainersStatuses = append(e.ContainersStatuses, c.snapshot())
	}
	for st := range r.streams {
		st.push(e)
	}
}

// BreakStreams ends every event stream with an error; events until the next subscription are lost.
func (r *Runtime) BreakStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for st := range r.streams {
		close(st.broken)
		delete(r.streams, st)
	}
}

// GetContainerEvents sends events until ctx ends or the stream is broken.
func (r *Runtime) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	st := &stream{wake: make(chan struct{}, 1), broken: make(chan struct{})}
	r.mu.Lock()
	if err := r.fail("GetContainerEvents"); err != nil {
		r.mu.Unlock()
		return err
	}
	r.streams[st] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.streams, st)
		r.mu.Unlock()
	}()
	if established != nil {
		established(nil)
	}
	for {
		for e := st.pop(); e != nil; e = st.pop() {
			select {
			case events <- e:
			case <-st.broken:
				return io.EOF
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-st.wake:
		case <-st.broken:
			return io.EOF
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errNoStreams = errors.New("the fake runtime has no streaming server: exec, attach and port-forward need a real runtime")

// Exec is refused.
func (r *Runtime) Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return nil, errNoStreams
}

// Attach is refused.
func (r *Runtime) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, errNoStreams
}

// PortForward is refused.
func (r *Runtime) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, errNoStreams
}

// CheckpointContainer is refused.
func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return errors.New("the fake runtime makes no checkpoints: there is no process")
}
