package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/node/launch"
	"github.com/yare-project/yare/node/machine"
	"github.com/yare-project/yare/node/volume"
)

// work carries out an action away from the worker's goroutine; the function it returns takes the result in, on that goroutine.
type work func(ctx context.Context) (done func(), err error)

// How long failed things wait before they are tried again: the first wait and the longest.
const (
	volumeFirst, volumeLast   = 500 * time.Millisecond, 2 * time.Minute
	sandboxFirst, sandboxLast = time.Second, time.Minute
	killFirst, killLast       = time.Second, time.Minute
	cleanFirst, cleanLast     = 100 * time.Millisecond, 30 * time.Second
)

// prepare makes the work of an action from the worker's state; it runs on the worker's goroutine.
func (w *worker) prepare(a machine.Action) work {
	pod := w.pod
	switch a.Op {
	case machine.SetUpVolumes:
		w.mem.VolumesStale = false
		return func(ctx context.Context) (func(), error) { return w.setUpVolumes(ctx, pod) }
	case machine.CreateSandbox:
		if a.Attempt > 0 {
			w.event(corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		}
		return func(ctx context.Context) (func(), error) { return w.createSandbox(ctx, pod, a.Attempt) }
	case machine.StartContainer:
		return w.prepareStart(a)
	case machine.KillContainer:
		return w.prepareKill(a)
	case machine.UpdateContainer:
		return func(ctx context.Context) (func(), error) { return w.updateContainer(ctx, pod, a) }
	case machine.RemoveContainer:
		return func(ctx context.Context) (func(), error) { return w.removeContainer(ctx, a) }
	case machine.StopSandbox:
		ending := w.plan.Terminating
		return func(ctx context.Context) (func(), error) { return w.stopSandbox(ctx, a.SandboxID, ending) }
	case machine.RemoveSandbox:
		return func(ctx context.Context) (func(), error) { return w.removeSandbox(ctx, a.SandboxID) }
	case machine.Release:
		return func(ctx context.Context) (func(), error) { return w.release(ctx, pod) }
	case machine.TearDown:
		return func(ctx context.Context) (func(), error) { return w.tearDown(ctx, pod) }
	case machine.DeletePod:
		return func(ctx context.Context) (func(), error) { return w.deletePod(ctx, pod) }
	}
	return func(context.Context) (func(), error) { return nil, fmt.Errorf("unknown action %q", a.Op) }
}

func (w *worker) now() time.Time { return w.agent.cfg.Clock.Now() }

func (w *worker) setUpVolumes(ctx context.Context, pod *corev1.Pod) (func(), error) {
	refresh, err := w.agent.volumes.SetUp(ctx, pod)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return func() {
		w.mem.VolumesRefresh = refresh
		if err == nil {
			w.mem.VolumesReady, w.mem.Volumes = true, machine.Retry{}
			return
		}
		w.tellVolumes(err)
		if w.mem.VolumesReady { // what is set up stays; only its renewal failed
			w.mem.VolumesStale = true
		}
		w.mem.Volumes = w.mem.Volumes.Again(w.now(), volumeFirst, volumeLast, err.Error())
	}, err
}

// tellVolumes records an event for each volume that failed.
func (w *worker) tellVolumes(err error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, e := range list {
		var v *volume.Error
		if errors.As(e, &v) {
			w.event(corev1.EventTypeWarning, "FailedMount", v.Error())
		} else {
			w.event(corev1.EventTypeWarning, "FailedMount", "Unable to attach or mount volumes: "+e.Error())
		}
	}
}

func (w *worker) createSandbox(ctx context.Context, pod *corev1.Pod, attempt int) (func(), error) {
	if err := w.agent.devices.Prepare(ctx, pod); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return func() {
			w.event(corev1.EventTypeWarning, "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: "+err.Error())
			w.mem.Sandbox = w.mem.Sandbox.Again(w.now(), sandboxFirst, sandboxLast, err.Error())
		}, err
	}
	sandbox, err := w.agent.runSandbox(ctx, pod, attempt)
	if ctx.Err() != nil && err != nil {
		return nil, ctx.Err()
	}
	return func() {
		if err != nil {
			w.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+message(err))
			w.mem.Sandbox = w.mem.Sandbox.Again(w.now(), sandboxFirst, sandboxLast, err.Error())
			return
		}
		w.mem.Sandbox = machine.Retry{}
		w.agent.remember(sandbox.ID, w.uid)
		w.obs.PutSandbox(sandbox)
	}, err
}

