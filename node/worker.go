package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/node/launch"
	"github.com/yare-project/yare/node/machine"
	"github.com/yare-project/yare/node/objects"
	"github.com/yare-project/yare/node/status"
)

// worker is the state machine of one pod. Everything below box belongs to its goroutine; others speak to it by post.
type worker struct {
	agent *Agent
	uid   types.UID
	log   *slog.Logger
	// known says that the API's pod was handed over. It belongs to agent.mu.
	known bool
	// view is what others may read of the worker at any time.
	view atomic.Pointer[snapshot]

	mu   sync.Mutex
	box  []func()
	wake chan struct{}
	once sync.Once

	met    bool        // the API's pod was handed over: pod is it
	pod    *corev1.Pod // newest from the API, or made up from labels
	gone   bool        // the API has it no longer
	obs    machine.Observed
	mem    *machine.Memory
	plan   machine.Plan
	ops    map[string]*op
	probes map[probeKey]context.CancelFunc
	status corev1.PodStatus
	write  writeState
	told   map[string]string // events that are told once per cause, by subject
}

// op is an action under way.
type op struct{ cancel context.CancelFunc }

// snapshot is a worker's state for readers.
type snapshot struct {
	pod        *corev1.Pod // with the present status
	containers []machine.Container
	sandbox    *machine.Sandbox
	volumes    bool
}

func newWorker(a *Agent, pod *corev1.Pod) *worker {
	w := &worker{agent: a, uid: pod.UID, pod: pod, mem: machine.NewMemory(), wake: make(chan struct{}, 1), ops: map[string]*op{},
		probes: map[probeKey]context.CancelFunc{}, told: map[string]string{},
		log: a.cfg.Log.With("pod", pod.Namespace+"/"+pod.Name, "uid", string(pod.UID))}
	w.view.Store(&snapshot{pod: pod})
	return w
}

// post asks the worker's goroutine to run f, and then to decide again. It never blocks.
func (w *worker) post(f func()) {
	w.mu.Lock()
	w.box = append(w.box, f)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// start starts the goroutine, once.
func (w *worker) start() {
	w.once.Do(func() {
		w.agent.mu.Lock()
		defer w.agent.mu.Unlock()
		if !w.agent.stopped {
			w.agent.running.Go(w.run)
		}
	})
}

func (w *worker) run() {
	ctx, cancel := context.WithCancel(w.agent.ctx)
	defer cancel()
	timer := w.agent.cfg.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.drain()
		if w.step(ctx) {
			w.agent.forget(w)
			return
		}
		if !timer.Stop() {
			select {
			case <-timer.C():
			default:
			}
		}
		var due <-chan time.Time
		if !w.plan.Wake.IsZero() {
			wait := w.plan.Wake.Sub(w.agent.cfg.Clock.Now())
			if wait <= 0 {
				continue
			}
			timer.Reset(wait)
			due = timer.C()
		}
		select {
		case <-w.wake:
		case <-due:
		case <-ctx.Done():
			return
		}
	}
}

func (w *worker) drain() {
	w.mu.Lock()
	box := w.box
	w.box = nil
	w.mu.Unlock()
	for _, f := range box {
		f()
	}
}

// meet takes in the API's pod for the first time, with the verdict of admission.
func (w *worker) meet(pod *corev1.Pod, verdict *machine.Verdict) {
	w.met, w.pod = true, pod
	w.status = *pod.Status.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if s := &list[i]; s.ContainerID != "" || s.RestartCount > 0 {
				w.mem.Of(s.Name).Restarts = int(s.RestartCount)
			}
		}
	}
	w.seedProbes()
	w.agent.objects.Hold(w.uid, objects.Of(pod))
	if verdict != nil {
		w.mem.Verdict = &machine.Verdict{Reason: verdict.Reason, Message: "Pod was rejected: " + verdict.Message}
		w.event(corev1.EventTypeWarning, verdict.Reason, verdict.Message)
	}
}

// update takes in a newer version of the API's pod.
func (w *worker) update(pod *corev1.Pod) {
	if !newer(pod, w.pod) {
		return
	}
	old := w.pod
	w.pod = pod
	if w.mem.TornDown || w.mem.Released {
		return
	}
	if pod.Generation != old.Generation {
		w.agent.objects.Hold(w.uid, objects.Of(pod))
	}
	if downwardChanged(old, pod) {
		w.mem.VolumesStale = true
	}
}

func downwardChanged(old, pod *corev1.Pod) bool {
	return differ(old.Labels, pod.Labels) || differ(old.Annotations, pod.Annotations)
}

func differ(a, b map[string]string) bool {
	if len(a) != len(b) {
		return true
	}
	for k, v := range a {
		if got, ok := b[k]; !ok || got != v {
			return true
		}
	}
	return false
}

