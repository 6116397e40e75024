// Package fake is a container runtime in memory: it speaks the same two CRI interfaces as a real one, sends container events, writes log
// files in the CRI format, and "runs" containers as functions. Tests of the node agent and fast end-to-end clusters stand on it.
//
// Every image is present unless Missing says otherwise, sandboxes get addresses from Config.PodCIDR, and a container runs the program
// registered for its image, or Shell, which understands a few commands and otherwise runs until it is stopped.
// Faults can be injected: a call can fail (Fail), an event stream can break (BreakStreams), a sandbox or a container can die (KillSandbox, Exit).
//
// Safe for concurrent use. It makes no process, mount, namespace or cgroup, and does not stream exec, attach or port-forward.
package fake

import (
	"context"
	"fmt"
	"net/netip"
	"sort"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

var (
	_ internalapi.RuntimeService      = (*Runtime)(nil)
	_ internalapi.ImageManagerService = (*Runtime)(nil)
)

// Config is what a fake runtime needs; the zero value works.
type Config struct {
	Clock   clock.Clock // default: the real one
	PodCIDR string      // default: 10.244.0.0/16
}

// ExecFunc answers ExecSync.
type ExecFunc func(c *runtimeapi.ContainerStatus, cmd []string) (stdout, stderr string, code int)

// Runtime is the fake. Make it with New.
type Runtime struct {
	cfg Config

	mu         sync.Mutex
	next       int
	addr       netip.Addr
	sandboxes  map[string]*sandbox
	containers map[string]*container
	streams    map[*stream]bool
	programs   map[string]Program
	images     map[string]*runtimeapi.Image
	missing    map[string]bool
	pull       PullFunc
	pulls      []Pull
	exec       ExecFunc
	failures   map[string][]error
	notReady   string
	calls      []string
}

// New makes a runtime that is ready.
func New(cfg Config) *Runtime {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.PodCIDR == "" {
		cfg.PodCIDR = "10.244.0.0/16"
	}
	prefix, err := netip.ParsePrefix(cfg.PodCIDR)
	if err != nil {
		prefix = netip.MustParsePrefix("10.244.0.0/16")
	}
	return &Runtime{
		cfg: cfg, addr: prefix.Addr().Next(),
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, streams: map[*stream]bool{},
		programs: map[string]Program{}, images: map[string]*runtimeapi.Image{}, missing: map[string]bool{},
		failures: map[string][]error{},
	}
}

// Fail makes the next call of the named CRI method (such as "RunPodSandbox") fail with err; calls of Fail queue up.
func (r *Runtime) Fail(method string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures[method] = append(r.failures[method], err)
}

// OnExec sets what ExecSync answers; without it every command succeeds silently.
func (r *Runtime) OnExec(f ExecFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exec = f
}

// SetNetworkNotReady makes Status report a network that is not ready for reason; an empty reason makes it ready again.
func (r *Runtime) SetNetworkNotReady(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notReady = reason
}

// Calls lists the state-changing CRI calls so far, such as "StopContainer web", in order.
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

// Find returns the newest container of that name in the pod, or nil.
func (r *Runtime) Find(pod, name string) *runtimeapi.ContainerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest *container
	for _, c := range r.containers {
		if c.status.Metadata.Name == name && c.sandbox.config.Metadata.Name == pod && (newest == nil || c.seq > newest.seq) {
			newest = c
		}
	}
	if newest == nil {
		return nil
	}
	return newest.snapshot()
}

// ContainerConfig returns the config a container was created with, or nil.
func (r *Runtime) ContainerConfig(id string) *runtimeapi.ContainerConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c.config
	}
	return nil
}

// SandboxConfig returns the config of the newest sandbox of a pod, or nil.
func (r *Runtime) SandboxConfig(pod string) *runtimeapi.PodSandboxConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest *sandbox
	for _, s := range r.sandboxes {
		if s.config.Metadata.Name == pod && (newest == nil || s.seq > newest.seq) {
			newest = s
		}
	}
	if newest == nil {
		return nil
	}
	return newest.config
}

// Size returns how many sandboxes and containers there are, in any state.
func (r *Runtime) Size() (sandboxes, containers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sandboxes), len(r.containers)
}

// fail returns the injected error of method, if one waits. r.mu is held.
func (r *Runtime) fail(method string) error {
	queue := r.failures[method]
	if len(queue) == 0 {
		return nil
	}
	r.failures[method] = queue[1:]
	return queue[0]
}

func (r *Runtime) id(kind string) (string, int) {
	r.next++
	return fmt.Sprintf("%s%060x", kind, r.next), r.next
}

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", what, id)
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// Version answers a fixed version.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "v1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status answers a ready runtime, and the network as SetNetworkNotReady left it.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("Status"); err != nil {
		return nil, err
	}
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: r.notReady == ""}
	if r.notReady != "" {
		network.Reason, network.Message = "NetworkPluginNotReady", r.notReady
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, network}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// UpdateRuntimeConfig accepts anything.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// RuntimeConfig answers the cgroupfs driver.
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// Close does nothing: containers outlive their clients.
func (r *Runtime) Close(context.Context) error { return nil }

func (r *Runtime) sortedContainers(sandboxID string) []*container {
	var out []*container
	for _, c := range r.containers {
		if sandboxID == "" || c.sandbox.status.Id == sandboxID {
			out = append(out, c)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].seq < out[j].seq })
	return out
}