// runSandbox makes a pod's cgroup and sandbox, and answers the sandbox with its addresses.
func (a *Agent) runSandbox(ctx context.Context, pod *corev1.Pod, attempt int) (machine.Sandbox, error) {
	handler, err := a.sandboxHandler(pod)
	if err != nil {
		return machine.Sandbox{}, err
	}
	if err := a.cfg.Cgroups.Balance(a.active()); err != nil {
		return machine.Sandbox{}, fmt.Errorf("weights of the pod classes: %w", err)
	}
	parent, err := a.cfg.Cgroups.Pod(pod)
	if err != nil {
		return machine.Sandbox{}, err
	}
	config, err := a.builder.Sandbox(pod, attempt, parent)
	if err != nil {
		return machine.Sandbox{}, err
	}
	id, err := a.cfg.Runtime.RunPodSandbox(ctx, config, handler)
	if err != nil {
		return machine.Sandbox{}, err
	}
	st, err := a.cfg.Runtime.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return machine.Sandbox{}, fmt.Errorf("status of the new sandbox: %w", err)
	}
	if !pod.Spec.HostNetwork && st.GetStatus().GetNetwork().GetIp() == "" {
		// Another agent would go on without an address; containers would then lack one in their environment for good.
		return machine.Sandbox{}, fmt.Errorf("the runtime gave sandbox %s no address", id)
	}
	return fromSandbox(st.Status), nil
}

// stopSandbox stops a sandbox whose containers have ended; of a pod that ends, devices are given back first.
func (w *worker) stopSandbox(ctx context.Context, id string, ending bool) (func(), error) {
	if ending {
		if err := w.agent.devices.Unprepare(ctx, w.uid); err != nil {
			return func() {
				w.mem.KillFailures[id] = w.mem.KillFailures[id].Again(w.now(), killFirst, killLast, err.Error())
				w.event(corev1.EventTypeWarning, "FailedUnprepareDynamicResources", "Failed to unprepare dynamic resources: "+err.Error())
			}, err
		}
	}
	err := w.agent.cfg.Runtime.StopPodSandbox(ctx, id)
	if status.Code(err) == codes.NotFound {
		err = nil
	}
	return func() {
		if err != nil {
			w.mem.KillFailures[id] = w.mem.KillFailures[id].Again(w.now(), killFirst, killLast, err.Error())
			w.event(corev1.EventTypeWarning, "FailedKillPod", "error killing pod: failed to stop sandbox: "+message(err))
			return
		}
		delete(w.mem.KillFailures, id)
		w.mem.Stopped[id] = true
		for i := range w.obs.Sandboxes {
			if w.obs.Sandboxes[i].ID == id {
				w.obs.Sandboxes[i].Ready = false
			}
		}
	}, err
}

