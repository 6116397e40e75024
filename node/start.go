package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/environ"
	"github.com/yare-project/yare/node/launch"
	"github.com/yare-project/yare/node/machine"
	"github.com/yare-project/yare/node/pull"
)

// The waiting reasons of a container that could not be started, beside those of package pull.
const (
	reasonConfig    = "CreateContainerConfigError"
	reasonCreate    = "CreateContainerError"
	reasonRun       = "RunContainerError"
	reasonPostStart = "PostStartHookError"
)

// startError is why a container did not start.
type startError struct {
	reason, message string
	retry           time.Time // zero: by back-off
}

func (e *startError) Error() string { return e.reason + ": " + e.message }

// starter starts one container.
type starter struct {
	*Agent
	w       *worker
	action  machine.Action
	pod     *corev1.Pod
	spec    *corev1.Container
	sandbox string
	podIPs  []string
	target  string // whose processes an ephemeral container sees
}

func (w *worker) prepareStart(a machine.Action) work {
	w.mem.Of(a.Container).Backoff = a.Backoff
	s := &starter{Agent: w.agent, w: w, action: a, pod: w.pod, podIPs: w.podIPs()}
	s.spec, _ = machine.Spec(w.pod, a.Container)
	if sb := w.obs.ReadySandbox(); sb != nil {
		s.sandbox = sb.ID
	}
	err := s.findTarget(&w.obs)
	return func(ctx context.Context) (func(), error) {
		if err == nil {
			err = s.run(ctx)
		}
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return func() { w.startDone(a, err) }, err
	}
}

// findTarget finds the container that an ephemeral container is to look into.
func (s *starter) findTarget(obs *machine.Observed) error {
	for i := range s.pod.Spec.EphemeralContainers {
		e := &s.pod.Spec.EphemeralContainers[i]
		if e.Name != s.action.Container || e.TargetContainerName == "" {
			continue
		}
		got := obs.Latest(e.TargetContainerName)
		if got == nil || got.State != machine.Running {
			return &startError{reason: reasonConfig, message: fmt.Sprintf("container %q targeted by ephemeral container %q is not running", e.TargetContainerName, e.Name)}
		}
		s.target = got.ID
	}
	return nil
}

// startDone takes in how a start ended.
func (w *worker) startDone(a machine.Action, err error) {
	m := w.mem.Of(a.Container)
	if err == nil {
		m.Failure, m.Waiting = machine.Retry{}, machine.Waiting{}
		return
	}
	var e *startError
	if !errors.As(err, &e) {
		e = &startError{reason: reasonCreate, message: message(err)}
	}
	m.Waiting = machine.Waiting{Reason: e.reason, Message: e.message}
	switch e.reason {
	case reasonRun, reasonPostStart:
		m.Failure = machine.Retry{} // the container was there and has ended: its crash back-off applies
	default:
		m.Failure = m.Failure.Again(w.now(), time.Second, time.Minute, e.message)
		if !e.retry.IsZero() {
			m.Failure.At = e.retry
		}
	}
}

func (s *starter) run(ctx context.Context) error {
	if s.spec == nil || s.sandbox == "" {
		return &startError{reason: reasonCreate, message: "the pod has changed meanwhile"}
	}
	id, err := s.create(ctx)
	if err != nil {
		s.containerEvent(s.pod, s.spec.Name, corev1.EventTypeWarning, "Failed", "Error: "+eventText(err))
		return err
	}
	hook := s.spec.Lifecycle != nil && s.spec.Lifecycle.PostStart != nil
	s.w.post(func() {
		s.w.mem.Of(s.spec.Name).Restarts = s.action.Attempt
		if hook {
			s.w.mem.Hooks[id] = true
		}
	})
	s.containerEvent(s.pod, s.spec.Name, corev1.EventTypeNormal, "Created", "Container created")
	err = s.cfg.Runtime.StartContainer(ctx, id)
	s.report(ctx, id)
	if err != nil {
		s.containerEvent(s.pod, s.spec.Name, corev1.EventTypeWarning, "Failed", "Error: "+message(err))
		return &startError{reason: reasonRun, message: message(err)}
	}
	s.containerEvent(s.pod, s.spec.Name, corev1.EventTypeNormal, "Started", "Container started")
	if hook {
		return s.postStart(ctx, id)
	}
	return nil
}

