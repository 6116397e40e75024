package dra

import (
	"context"
	"iter"
	"log/slog"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
)

// Config is what a Book needs. All of it but Transport has defaults; without Transport nothing is written, which is for simulations.
type Config struct {
	Transport client.Transport
	Clock     clock.WithTicker
	Log       *slog.Logger
	Events    func(about client.Object, kind, reason, message string)
	// Go runs what takes its time in the background, and Context is what ends it.
	Go      func(func())
	Context func() context.Context
	// Freed hears that devices that were set aside are free again without that any object says so.
	Freed func()
	// Impatient tells that pods are bound before their devices meet their conditions, for nobody is there who has them met; nil means that they wait.
	Impatient func() bool
}

// Book knows all devices and who has them. Make one with NewBook.
type Book struct {
	config Config

	mu      sync.Mutex
	stock   stock
	memory  memory
	classes map[string]*resourcev1.DeviceClass
	backing map[corev1.ResourceName]*resourcev1.DeviceClass // the extended resources that classes stand for
	epoch   uint64                                          // changes with backing
	claims  map[types.NamespacedName]*entry
	pending map[types.UID]*resourcev1.AllocationResult // set aside, but not seen in a claim yet
	sharing map[types.UID]*sharers                     // who may use and uses what is pending
	writing map[types.UID]*writing                     // claims that are being written
	made    map[types.UID]types.NamespacedName         // by pod: its claim for extended resources
	holders map[poolID]map[*entry]bool                 // the claims that have devices of a pool
	changed chan struct{}                              // closed at the next change of a claim
}

// entry is a claim as it is known, and what of it the ledger counts.
type entry struct {
	claim   *resourcev1.ResourceClaim
	counted *resourcev1.AllocationResult
}

// NewBook makes an empty book.
func NewBook(c Config) *Book {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Events == nil {
		c.Events = func(client.Object, string, string, string) {}
	}
	if c.Go == nil {
		c.Go = func(f func()) { go f() }
	}
	if c.Context == nil {
		c.Context = context.Background
	}
	if c.Freed == nil {
		c.Freed = func() {}
	}
	return &Book{config: c, stock: stock{newInventory(), newLedger(), newSelectors()}, classes: map[string]*resourcev1.DeviceClass{}, claims: map[types.NamespacedName]*entry{},
		pending: map[types.UID]*resourcev1.AllocationResult{}, sharing: map[types.UID]*sharers{}, writing: map[types.UID]*writing{}, made: map[types.UID]types.NamespacedName{}, holders: map[poolID]map[*entry]bool{}, changed: make(chan struct{})}
}

// SetSlice takes in a ResourceSlice's newest state; nil means that it is gone.
func (b *Book) SetSlice(name string, s *resourcev1.ResourceSlice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stock.set(name, s)
}

// SetClass takes in a DeviceClass's newest state; nil means that it is gone.
func (b *Book) SetClass(name string, c *resourcev1.DeviceClass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c == nil {
		delete(b.classes, name)
	} else {
		b.classes[name] = c
	}
	b.backing = map[corev1.ResourceName]*resourcev1.DeviceClass{}
	for _, c := range b.classes {
		b.backing[corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+c.Name)] = c
		if n := c.Spec.ExtendedResourceName; n != nil {
			if other := b.backing[corev1.ResourceName(*n)]; other == nil || newerClass(c, other) {
				b.backing[corev1.ResourceName(*n)] = c
			}
		}
	}
	b.epoch++
	b.memory = memory{}
}

// newerClass tells which of two classes stands for an extended resource that both name: the later one, then the first by name.
func newerClass(a, b *resourcev1.DeviceClass) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

// Backs tells whether a device class stands for an extended resource, so that devices are given out for it where a node has none by that name. Epoch changes
// when an answer may have.
func (b *Book) Backs(resource corev1.ResourceName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.backing[resource] != nil
}

// Epoch changes when an answer of Backs may have.
func (b *Book) Epoch() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.epoch
}

func (b *Book) class(name string) (*resourcev1.DeviceClass, bool) {
	c, ok := b.classes[name]
	return c, ok
}

