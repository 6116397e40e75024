// Package dra gets the devices of pods' ResourceClaims ready on this node: it has drivers prepare them before a pod's sandbox is made, says which CDI devices each
// container gets, and has drivers undo it once the pod's containers have ended (KEP-4381).
//
// A claim is prepared once for all its pods on the node and undone after the last. What is prepared is written to a file before a driver is asked, so that nothing that a
// driver was asked for is forgotten, whatever crashes. After a restart drivers are asked again when a sandbox is made anew: their calls may be repeated.
//
// A driver registers through package pluginregistry; while one is missing, what needs it fails and says so. The ResourceSlices of a driver that went and did not come back for half
// a minute are deleted. Safe for concurrent use; drivers are asked one after the other.
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
	claims "k8s.io/dynamic-resource-allocation/resourceclaim"
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
	// Changed hears of pods whose devices' health is another. It must not block; nil: nobody does.
	Changed func(pods []types.UID)
	Clock   clock.WithTicker // nil: the real one
	Log     *slog.Logger     // nil: slog.Default()
}

// Manager prepares claims. Make it with New.
type Manager struct {
	cfg Config

	calls   sync.Mutex // one conversation with drivers at a time
	mu      sync.Mutex
	claims  map[types.UID]*claim
	drivers map[string][]*driver // the newest last
	lost    map[string]time.Time // drivers that went, and when
	health  map[deviceKey]health
}

// claim is one that drivers were asked to prepare.
type claim struct {
	UID       types.UID                `json:"uid"`
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Pods      []types.UID              `json:"pods"`
	Drivers   []string                 `json:"drivers"`
	Devices   map[string][]preparation `json:"devices,omitempty"` // by driver

	prepared bool // in the lifetime of this process
}

// preparation is what a driver says of one device.
type preparation struct {
	Pool     string   `json:"pool"`
	Device   string   `json:"device"`
	Requests []string `json:"requests,omitempty"` // none means all
	CDI      []string `json:"cdi,omitempty"`
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
	m := &Manager{cfg: c, health: map[deviceKey]health{}, claims: map[types.UID]*claim{}, drivers: map[string][]*driver{}, lost: map[string]time.Time{}}
	if err := m.load(); err != nil {
		return nil, fmt.Errorf("prepared devices: %w", err)
	}
	return m, nil
}

// wants tells whether a pod has claims.
func wants(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// Prepare has all claims of a pod prepared. It may be repeated.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if !wants(pod) {
		return nil
	}
	m.calls.Lock()
	defer m.calls.Unlock()
	var ask []*claim
	for _, ref := range refs(pod) {
		if ref.err != nil {
			return ref.err
		}
		c, err := m.claimFor(ctx, pod, ref)
		if err != nil {
			return err
		}
		if !c.prepared {
			ask = append(ask, c)
		}
	}
	if err := m.save(); err != nil {
		return fmt.Errorf("prepared devices: %w", err)
	}
	return m.prepare(ctx, ask)
}

// ref is a claim that a pod names.
type ref struct {
	name  string
	owned bool // it must have been made for the pod
	err   error
}

func refs(pod *corev1.Pod) []ref {
	var out []ref
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := claims.Name(pod, &pod.Spec.ResourceClaims[i])
		switch {
		case err != nil:
			out = append(out, ref{err: err})
		case name != nil:
			out = append(out, ref{name: *name, owned: owned})
		}
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		out = append(out, ref{name: e.ResourceClaimName, owned: true})
	}
	return out
}

