// Package dra gets the devices of pods' ResourceClaims ready on this node: it has drivers prepare them before a pod's sandbox is made, says which CDI devices each
// container gets, and has drivers undo it once the pod's containers have ended (KEP-4381).
//
// A claim is prepared once for all its pods on the node and undone after the last. What is prepared is written to a file before a driver is asked, so that nothing that a
// driver was asked for is forgotten, whatever crashes. After a restart drivers are asked again when a sandbox is made anew: their calls may be repeated.
//
// A driver registers through package pluginregistry; while one is missing, what needs it fails and says so. The ResourceSlices of a driver that went and did not come back for half
// a minute are deleted.
//
// Safe for concurrent use. Of one claim, one thing is done at a time; claims don't wait for each other, nor does one driver for another: one that does not answer delays
// only the pods that need it, and Waits tells of it.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// Config is what a Manager needs.
type Config struct {
	// Node is the node's name, and File is where what is prepared is kept.
	Node, File string
	// Transport reaches the API as the node.
	Transport client.Transport
	// Changed hears of pods whose devices' health, or whose answer to Waits, is another. It must not block; nil: nobody does.
	Changed func(pods []types.UID)
	// Timeout bounds one call to a driver; default 45 s, as the kubelet's.
	Timeout time.Duration
	Clock   clock.WithTicker // nil: the real one
	Log     *slog.Logger     // nil: slog.Default()
}

// Manager prepares claims. Make it with New.
type Manager struct {
	cfg  Config
	file stateFile

	ctx    context.Context // of what is undone in the background
	cancel context.CancelFunc
	bg     sync.WaitGroup

	mu      sync.Mutex
	claims  map[types.UID]*claim
	drivers map[string][]*driver // the newest last
	lost    map[string]time.Time // drivers that went, and when
	health  map[deviceKey]health
	calls   map[*call]bool     // that drivers have not answered
	undoing map[types.UID]bool // pods that are gone and whose claims are being undone
	version uint64             // of what the file should have
}