// SetClaim takes in a claim's newest state, of which the caller heard by a watch; a nil new means that it is gone. It tells whether that freed devices.
func (b *Book) SetClaim(old, new *resourcev1.ResourceClaim) (freed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if new == nil || old != nil && old.UID != new.UID {
		freed = b.forget(old)
	}
	if new != nil {
		freed = b.put(new) || freed
	}
	b.tick()
	return freed
}

// wrote takes in a claim that was written, before the watch brings it.
func (b *Book) wrote(claim *resourcev1.ResourceClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(claim)
	b.tick()
}

func (b *Book) tick() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func keyOf(c *resourcev1.ResourceClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

func (b *Book) put(claim *resourcev1.ResourceClaim) (freed bool) {
	e := b.claims[keyOf(claim)]
	switch {
	case e == nil:
		e = &entry{}
		b.claims[keyOf(claim)] = e
	case e.claim.UID == claim.UID && version(claim) < version(e.claim):
		return false // what was written is newer than what the watch has brought
	case e.claim.UID != claim.UID:
		freed = b.forget(e.claim)
		e = &entry{}
		b.claims[keyOf(claim)] = e
	}
	e.claim = claim
	if pod := extendedFor(claim); pod != "" {
		b.made[pod] = keyOf(claim)
	}
	if claim.Status.Allocation != nil {
		b.drop(claim.UID) // now the claim itself says it
	}
	if e.counted != claim.Status.Allocation {
		freed = freed || e.counted != nil && claim.Status.Allocation == nil
		b.count(e, claim.Status.Allocation)
	}
	return freed
}

func (b *Book) forget(claim *resourcev1.ResourceClaim) (freed bool) {
	if claim == nil {
		return false
	}
	e := b.claims[keyOf(claim)]
	if e == nil || e.claim.UID != claim.UID {
		return false
	}
	delete(b.claims, keyOf(claim))
	if pod := extendedFor(claim); pod != "" && b.made[pod] == keyOf(claim) {
		delete(b.made, pod)
	}
	freed = e.counted != nil
	b.count(e, nil)
	return freed
}

// count has the ledger count an allocation of a claim in place of the one before.
func (b *Book) count(e *entry, a *resourcev1.AllocationResult) {
	b.stock.give(e.counted)
	for id := range poolsOf(e.counted) {
		if delete(b.holders[id], e); len(b.holders[id]) == 0 {
			delete(b.holders, id)
		}
	}
	b.stock.take(a)
	for id := range poolsOf(a) {
		if b.holders[id] == nil {
			b.holders[id] = map[*entry]bool{}
		}
		b.holders[id][e] = true
	}
	e.counted = a
}

// poolsOf are the pools that an allocation takes from; the same may come several times.
func poolsOf(a *resourcev1.AllocationResult) iter.Seq[poolID] {
	return func(yield func(poolID) bool) {
		for _, r := range results(a) {
			if !yield(poolID{r.Driver, r.Pool}) {
				return
			}
		}
	}
}

func version(c *resourcev1.ResourceClaim) uint64 {
	v, _ := strconv.ParseUint(c.ResourceVersion, 10, 64)
	return v
}

// extendedFor is the pod for whose extended resources a claim was made.
func extendedFor(c *resourcev1.ResourceClaim) types.UID {
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		return ""
	}
	for _, o := range c.OwnerReferences {
		if o.Controller != nil && *o.Controller && o.Kind == "Pod" {
			return o.UID
		}
	}
	return ""
}

// setAside counts an allocation that no claim carries yet.
func (b *Book) setAside(claim types.UID, a *resourcev1.AllocationResult) {
	b.drop(claim)
	b.pending[claim] = a
	b.stock.take(a)
}

// drop no longer counts what was set aside for a claim.
func (b *Book) drop(claim types.UID) bool {
	a, ok := b.pending[claim]
	if ok {
		b.stock.give(a)
		delete(b.pending, claim)
		delete(b.sharing, claim)
	}
	return ok
}

// Claim is a claim as it is known.
func (b *Book) Claim(namespace, name string) (*resourcev1.ResourceClaim, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.claims[types.NamespacedName{Namespace: namespace, Name: name}]
	if e == nil {
		return nil, false
	}
	return e.claim, true
}

// next is closed at the next change of a claim.
func (b *Book) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}
