// Package volume sets up the volumes of the node's pods under <Root>/pods/<uid>/volumes, keeps their content fresh, and removes them.
//
// SetUp is idempotent: calling it again renews content that has changed, by an atomic switch of the whole volume, so that a
// container never sees half an update. What holds secrets is kept in memory (a tmpfs of the node), never on disk. A source that this node
// can't provide gives an error that names it; no volume is ever quietly empty.
//
// Each kind of source is one file. Calls for one pod come one at a time; different pods may be worked on at once.
package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/node/downward"
)

// Objects answers config maps and secrets.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Images makes the images of image volumes present, and answers their references.
type Images interface {
	Ensure(ctx context.Context, pod *corev1.Pod, image string, policy corev1.PullPolicy) (ref string, err error)
}

// Config is what a Manager needs.
type Config struct {
	Root      string
	Objects   Objects
	Images    Images
	Transport client.Transport // for service account tokens and persistent volume claims
	// Mounter mounts file systems. Without one nothing is mounted: memory volumes and secrets are plain folders, which is for tests and
	// fake runtimes only.
	Mounter Mounter
	// Facts answers what the downward API needs to know.
	Facts func(pod *corev1.Pod) downward.Facts
	// RecursiveReadOnly says that the runtime can make mounts read-only recursively.
	RecursiveReadOnly bool
	Clock             clock.Clock
}

// Manager sets up volumes. Make it with New.
type Manager struct {
	cfg    Config
	tokens *tokens

	mu    sync.Mutex
	ready map[types.UID]map[string]mounted
	ram   bool // the node's memory folder is mounted
}

// mounted is a volume that is set up.
type mounted struct {
	path     string
	readOnly bool
	image    *runtimeapi.ImageSpec
	host     bool // it is the host's own, not made for the pod: its SELinux label stays
}

// New makes a Manager.
func New(cfg Config) *Manager {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Facts == nil {
		cfg.Facts = func(*corev1.Pod) downward.Facts { return downward.Facts{} }
	}
	return &Manager{cfg: cfg, tokens: newTokens(cfg.Transport, cfg.Clock), ready: map[types.UID]map[string]mounted{}}
}

// Error is the failure of one volume.
type Error struct {
	Volume string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// job is the setting up of one pod's volumes.
type job struct {
	*Manager
	ctx     context.Context
	pod     *corev1.Pod
	refresh time.Time
}

// SetUp makes the pod's volumes ready or renews them. refresh is when it must be called again, or zero. The error joins one *Error for each
// volume that failed; the others are ready nevertheless.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod) (refresh time.Time, err error) {
	j := &job{Manager: m, ctx: ctx, pod: pod}
	if err := os.MkdirAll(m.podDir(pod.UID), 0o750); err != nil {
		return time.Time{}, err
	}
	done := map[string]mounted{}
	var failed []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		got, err := j.setUp(v)
		if err != nil {
			failed = append(failed, &Error{Volume: v.Name, Err: err})
			continue
		}
		done[v.Name] = got
	}
	m.mu.Lock()
	m.ready[pod.UID] = done
	m.mu.Unlock()
	return j.refresh, errors.Join(failed...)
}

func (j *job) setUp(v *corev1.Volume) (mounted, error) {
	s := &v.VolumeSource
	switch {
	case s.EmptyDir != nil:
		return j.emptyDir(v.Name, s.EmptyDir)
	case s.HostPath != nil:
		return j.hostPath(s.HostPath.Path, s.HostPath.Type)
	case s.ConfigMap != nil:
		return j.configMap(v.Name, s.ConfigMap)
	case s.Secret != nil:
		return j.secret(v.Name, s.Secret)
	case s.DownwardAPI != nil:
		return j.downward(v.Name, s.DownwardAPI)
	case s.Projected != nil:
		return j.projected(v.Name, s.Projected)
	case s.Image != nil:
		return j.image(s.Image)
	case s.PersistentVolumeClaim != nil:
		return j.claim(s.PersistentVolumeClaim.ClaimName, s.PersistentVolumeClaim.ReadOnly, false)
	case s.Ephemeral != nil:
		return j.claim(ephemeral.VolumeClaimName(j.pod, v), false, true)
	}
	return mounted{}, refuseInline(v, j.pod.Namespace)
}

// Path answers where a volume of a pod is on the host.
func (m *Manager) Path(pod *corev1.Pod, volume string) (string, error) {
	got, err := m.find(pod.UID, volume)
	return got.path, err
}

// File answers the content of a file in a volume.
func (m *Manager) File(pod *corev1.Pod, volume, path string) ([]byte, error) {
	dir, err := m.Path(pod, volume)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(path)
}

func (m *Manager) find(uid types.UID, volume string) (mounted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	got, ok := m.ready[uid][volume]
	if !ok {
		return mounted{}, fmt.Errorf("cannot find volume %q", volume)
	}
	return got, nil
}

// TearDown unmounts and removes all volumes of a pod. Doing so again is no error.
func (m *Manager) TearDown(uid types.UID) error {
	m.mu.Lock()
	delete(m.ready, uid)
	m.mu.Unlock()
	m.tokens.forget(uid)
	for _, dir := range []string{filepath.Join(m.podDir(uid), "volume-subpaths"), filepath.Join(m.podDir(uid), "volumes")} {
		if err := m.removeTree(dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(m.memoryDir(), string(uid)))
}

// removeTree unmounts what is mounted under dir, and removes it. A mount that can't be undone keeps its content safe: nothing is removed.
func (m *Manager) removeTree(dir string) error {
	if _, err := os.Lstat(dir); os.IsNotExist(err) {
		return nil
	}
	if m.cfg.Mounter != nil {
		if err := m.cfg.Mounter.UnmountUnder(dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

func (m *Manager) podDir(uid types.UID) string { return filepath.Join(m.cfg.Root, "pods", string(uid)) }

// dir is the folder of a volume by the name of its plugin, as the kubelet names it.
func (j *job) dir(plugin, volume string) string {
	return filepath.Join(j.podDir(j.pod.UID), "volumes", "kubernetes.io~"+plugin, volume)
}

// memoryDir is the tmpfs that holds every secret and token of the node.
func (m *Manager) memoryDir() string { return filepath.Join(m.cfg.Root, "pods", ".memory") }

// secretDir is the folder of a volume in memory.
func (j *job) secretDir(plugin, volume string) (string, error) {
	if err := j.mountMemory(); err != nil {
		return "", fmt.Errorf("the node's memory folder: %w", err)
	}
	return filepath.Join(j.memoryDir(), string(j.pod.UID), "kubernetes.io~"+plugin, volume), nil
}

func (m *Manager) mountMemory() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ram || m.cfg.Mounter == nil {
		return nil
	}
	dir := m.memoryDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	is, err := m.cfg.Mounter.IsMount(dir)
	if err == nil && !is {
		err = m.cfg.Mounter.Tmpfs(dir, 0, "mode=0711")
	}
	m.ram = err == nil
	return err
}

// Close unmounts the node's memory folder, which must not be in use any more. It is for taking a node down, not for a restart.
func (m *Manager) Close() error {
	if m.cfg.Mounter == nil {
		return nil
	}
	return m.removeTree(m.memoryDir())
}