// New makes a Manager from what an earlier one left.
func New(c Config) (*Manager, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Changed == nil {
		c.Changed = func([]types.UID) {}
	}
	if c.Timeout <= 0 {
		c.Timeout = callTimeout
	}
	m := &Manager{cfg: c, file: stateFile{path: c.File}, health: map[deviceKey]health{}, claims: map[types.UID]*claim{}, drivers: map[string][]*driver{}, lost: map[string]time.Time{},
		calls: map[*call]bool{}, undoing: map[types.UID]bool{}}
	list, err := m.file.read()
	if err != nil {
		return nil, fmt.Errorf("prepared devices: %w", err)
	}
	for _, c := range list {
		m.claims[c.UID] = c
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// wants tells whether a pod has claims.
func wants(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// Prepare has all claims of a pod prepared. It may be repeated: what was prepared for the pod, or for another that shares a claim, is not asked for again.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if !wants(pod) {
		return nil
	}
	var list []*claim
	for _, ref := range refs(pod) {
		if ref.err != nil {
			return ref.err
		}
		c, err := m.claimFor(ctx, pod, ref)
		if err != nil {
			return err
		}
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	if err := m.save(); err != nil {
		return err
	}
	err := m.converse(ctx, &preparing{m: m, pod: pod}, list)
	return errors.Join(err, m.save())
}

// preparing is the conversation by which claims are prepared for a pod.
type preparing struct {
	m   *Manager
	pod *corev1.Pod
}

// needed implements topic.
func (p *preparing) needed(c *claim) (bool, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.m.claims[c.UID] != c || !slices.Contains(c.Pods, p.pod.UID) {
		return false, fmt.Errorf("ResourceClaim %s was given back for pod %s while it waited to be prepared", c.Name, p.pod.Name)
	}
	return !c.prepared, nil
}

// ask implements topic.
func (p *preparing) ask(ctx context.Context, driver string, list []*claim) map[*claim]error {
	return p.m.prepareWith(ctx, driver, list)
}

// end implements topic.
func (p *preparing) end(c *claim, err error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	c.prepared = err == nil
	p.m.version++
}

// Holds tells whether something is prepared for a pod.
func (m *Manager) Holds(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if slices.Contains(c.Pods, pod) {
			return true
		}
	}
	return false
}

// Unprepare takes a pod off its claims, and has those undone that no other pod uses. What could not be undone stays with the pod.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) error {
	var list []*claim
	m.mu.Lock()
	for _, c := range m.claims {
		switch i := slices.Index(c.Pods, pod); {
		case i < 0:
		case len(c.Pods) > 1:
			c.Pods = slices.Delete(c.Pods, i, i+1)
			m.version++
		default:
			list = append(list, c)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(list, compare)
	err := m.converse(ctx, &undoing{m: m, pod: pod}, list)
	return errors.Join(err, m.save())
}

// undoing is the conversation by which claims are undone after their last pod.
type undoing struct {
	m   *Manager
	pod types.UID
}

// needed implements topic. Another pod may have come since, or somebody else may have done it.
func (u *undoing) needed(c *claim) (bool, error) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	i := slices.Index(c.Pods, u.pod)
	if i < 0 {
		return false, nil
	}
	if len(c.Pods) > 1 {
		c.Pods = slices.Delete(c.Pods, i, i+1)
		u.m.version++
		return false, nil
	}
	c.prepared = false // some drivers may undo it and others fail: whoever comes to use it meanwhile has it prepared anew
	return true, nil
}

// ask implements topic.
func (u *undoing) ask(ctx context.Context, driver string, list []*claim) map[*claim]error {
	return u.m.undoWith(ctx, driver, list)
}

// end implements topic.
func (u *undoing) end(c *claim, err error) {
	if err != nil {
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if i := slices.Index(c.Pods, u.pod); i >= 0 {
		c.Pods = slices.Delete(c.Pods, i, i+1)
	}
	if len(c.Pods) == 0 {
		delete(u.m.claims, c.UID)
	}
	u.m.version++
}

// Sweep has what is left of pods that are no more undone in the background, deletes what drivers published that went, and forgets health that no longer holds.
func (m *Manager) Sweep(ctx context.Context, exists func(types.UID) bool) {
	for _, pod := range m.pods() {
		if !exists(pod) {
			m.undoBehind(pod)
		}
	}
	m.removeSlices(ctx)
	m.expireHealth()
}

// undoBehind undoes a pod's claims beside other things, once at a time.
func (m *Manager) undoBehind(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.undoing[pod] || m.ctx.Err() != nil {
		return
	}
	m.undoing[pod] = true
	m.bg.Go(func() {
		err := m.Unprepare(m.ctx, pod)
		m.mu.Lock()
		delete(m.undoing, pod)
		m.mu.Unlock()
		if err != nil && m.ctx.Err() == nil {
			m.cfg.Log.Warn("devices of a pod that is gone are not given back; it is tried again", "uid", pod, "error", err)
		}
	})
}

func (m *Manager) pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for _, c := range m.claims {
		for _, p := range c.Pods {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// comeback is how long a driver may be away before its devices count as gone.
const comeback = 30 * time.Second

// removeSlices deletes what drivers published that are gone.
func (m *Manager) removeSlices(ctx context.Context) {
	m.mu.Lock()
	var gone []string
	for name, since := range m.lost {
		if m.cfg.Clock.Since(since) >= comeback {
			gone = append(gone, name)
		}
	}
	m.mu.Unlock()
	for _, name := range gone {
		ref := resource.Ref{GroupVersionResource: client.ResourceOf[*resourcev1.ResourceSlice]()}
		err := m.cfg.Transport.DeleteCollection(ctx, ref, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + m.cfg.Node + "," +
			resourcev1.ResourceSliceSelectorDriver + "=" + name})
		if err != nil {
			m.cfg.Log.Warn("devices of a driver that is gone are still published", "driver", name, "error", err)
			continue
		}
		m.mu.Lock()
		delete(m.lost, name)
		m.mu.Unlock()
	}
}
