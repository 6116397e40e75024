package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/launch"
	"github.com/yare-project/yare/node/machine"
)

// followRuntime keeps the workers up to date with the runtime: it takes the event stream, and at the beginning of each stream a full list, so
// that what happened before it or between two streams is not missed.
func (a *Agent) followRuntime(ctx context.Context) {
	wait := 50 * time.Millisecond
	for ctx.Err() == nil {
		err := a.session(ctx, func() { wait = 50 * time.Millisecond })
		if ctx.Err() != nil {
			return
		}
		a.cfg.Log.Warn("container events interrupted", "err", err, "again-in", wait)
		select {
		case <-ctx.Done():
		case <-a.cfg.Clock.After(wait):
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// session is one life of the event stream.
func (a *Agent) session(ctx context.Context, good func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *runtimeapi.ContainerEventResponse, 256)
	established := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- a.cfg.Runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(established) })
	}()
	select {
	case <-established:
	case err := <-ended:
		return err
	}
	if err := a.list(ctx); err != nil {
		return fmt.Errorf("list the runtime's pods: %w", err)
	}
	good()
	for {
		select {
		case e := <-events:
			a.take(ctx, e)
		case err := <-ended:
			if err == nil {
				err = errors.New("the stream ended")
			}
			return err
		}
	}
}

// list reads everything that the runtime has, and hands it to the workers. The first time, it starts them.
func (a *Agent) list(ctx context.Context) error {
	began := a.cfg.Clock.Now()
	sandboxes, err := a.cfg.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	containers, err := a.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, s := range sandboxes {
		uid := types.UID(s.Labels[launch.LabelPodUID])
		st, err := a.cfg.Runtime.PodSandboxStatus(ctx, s.Id, false)
		if status.Code(err) == codes.NotFound || uid == "" {
			continue
		}
		if err != nil {
			return err
		}
		present[s.Id] = true
		a.remember(s.Id, uid)
		w := a.workerFor(uid, s.Labels, s.Annotations)
		sb := fromSandbox(st.Status)
		w.post(func() { w.obs.PutSandbox(sb) })
	}
	for _, c := range containers {
		uid := types.UID(c.Labels[launch.LabelPodUID])
		got, err := a.inspect(ctx, c.Id)
		if status.Code(err) == codes.NotFound || uid == "" {
			continue
		}
		if err != nil {
			return err
		}
		present[c.Id] = true
		got.SandboxID = c.PodSandboxId
		a.remember(c.Id, uid)
		w := a.workerFor(uid, c.Labels, c.Annotations)
		w.post(func() { w.putContainer(*got) })
	}
	for _, w := range a.all() {
		w.post(func() { w.dropAbsent(present, began) })
	}
	a.mu.Lock()
	first := !a.started
	a.mu.Unlock()
	if first {
		a.begin()
	}
	return nil
}

// workerFor answers the worker of a pod, making one for a pod that only the runtime has so far.
func (a *Agent) workerFor(uid types.UID, labels, notes map[string]string) *worker {
	orphan := adoptOrphan(labels, notes)
	a.mu.Lock()
	w, started := a.workers[uid], a.started
	fresh := w == nil
	if fresh {
		w = newWorker(a, orphan)
		a.workers[uid] = w
	}
	a.mu.Unlock()
	switch {
	case fresh && started: // the API's pods are all here: this one is of none of them
		w.post(func() { w.gone = true })
		w.start()
	case !fresh && !started && len(orphan.Spec.Containers) > 0:
		w.post(func() { w.learn(orphan) })
	}
	return w
}

// learn adds a container, as its labels describe it, to a pod that only the runtime has.
func (w *worker) learn(orphan *corev1.Pod) {
	if w.met {
		return
	}
	w.pod.Spec.Containers = append(w.pod.Spec.Containers, orphan.Spec.Containers...)
	w.pod.Spec.TerminationGracePeriodSeconds = orphan.Spec.TerminationGracePeriodSeconds
	w.pod.DeletionGracePeriodSeconds = orphan.DeletionGracePeriodSeconds
}

