// Package node is the node agent: it runs the pods that the API gives to this node, and tells the API how they are.
//
// Each pod is one state machine with one goroutine (worker). What a pod should be comes from the watch, what is comes from the runtime's event
// stream, from probes and from volumes; every piece of news wakes the worker, which asks machine.Decide what to do, starts that on
// goroutines of its own, and writes the status if it changed. Nothing on that path polls: timers are those that the API asks for (back-off,
// deadlines, probe periods). The containers are not the agent's: when it stops they keep running, and when it starts again it adopts them.
//
// Runtime and volumes are behind interfaces; the pure parts are packages of their own: machine (what to do), status (what to say), launch
// (what to ask of the runtime). The agent never evicts for pressure, and does not run static pods.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/node/dra"
	"github.com/yare-project/yare/node/host"
	"github.com/yare-project/yare/node/launch"
	"github.com/yare-project/yare/node/machine"
	"github.com/yare-project/yare/node/objects"
	"github.com/yare-project/yare/node/pluginregistry"
	"github.com/yare-project/yare/node/pull"
	"github.com/yare-project/yare/node/volume"
)

// Agent is a node agent. Make it with New, and Run it once.
type Agent struct {
	cfg      Config
	pods     client.Cache[*corev1.Pod]
	services client.Cache[*corev1.Service]
	classes  client.Cache[*nodev1.RuntimeClass]
	objects  *objects.Store
	volumes  *volume.Manager
	puller   *pull.Puller
	builder  launch.Builder
	devices  *dra.Manager
	metrics  *metrics
	node     *registration
	// runtimeName prefixes container ids.
	runtimeName string

	ctx     context.Context
	mu      sync.Mutex
	workers map[types.UID]*worker
	ids     map[string]types.UID // of containers and sandboxes
	started bool                 // the runtime's state is known: workers may decide
	stopped bool                 // no worker may start any more
	running sync.WaitGroup
}

