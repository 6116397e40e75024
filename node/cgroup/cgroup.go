// Package cgroup keeps the control groups above containers: one for all pods, one for each lower quality-of-service class, one for each pod, with
// the limits that follow from the pods' requests and limits. The container runtime makes the groups of containers below.
//
// It works on cgroup v2, v1, and the mix of both, with the cgroupfs driver: groups are folders under Config.Mount. Everything is idempotent.
// Safe for concurrent use. It never moves or kills a process.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/yare-project/yare/node/machine"
)

// Groups is what the node agent needs of cgroups. A fake runtime has none: see None.
type Groups interface {
	// Pod makes or updates a pod's group and answers its path, which is the cgroup parent of the pod's containers.
	Pod(pod *corev1.Pod) (string, error)
	// Remove removes a pod's group. One that is gone is no error.
	Remove(uid types.UID) error
	// Balance gives each class the CPU weight that its pods request.
	Balance(pods []*corev1.Pod) error
}

// None is Groups for runtimes that have no cgroups.
type None struct{}

// Pod answers no parent.
func (None) Pod(*corev1.Pod) (string, error) { return "", nil }

// Remove does nothing.
func (None) Remove(types.UID) error { return nil }

// Balance does nothing.
func (None) Balance([]*corev1.Pod) error { return nil }

// Config is what Tree needs.
type Config struct {
	// Mount is where cgroups are mounted; empty means /sys/fs/cgroup.
	Mount string
	// Parent is the group of all pods; empty means /kubepods.
	Parent string
	// CPUs is the machine's size, for the weight of all pods together; zero means what the Go runtime says.
	CPUs int
}

// Tree is Groups on this machine.
type Tree struct {
	cfg     Config
	unified bool
	roots   []string // one on v2, one for each hierarchy on v1
	mu      sync.Mutex
	weight  int64
}

// New finds out how cgroups are mounted. It makes nothing yet.
func New(cfg Config) (*Tree, error) {
	if cfg.Mount == "" {
		cfg.Mount = "/sys/fs/cgroup"
	}
	if cfg.Parent == "" {
		cfg.Parent = "/kubepods"
	}
	if cfg.CPUs == 0 {
		cfg.CPUs = runtime.NumCPU()
	}
	t := &Tree{cfg: cfg}
	if _, err := os.Stat(filepath.Join(cfg.Mount, "cgroup.controllers")); err == nil {
		t.unified, t.roots = true, []string{cfg.Mount}
		return t, nil
	}
	entries, err := os.ReadDir(cfg.Mount)
	if err != nil {
		return nil, fmt.Errorf("cgroups are not mounted at %s: %w", cfg.Mount, err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		// Joined controllers (cpu,cpuacct) have links by their single names.
		real, err := filepath.EvalSymlinks(filepath.Join(cfg.Mount, e.Name()))
		if err != nil || seen[real] {
			continue
		}
		if _, err := os.Stat(filepath.Join(real, "cgroup.procs")); err == nil {
			seen[real] = true
			t.roots = append(t.roots, real)
		}
	}
	if t.controller("memory") == "" || t.controller("cpu") == "" {
		return nil, fmt.Errorf("no cpu and memory cgroup controllers are mounted under %s; boot with cgroup v2 or mount them", cfg.Mount)
	}
	return t, nil
}

// Version is 1 or 2.
func (t *Tree) Version() int {
	if t.unified {
		return 2
	}
	return 1
}

// controller answers the root of a v1 controller's hierarchy.
func (t *Tree) controller(name string) string {
	if t.unified {
		return t.roots[0]
	}
	real, err := filepath.EvalSymlinks(filepath.Join(t.cfg.Mount, name))
	if err != nil {
		return ""
	}
	return real
}

func (t *Tree) class(c corev1.PodQOSClass) string {
	switch c {
	case corev1.PodQOSBurstable:
		return filepath.Join(t.cfg.Parent, "burstable")
	case corev1.PodQOSBestEffort:
		return filepath.Join(t.cfg.Parent, "besteffort")
	}
	return t.cfg.Parent
}

// Pod makes or updates a pod's group.
func (t *Tree) Pod(pod *corev1.Pod) (string, error) {
	class := qos.GetPodQOS(pod)
	path := filepath.Join(t.class(class), "pod"+string(pod.UID))
	if err := t.make(path); err != nil {
		return "", fmt.Errorf("cgroup of the pod: %w", err)
	}
	if err := t.limit(path, podLimits(pod, class)); err != nil {
		return "", fmt.Errorf("limits of the pod: %w", err)
	}
	return path, nil
}

// Balance gives the burstable class a weight by the CPU its pods request, and the best-effort class the least.
func (t *Tree) Balance(pods []*corev1.Pod) error {
	var sum int64
	for _, p := range pods {
		if qos.GetPodQOS(p) == corev1.PodQOSBurstable {
			r := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
			sum += r.Cpu().MilliValue()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.weight == sum+1 { // zero means: never set
		return nil
	}
	for path, shares := range map[string]int64{
		t.cfg.Parent:                     machine.Shares(int64(t.cfg.CPUs) * 1000),
		t.class(corev1.PodQOSBurstable):  machine.Shares(sum),
		t.class(corev1.PodQOSBestEffort): machine.Shares(0),
	} {
		if err := t.make(path); err != nil {
			return err
		}
		if err := t.limit(path, limits{shares: shares}); err != nil {
			return err
		}
	}
	t.weight = sum + 1
	return nil
}

// make makes a group and those above it in every hierarchy.
func (t *Tree) make(path string) error {
	for _, root := range t.roots {
		if t.unified {
			if err := t.delegate(root, path); err != nil {
				return err
			}
			continue
		}
		dir := root
		for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := inheritCPUSet(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate makes a v2 group with every controller that its ancestors can pass on.
func (t *Tree) delegate(root, path string) error {
	dir := root
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, c := range strings.Fields(string(controllers)) {
			// A controller that can't be passed on (cpu with realtime tasks, for one) is missed where its limit is set.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// inheritCPUSet copies the CPUs and memory nodes of the parent: a v1 group without them can hold no process.
func inheritCPUSet(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(have)) != "" {
			continue
		}
		parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), parent, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes a pod's group from every hierarchy and class.
func (t *Tree) Remove(uid types.UID) error {
	var errs []error
	for _, root := range t.roots {
		for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
			errs = append(errs, removeTree(filepath.Join(root, t.class(class), "pod"+string(uid))))
		}
	}
	return errors.Join(errs...)
}

// Close removes the groups of all pods. It fails while a process is left in one.
func (t *Tree) Close() error {
	var errs []error
	for _, root := range t.roots {
		errs = append(errs, removeTree(filepath.Join(root, t.cfg.Parent)))
	}
	return errors.Join(errs...)
}

// removeTree removes a group and those below it, deepest first.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cgroup %s: %w", dir, err)
	}
	return nil
}