// dropAbsent forgets what the runtime no longer has, unless it is newer than the list.
func (w *worker) dropAbsent(present map[string]bool, listed time.Time) {
	for _, c := range append([]machine.Container(nil), w.obs.Containers...) {
		if !present[c.ID] && c.CreatedAt.Before(listed) {
			w.obs.DropContainer(c.ID)
		}
	}
	for _, s := range append([]machine.Sandbox(nil), w.obs.Sandboxes...) {
		if !present[s.ID] && s.CreatedAt.Before(listed) {
			w.obs.DropSandbox(s.ID)
		}
	}
}

// take hands an event to the worker of its pod.
func (a *Agent) take(ctx context.Context, e *runtimeapi.ContainerEventResponse) {
	uid := types.UID(e.GetPodSandboxStatus().GetLabels()[launch.LabelPodUID])
	a.mu.Lock()
	if uid == "" {
		uid = a.ids[e.ContainerId]
	}
	w := a.workers[uid]
	deleted := e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	switch {
	case deleted:
		delete(a.ids, e.ContainerId)
	case w != nil:
		a.ids[e.ContainerId] = uid
	}
	a.mu.Unlock()
	if w == nil {
		return // not a pod of ours, or one that is gone already
	}
	sandbox := e.GetPodSandboxStatus()
	var known []machine.Container
	described := false
	for _, s := range e.ContainersStatuses {
		c := fromStatus(s)
		c.SandboxID = sandbox.GetId()
		known = append(known, c)
		described = described || s.Id == e.ContainerId
	}
	w.post(func() {
		if sandbox != nil {
			w.obs.PutSandbox(fromSandbox(sandbox))
		}
		for _, c := range known {
			if !(deleted && c.ID == e.ContainerId) {
				w.putContainer(c)
			}
		}
		if deleted {
			w.obs.DropContainer(e.ContainerId)
			w.obs.DropSandbox(e.ContainerId)
		}
	})
	if !deleted && !described && sandbox.GetId() != e.ContainerId {
		a.running.Go(func() { a.lookUp(ctx, w, e.ContainerId, sandbox.GetId()) })
	}
}

// lookUp asks the runtime about a container that an event named without telling its state.
func (a *Agent) lookUp(ctx context.Context, w *worker, id, sandbox string) {
	got, err := a.inspect(ctx, id)
	switch {
	case status.Code(err) == codes.NotFound:
		w.post(func() { w.obs.DropContainer(id) })
	case err == nil:
		if sandbox != "" {
			got.SandboxID = sandbox
		}
		w.post(func() { w.putContainer(*got) })
	}
}

func (a *Agent) remember(id string, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids[id] = uid
}

// inspect answers a container's present state.
func (a *Agent) inspect(ctx context.Context, id string) (*machine.Container, error) {
	r, err := a.cfg.Runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		return nil, err
	}
	c := fromStatus(r.GetStatus())
	return &c, nil
}

// putContainer takes in news of a container; when it has ended, its last words are read.
func (w *worker) putContainer(c machine.Container) {
	old := w.obs.Container(c.ID)
	if c.State == machine.Exited {
		if old != nil && old.State == machine.Exited {
			c.Message = old.Message
		} else {
			c.Message = join(c.Message, w.lastWords(&c))
		}
	}
	if c.SandboxID == "" && old == nil {
		if s := w.obs.Sandbox(); s != nil {
			c.SandboxID = s.ID
		}
	}
	w.obs.PutContainer(c)
	if m := w.mem.Of(c.Name); c.Attempt > m.Restarts {
		m.Restarts = c.Attempt
	}
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// The limits of a termination message, from the API documentation of Container.terminationMessagePath and terminationMessagePolicy.
const (
	maxWords    = 4096
	maxLogWords = 2048
	maxLogLines = 80
)

// lastWords answers the termination message of a container: what it wrote to its file, or, by policy, the end of its log.
func (w *worker) lastWords(c *machine.Container) string {
	if c.TerminationPath != "" {
		b, err := readHead(w.agent.builder.TerminationFile(w.uid, c.Name, c.Attempt), maxWords)
		if err != nil && !os.IsNotExist(err) {
			return fmt.Sprintf("Error on reading termination log %s: %v", c.TerminationPath, err)
		}
		if len(b) > 0 {
			return string(b)
		}
	}
	if c.TerminationPolicy == string(corev1.TerminationMessageFallbackToLogsOnError) && c.ExitCode != 0 && c.LogPath != "" {
		return logTail(c.LogPath, maxLogLines, maxLogWords)
	}
	return ""
}