// New checks the config and makes an Agent; nothing runs yet. It must be called before the caches run.
func New(cfg Config) (*Agent, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, workers: map[types.UID]*worker{}, ids: map[string]types.UID{}}
	a.pods = client.CacheOf[*corev1.Pod](cfg.Caches, client.CacheOptions{FieldSelector: "spec.nodeName=" + cfg.Name})
	a.services = client.CacheOf[*corev1.Service](cfg.Caches, client.CacheOptions{})
	a.classes = client.CacheOf[*nodev1.RuntimeClass](cfg.Caches, client.CacheOptions{})
	a.metrics = newMetrics(cfg.Metrics)
	a.builder = launch.Builder{Root: cfg.Root, LogRoot: cfg.LogRoot, ClusterDNS: cfg.ClusterDNS, ClusterDomain: cfg.ClusterDomain,
		ResolvConf: cfg.ResolvConf, SeccompUnconfined: cfg.SeccompUnconfined, MemoryCapacity: cfg.Host.Memory, OOMFloor: cfg.Host.OOMFloor,
		HugePageSizes: host.HugePageNames(), AppArmor: cfg.Host.AppArmor}
	a.node = newRegistration(a)
	var err error
	a.devices, err = dra.New(dra.Config{Node: cfg.Name, File: filepath.Join(cfg.Root, "devices.json"), Transport: cfg.Transport, Changed: a.devicesChanged,
		Clock: cfg.Clock, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Run runs the agent until ctx ends, then lets the work under way come to a stop and returns; containers keep running. An error
// means that it could not begin.
func (a *Agent) Run(ctx context.Context) error {
	if err := os.MkdirAll(a.cfg.LogRoot, 0o755); err != nil {
		return fmt.Errorf("log folder: %w", err)
	}
	if err := os.MkdirAll(a.cfg.Root, 0o750); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	a.ctx = ctx
	if err := a.meetRuntime(ctx); err != nil {
		return err
	}
	a.objects = objects.New(ctx, objects.Config{Transport: a.cfg.Transport, Changed: a.objectChanged, Clock: a.cfg.Clock, Log: a.cfg.Log})
	a.puller = pull.New(ctx, pull.Config{Images: a.cfg.Images, Secret: a.objects.Secret, Event: a.containerEvent, Clock: a.cfg.Clock})
	a.volumes = volume.New(volume.Config{Root: a.cfg.Root, Objects: a.objects, Images: a.puller, Transport: a.cfg.Transport, Mounter: a.cfg.Mounter,
		Facts: a.facts, RecursiveReadOnly: a.builder.RecursiveReadOnly, Clock: a.cfg.Clock})

	plugins := pluginregistry.New(pluginregistry.Config{Dirs: a.cfg.PluginDirs, Handlers: map[string]pluginregistry.Handler{registerapi.DRAPlugin: a.devices}, Clock: a.cfg.Clock,
		Log: a.cfg.Log})
	a.running.Go(func() {
		if err := plugins.Run(ctx); err != nil {
			a.cfg.Log.Error("drivers on this node can't register", "err", err)
		}
	})
	a.running.Go(func() { a.node.run(ctx) })
	for _, synced := range []<-chan struct{}{a.pods.Synced(), a.services.Synced(), a.classes.Synced(), a.node.registered} {
		select {
		case <-synced:
		case <-ctx.Done():
			a.running.Wait()
			return nil
		}
	}
	a.running.Go(func() { a.followRuntime(ctx) })
	a.running.Go(func() { a.housekeep(ctx) })
	a.running.Go(func() { a.servePodResources(ctx) })
	<-ctx.Done()
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.running.Wait()
	a.devices.Close()
	return nil
}

// meetRuntime learns the runtime's name and abilities.
func (a *Agent) meetRuntime(ctx context.Context) error {
	v, err := a.cfg.Runtime.Version(ctx, "v1")
	if err != nil {
		return fmt.Errorf("the container runtime does not answer: %w", err)
	}
	a.runtimeName = v.RuntimeName
	a.node.runtimeVersion = v.RuntimeName + "://" + v.RuntimeVersion
	st, err := a.cfg.Runtime.Status(ctx, false)
	if err != nil {
		return fmt.Errorf("the container runtime has no status: %w", err)
	}
	for _, h := range st.RuntimeHandlers {
		if h.Name == "" {
			a.builder.RecursiveReadOnly = h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	a.node.handlers = st.RuntimeHandlers
	a.node.features = st.Features
	return nil
}

// begin starts the workers once the runtime's state is known: those of the API's pods, the oldest first, and those of pods that only the
// runtime has.
func (a *Agent) begin() {
	list := a.pods.List("")
	sort.Slice(list, func(i, j int) bool { return list[i].CreationTimestamp.Before(&list[j].CreationTimestamp) })
	for _, pod := range list {
		a.desire(pod)
	}
	a.mu.Lock()
	a.started = true
	var orphans []*worker
	for _, w := range a.workers {
		if !w.known {
			orphans = append(orphans, w)
		}
	}
	all := make([]*worker, 0, len(a.workers))
	for _, w := range a.workers {
		all = append(all, w)
	}
	a.mu.Unlock()
	for _, w := range orphans {
		w.post(func() { w.gone = true })
	}
	a.sweep()
	for _, w := range all {
		w.start()
	}
	a.pods.OnChange(a.podChanged)
}

// sweep removes what an earlier agent left on disk of pods that neither the API nor the runtime has.
func (a *Agent) sweep() {
	dirs, err := os.ReadDir(filepath.Join(a.cfg.Root, "pods"))
	if err != nil {
		return // there is nothing
	}
	for _, d := range dirs {
		uid := types.UID(d.Name())
		if a.worker(uid) != nil || strings.HasPrefix(d.Name(), ".") {
			continue
		}
		err := errors.Join(a.volumes.TearDown(uid), a.cfg.Cgroups.Remove(uid), os.RemoveAll(a.builder.PodDir(uid)))
		logs, _ := filepath.Glob(filepath.Join(a.cfg.LogRoot, "*_"+d.Name()))
		for _, l := range logs {
			err = errors.Join(err, os.RemoveAll(l))
		}
		if err != nil {
			a.cfg.Log.Warn("what is left of an old pod could not be removed", "uid", uid, "err", err)
		}
	}
}

// podChanged takes in news of a pod from the API.
func (a *Agent) podChanged(old, pod *corev1.Pod) {
	if old != nil && (pod == nil || pod.UID != old.UID) {
		if w := a.worker(old.UID); w != nil {
			w.post(func() { w.apiGone(old) })
		}
	}
	if pod != nil {
		a.desire(pod)
	}
}

// desire hands a pod to its worker, making one on first sight. A pod that has ended and of which nothing is here needs none, unless it is
// being deleted.
func (a *Agent) desire(pod *corev1.Pod) {
	a.mu.Lock()
	w := a.workers[pod.UID]
	if w == nil {
		w = newWorker(a, pod)
		a.workers[pod.UID] = w
		if a.started {
			defer w.start()
		}
	}
	fresh := !w.known
	w.known = true
	a.mu.Unlock()
	if fresh {
		verdict := a.admit(pod)
		w.post(func() { w.meet(pod, verdict) })
		return
	}
	w.post(func() { w.update(pod) })
}

func (a *Agent) worker(uid types.UID) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workers[uid]
}

// forget drops a worker that has nothing left to do.
func (a *Agent) forget(w *worker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.workers[w.uid] == w {
		delete(a.workers, w.uid)
	}
	for id, uid := range a.ids {
		if uid == w.uid {
			delete(a.ids, id)
		}
	}
}

func (a *Agent) all() []*worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*worker, 0, len(a.workers))
	for _, w := range a.workers {
		out = append(out, w)
	}
	return out
}

// objectChanged wakes a pod whose config map or secret has changed: volumes are renewed, and what waited for the object tries again.
func (a *Agent) objectChanged(uid types.UID, key objects.Key) {
	w := a.worker(uid)
	if w == nil {
		return
	}
	w.post(func() {
		w.mem.VolumesStale = true
		w.mem.Volumes = machine.Retry{}
		for _, c := range w.mem.Containers {
			if c.Waiting.Reason == reasonConfig || key.Resource == "secrets" && c.Waiting.Reason == pull.ImagePullBackOff {
				c.Failure = machine.Retry{}
			}
		}
	})
}

// sandboxHandler answers the runtime handler of a pod's RuntimeClass; empty is the default one.
func (a *Agent) sandboxHandler(pod *corev1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, ok := a.classes.Get("", *name)
	if !ok {
		return "", fmt.Errorf("RuntimeClass %q not found", *name)
	}
	return class.Handler, nil
}

// housekeep does what no event asks for: log rotation, limits of emptyDirs, image garbage.
func (a *Agent) housekeep(ctx context.Context) {
	tick := a.cfg.Clock.NewTicker(10 * time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		a.rotateLogs(ctx)
		a.checkEmptyDirs()
		a.devices.Sweep(ctx, func(uid types.UID) bool { return a.worker(uid) != nil })
		if n%30 == 0 {
			if err := a.collectImages(ctx); err != nil && !errors.Is(err, context.Canceled) {
				a.cfg.Log.Warn("image garbage collection", "err", err)
			}
		}
	}
}