// apiGone takes in that the API has the pod no longer.
func (w *worker) apiGone(last *corev1.Pod) {
	if newer(last, w.pod) {
		w.pod = last
	}
	w.gone = true
}

// adoptOrphan is the pod of a worker that only the runtime knows of, as far as labels tell.
func adoptOrphan(labels, notes map[string]string) *corev1.Pod {
	pod, c := launch.Orphan(labels, notes)
	if c != nil {
		pod.Spec.Containers = []corev1.Container{*c}
	}
	return pod
}

// step decides and acts once. It answers whether the worker is done.
func (w *worker) step(ctx context.Context) (done bool) {
	now := w.agent.cfg.Clock.Now()
	in := w.input(now)
	w.plan = machine.Decide(in)
	if v := w.plan.Verdict; v != nil {
		w.mem.Verdict = v
		w.event(corev1.EventTypeNormal, v.Reason, v.Message)
	}
	if w.plan.Terminating {
		w.cancelStarts()
		if w.mem.TerminatingSince.IsZero() {
			w.mem.TerminatingSince = now
		}
	}
	w.tellBackoff()
	if w.met && !w.gone && !w.mem.TornDown {
		before := w.status
		w.status = status.Generate(status.Input{Pod: w.pod, Old: w.status, Machine: in, Plan: w.plan, HostIPs: w.agent.cfg.IPs, Now: now,
			RRO: w.agent.builder.RecursiveReadOnly, Runtime: w.agent.runtimeName})
		w.holdPhase(before.Phase)
		w.tellHealth(before.ContainerStatuses)
		w.tellDriver()
	}
	w.syncProbes(ctx)
	w.syncStatus(ctx)
	if w.plan.Gone {
		return true
	}
	for _, a := range w.plan.Actions {
		w.launch(ctx, a)
	}
	w.publish()
	return false
}

func (w *worker) input(now time.Time) machine.Input {
	return machine.Input{Pod: w.effective(), Gone: w.gone, Observed: &w.obs, Memory: w.mem, Now: now, StatusWritten: w.written(), ResourcesMatch: w.resourcesMatch}
}

// effective is the API's pod, with the start time that the API may not have yet.
func (w *worker) effective() *corev1.Pod {
	if w.pod.Status.StartTime != nil || w.status.StartTime == nil {
		return w.pod
	}
	pod := *w.pod
	pod.Status.StartTime = w.status.StartTime
	return &pod
}

func (w *worker) resourcesMatch(c *corev1.Container, have *machine.Container) bool {
	if have.Resources == nil {
		return true // the runtime doesn't say
	}
	limit := launch.Limits(w.pod, c)
	own := *c
	own.Resources.Limits = limit
	return machine.MatchCPU(&own, have) && limit.Memory().Value() == max(have.Resources.MemoryLimitInBytes, 0)
}

// cancelStarts ends what only makes sense for a pod that goes on.
func (w *worker) cancelStarts() {
	for key, a := range w.mem.InFlight {
		switch a.Op {
		case machine.StartContainer, machine.CreateSandbox, machine.SetUpVolumes:
			w.ops[key].cancel()
		}
	}
}

// launch carries an action out on a goroutine of its own.
func (w *worker) launch(ctx context.Context, a machine.Action) {
	key := a.Key()
	if old := w.ops[key]; old != nil {
		old.cancel() // a kill with less grace takes over
	}
	ctx, cancel := context.WithCancel(ctx)
	o := &op{cancel: cancel}
	w.ops[key], w.mem.InFlight[key] = o, a
	do := w.prepare(a)
	start := w.agent.cfg.Clock.Now()
	w.agent.running.Go(func() {
		defer cancel()
		done, err := do(ctx)
		w.agent.metrics.action(string(a.Op), w.agent.cfg.Clock.Since(start), err)
		if err != nil && ctx.Err() == nil {
			w.log.Debug("action failed", "action", key, "err", err)
		}
		w.post(func() {
			if done != nil {
				done()
			}
			if w.ops[key] == o {
				delete(w.ops, key)
				delete(w.mem.InFlight, key)
			}
		})
	})
}

// publish stores the state that readers see.
func (w *worker) publish() {
	pod := *w.pod
	if w.met {
		pod.Status = w.status
	}
	s := &snapshot{pod: &pod, containers: append([]machine.Container(nil), w.obs.Containers...), volumes: w.mem.VolumesReady && !w.mem.Released}
	if sb := w.obs.Sandbox(); sb != nil {
		c := *sb
		s.sandbox = &c
	}
	w.view.Store(s)
}

// podIPs answers the pod's addresses as its containers and the status see them.
func (w *worker) podIPs() []string {
	if w.pod.Spec.HostNetwork {
		return w.agent.cfg.IPs
	}
	if s := w.obs.ReadySandbox(); s != nil {
		return status.SortIPs(s.IPs, w.agent.cfg.IPs)
	}
	return nil
}