func eventText(err error) string {
	var e *startError
	if errors.As(err, &e) {
		if e.reason == pull.ErrImagePull || e.reason == pull.ImagePullBackOff || e.reason == pull.ErrImageNeverPull {
			return e.reason
		}
		return e.message
	}
	return message(err)
}

// create pulls the image and makes the container.
func (s *starter) create(ctx context.Context) (id string, err error) {
	parent, err := s.cfg.Cgroups.Pod(s.pod)
	if err != nil {
		return "", &startError{reason: reasonConfig, message: err.Error()}
	}
	sandbox, err := s.builder.Sandbox(s.pod, 0, parent)
	if err != nil {
		return "", &startError{reason: reasonConfig, message: err.Error()}
	}
	image, err := s.puller.Image(ctx, s.pod, s.spec.Name, s.spec.Image, s.spec.ImagePullPolicy, sandbox)
	if err != nil {
		return "", s.imageError(err)
	}
	facts := s.facts(s.pod)
	facts.PodIPs = s.podIPs
	env, err := environ.Make(ctx, s.pod, s.spec, sources{s.Agent}, facts)
	if err != nil {
		return "", &startError{reason: reasonConfig, message: err.Error()}
	}
	mounts, err := s.volumes.Mounts(s.pod, s.spec, s.action.Attempt, env)
	if err != nil {
		return "", &startError{reason: reasonConfig, message: err.Error()}
	}
	devices, err := s.devices.Devices(s.pod, s.spec)
	if err != nil {
		return "", &startError{reason: reasonConfig, message: err.Error()}
	}
	config, err := s.builder.Container(launch.Container{Pod: s.pod, Spec: s.spec, Attempt: s.action.Attempt, Image: image, Env: env, Mounts: mounts, Devices: devices,
		PodIPs: s.podIPs, Target: s.target})
	if err != nil {
		return "", &startError{reason: reasonConfig, message: err.Error()}
	}
	id, err = s.cfg.Runtime.CreateContainer(ctx, s.sandbox, config, sandbox)
	if err != nil {
		return "", &startError{reason: reasonCreate, message: message(err)}
	}
	s.remember(id, s.w.uid)
	return id, nil
}

// flip is how long ErrImagePull shows before it becomes ImagePullBackOff.
const flip = time.Second

func (s *starter) imageError(err error) error {
	var e *pull.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &startError{reason: e.Reason, message: e.Message, retry: e.Retry}
	switch e.Reason {
	case pull.ErrImagePull:
		out.retry = s.cfg.Clock.Now().Add(flip)
	case pull.ImagePullBackOff:
		s.containerEvent(s.pod, s.spec.Name, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", s.spec.Image))
	}
	return out
}

// report takes the container's state from the runtime to the worker, without waiting for the event stream.
func (s *starter) report(ctx context.Context, id string) {
	got, err := s.inspect(context.WithoutCancel(ctx), id)
	if err != nil {
		return // the event stream tells
	}
	got.SandboxID = s.sandbox
	s.w.post(func() { s.w.putContainer(*got) })
}

// postStart runs the hook; the container shows as running only after it, and dies if it fails.
func (s *starter) postStart(ctx context.Context, id string) error {
	err := s.hook(ctx, s.pod, s.spec, id, s.spec.Lifecycle.PostStart, s.podIPs)
	s.w.post(func() { delete(s.w.mem.Hooks, id) })
	if err == nil || ctx.Err() != nil {
		return err
	}
	// The hook's words stay out of the event: they may hold secrets.
	s.containerEvent(s.pod, s.spec.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	grace := int64(30)
	if g := s.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	s.containerEvent(s.pod, s.spec.Name, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
	if err := s.cfg.Runtime.StopContainer(ctx, id, grace); err != nil {
		s.w.log.Warn("stop a container whose postStart hook failed", "container", s.spec.Name, "err", err)
	}
	s.report(ctx, id)
	return &startError{reason: reasonPostStart, message: err.Error()}
}