// claimFor reads a claim, checks that the pod may use it, and puts the pod down for it.
func (m *Manager) claimFor(ctx context.Context, pod *corev1.Pod, r ref) (*claim, error) {
	got, err := client.Of[*resourcev1.ResourceClaim](m.cfg.Transport).Get(ctx, pod.Namespace, r.name)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch ResourceClaim %s referenced by pod %s: %w", r.name, pod.Name, err)
	}
	if r.owned {
		if err := claims.IsForPod(pod, got, false); err != nil {
			return nil, err
		}
	}
	switch {
	case got.Status.Allocation == nil:
		return nil, fmt.Errorf("ResourceClaim %s has no devices yet", r.name)
	case !claims.IsReservedForPod(pod, got, false):
		return nil, fmt.Errorf("pod %s(%s) is not allowed to use ResourceClaim %s(%s)", pod.Name, pod.UID, r.name, got.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claims[got.UID]
	if c == nil {
		c = &claim{UID: got.UID, Namespace: got.Namespace, Name: got.Name, Devices: map[string][]preparation{}}
		for _, d := range got.Status.Allocation.Devices.Results {
			if !slices.Contains(c.Drivers, d.Driver) {
				c.Drivers = append(c.Drivers, d.Driver)
			}
		}
		m.claims[got.UID] = c
	}
	if !slices.Contains(c.Pods, pod.UID) {
		c.Pods = append(c.Pods, pod.UID)
	}
	return c, nil
}

// Devices lists the CDI devices of a container.
func (m *Manager) Devices(pod *corev1.Pod, container *corev1.Container) ([]string, error) {
	var out []string
	add := func(name, request string) error {
		ids, err := m.cdi(pod, name, request)
		for _, id := range ids {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		return err
	}
	for _, rc := range container.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(pc corev1.PodResourceClaim) bool { return pc.Name == rc.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s: the pod has no claim %q", container.Name, rc.Name)
		}
		name, _, err := claims.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != nil {
			if err := add(*name, rc.Request); err != nil {
				return nil, err
			}
		}
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		for _, mapped := range e.RequestMappings {
			if mapped.ContainerName == container.Name {
				if err := add(e.ResourceClaimName, mapped.RequestName); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

func (m *Manager) cdi(pod *corev1.Pod, name, request string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.find(pod, name)
	if c == nil {
		return nil, fmt.Errorf("claim %s is not prepared for pod %s", name, pod.Name)
	}
	var out []string
	for _, driver := range c.Drivers {
		for _, d := range c.Devices[driver] {
			if d.of(request) {
				out = append(out, d.CDI...)
			}
		}
	}
	return out, nil
}

// find is a pod's claim by name; nil if it is not prepared for the pod. m.mu is held.
func (m *Manager) find(pod *corev1.Pod, name string) *claim {
	for _, c := range m.claims {
		if c.Namespace == pod.Namespace && c.Name == name && slices.Contains(c.Pods, pod.UID) {
			return c
		}
	}
	return nil
}

// of tells whether a device is for a request of the claim; empty is all of them.
func (p *preparation) of(request string) bool {
	return request == "" || len(p.Requests) == 0 || slices.ContainsFunc(p.Requests, func(r string) bool { return r == request || claims.BaseRequestRef(r) == request })
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
	if !m.Holds(pod) {
		return nil
	}
	m.calls.Lock()
	defer m.calls.Unlock()
	var undo []*claim
	m.mu.Lock()
	for _, c := range m.claims {
		switch i := slices.Index(c.Pods, pod); {
		case i < 0:
		case len(c.Pods) > 1:
			c.Pods = slices.Delete(c.Pods, i, i+1)
		default:
			undo = append(undo, c)
		}
	}
	m.mu.Unlock()
	err := m.undo(ctx, undo)
	return errors.Join(err, m.save())
}

// Sweep undoes what is left of pods that are no more; it goes on in the background of other calls until all is undone.
func (m *Manager) Sweep(ctx context.Context, exists func(types.UID) bool) {
	for _, pod := range m.pods() {
		if exists(pod) {
			continue
		}
		if err := m.Unprepare(ctx, pod); err != nil {
			m.cfg.Log.Warn("devices of a pod that is gone are not given back; it is tried again", "uid", pod, "error", err)
		}
	}
	m.removeSlices(ctx)
	m.expireHealth()
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