func (w *worker) removeContainer(ctx context.Context, a machine.Action) (func(), error) {
	err := w.agent.cfg.Runtime.RemoveContainer(ctx, a.ContainerID)
	if status.Code(err) == codes.NotFound {
		err = nil
	}
	if err == nil {
		err = errors.Join(w.agent.volumes.Forget(w.uid, a.Container, a.Attempt),
			removeFile(w.agent.builder.TerminationFile(w.uid, a.Container, a.Attempt)))
	}
	return func() {
		if err != nil {
			w.mem.KillFailures[a.ContainerID] = w.mem.KillFailures[a.ContainerID].Again(w.now(), killFirst, killLast, err.Error())
			return
		}
		if c := w.obs.Container(a.ContainerID); c != nil {
			w.removeLog(c)
		}
		w.obs.DropContainer(a.ContainerID)
		delete(w.mem.KillFailures, a.ContainerID)
	}, err
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func (w *worker) removeSandbox(ctx context.Context, id string) (func(), error) {
	err := w.agent.cfg.Runtime.RemovePodSandbox(ctx, id)
	return func() {
		if err != nil {
			w.mem.KillFailures[id] = w.mem.KillFailures[id].Again(w.now(), killFirst, killLast, err.Error())
			return
		}
		w.obs.DropSandbox(id)
		delete(w.mem.KillFailures, id)
		delete(w.mem.Stopped, id)
	}, err
}

func (w *worker) removeLog(c *machine.Container) {
	if c.LogPath == "" {
		return
	}
	old, _ := filepath.Glob(c.LogPath + ".*")
	for _, path := range append(old, c.LogPath) {
		_ = os.Remove(path)
	}
}

// release gives back what only a living pod needs.
func (w *worker) release(ctx context.Context, pod *corev1.Pod) (func(), error) {
	err := errors.Join(w.agent.devices.Unprepare(ctx, pod.UID), w.agent.volumes.TearDown(pod.UID), w.agent.cfg.Cgroups.Remove(pod.UID))
	return func() {
		if err != nil {
			w.mem.Cleanup = w.mem.Cleanup.Again(w.now(), cleanFirst, cleanLast, err.Error())
			return
		}
		w.mem.Released, w.mem.Cleanup = true, machine.Retry{}
		w.mem.VolumesReady = false
		w.agent.objects.Hold(w.uid, nil)
		w.agent.puller.Forget(w.uid)
	}, err
}

// tearDown removes everything of a pod from the machine, also what only the runtime knows of.
func (w *worker) tearDown(ctx context.Context, pod *corev1.Pod) (func(), error) {
	err := w.agent.erase(ctx, pod)
	return func() {
		if err != nil {
			w.mem.Cleanup = w.mem.Cleanup.Again(w.now(), cleanFirst, cleanLast, err.Error())
			if w.mem.Cleanup.Count == 3 { // the first tries may meet a process that is still ending
				w.log.Warn("removing a pod", "err", err)
			}
			return
		}
		w.mem.TornDown, w.mem.Cleanup = true, machine.Retry{}
		w.obs = machine.Observed{}
		w.agent.objects.Hold(w.uid, nil)
		w.agent.puller.Forget(w.uid)
	}, err
}

func (a *Agent) erase(ctx context.Context, pod *corev1.Pod) error {
	list, err := a.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{launch.LabelPodUID: string(pod.UID)}})
	if err != nil {
		return fmt.Errorf("sandboxes of the pod: %w", err)
	}
	for _, s := range list {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			if err := a.cfg.Runtime.StopPodSandbox(ctx, s.Id); err != nil {
				return fmt.Errorf("stop sandbox: %w", err)
			}
		}
		if err := a.cfg.Runtime.RemovePodSandbox(ctx, s.Id); err != nil {
			return fmt.Errorf("remove sandbox: %w", err)
		}
	}
	if err := a.devices.Unprepare(ctx, pod.UID); err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	if err := a.volumes.TearDown(pod.UID); err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	if err := a.cfg.Cgroups.Remove(pod.UID); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(a.builder.PodDir(pod.UID)), os.RemoveAll(a.builder.LogDir(pod)))
}

// deletePod ends the deletion at the API: this pod, and no other of its name, may go now.
func (w *worker) deletePod(ctx context.Context, pod *corev1.Pod) (func(), error) {
	zero := int64(0)
	err := client.Of[*corev1.Pod](w.agent.cfg.Transport).Delete(ctx, pod.Namespace, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // it is gone, or another has its name
	}
	return func() {
		if err != nil {
			w.mem.Delete = w.mem.Delete.Again(w.now(), cleanFirst, cleanLast, err.Error())
			return
		}
		// Finalizers may keep it; then this worker stays until the API tells that it is gone, with nothing left to do.
		w.mem.Delete = machine.Retry{At: w.now().Add(cleanLast)}
	}, err
}

// message is an error's text without the wrapping of gRPC.
func message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	text := err.Error()
	if i := strings.Index(text, "rpc error: code = "); i >= 0 {
		if j := strings.Index(text[i:], " desc = "); j >= 0 {
			return text[:i] + text[i+j+len(" desc = "):]
		}
	}
	return text
}
