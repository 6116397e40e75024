package quota

import (
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Patience is how long a charge waits for its object to be seen. A request that was charged and then failed holds its charge for this long.
const Patience = 30 * time.Second

// Ledger remembers charges whose objects no watcher has seen yet. Admission charges a quota before the object is stored; a count that is made in between
// would not find the object and take the charge back, and two requests would get what is there for one.
//
// It knows the charges of its own process only: where several servers admit, a count on one of them may miss what another has just charged, as
// in Kubernetes. It is safe for concurrent use; make one with NewLedger.
type Ledger struct {
	mu      sync.Mutex
	charges map[types.UID][]*Charge
	order   []*Charge          // by age, with those that are settled already
	waiting map[types.UID]bool // quotas whose count waits for a charge to be written
	changed func(namespace string)
	begun   func()
}

// Charge is what one request was charged. Its fields belong to the ledger once it is opened.
type Charge struct {
	Namespace string
	Object    types.UID
	// Since is the resourceVersion that the request changes; empty for one that creates.
	Since string
	// Amounts are by quota.
	Amounts map[types.UID]corev1.ResourceList

	opened time.Time
	at     map[types.UID]uint64 // the quota's resourceVersion with the charge; none while it is being written
	closed bool
}

// NewLedger makes an empty one.
func NewLedger() *Ledger {
	return &Ledger{charges: map[types.UID][]*Charge{}, waiting: map[types.UID]bool{}}
}

// Watch names who counts: changed is called with a namespace whose quotas must be counted again, begun when there are charges after there were
// none. Both must be quick.
func (l *Ledger) Watch(changed func(namespace string), begun func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed, l.begun = changed, begun
}

// Open enters a charge, before any quota is written.
func (l *Ledger) Open(c *Charge, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	c.opened, c.at = now, map[types.UID]uint64{}
	if len(l.charges) == 0 && l.begun != nil {
		l.begun()
	}
	l.charges[c.Object] = append(l.charges[c.Object], c)
	l.order = append(l.order, c)
}

// Written says that a quota has the charge since a resourceVersion.
func (l *Ledger) Written(c *Charge, quota types.UID, resourceVersion string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.at[quota] = number(resourceVersion)
	if l.waiting[quota] {
		delete(l.waiting, quota)
		l.tell(c.Namespace)
	}
}

func (l *Ledger) tell(namespace string) {
	if l.changed != nil {
		l.changed(namespace)
	}
}

// Void takes a charge back, because not all of its quotas had room: its quotas are counted again.
func (l *Ledger) Void(c *Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close(c)
	for quota := range c.Amounts {
		delete(l.waiting, quota)
	}
	l.tell(c.Namespace)
}

// Seen says that a watcher has seen an object at a resourceVersion, or gone. It returns the quotas that were charged for its coming or change.
func (l *Ledger) Seen(object types.UID, resourceVersion string, gone bool) map[types.UID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var charged map[types.UID]bool
	for _, c := range slices.Clone(l.charges[object]) {
		if gone || c.Since == "" || number(resourceVersion) > number(c.Since) {
			l.close(c)
			if charged == nil {
				charged = map[types.UID]bool{}
			}
			for quota := range c.Amounts {
				charged[quota] = true
			}
		}
	}
	return charged
}

// Pending is an open charge of one quota.
type Pending struct {
	Object types.UID
	Since  string
	Amount corev1.ResourceList
}

// Reflected tells whether an object at a resourceVersion shows what was charged for it.
func (p *Pending) Reflected(resourceVersion string) bool {
	return p.Since == "" || number(resourceVersion) > number(p.Since)
}

// Readiness is whether a quota can be counted.
type Readiness int

const (
	// Ready says that the charges are known.
	Ready Readiness = iota
	// Behind says that a charge was written after the state that was asked for: look at a newer one.
	Behind
	// Writing says that a charge is just being written: whoever counts is told when it is.
	Writing
)

// Pending lists the open charges of a quota that its state at a resourceVersion contains, if that can be told.
func (l *Ledger) Pending(quota types.UID, resourceVersion string) ([]Pending, Readiness) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Pending
	ready := Ready
	for _, open := range l.charges {
		for _, c := range open {
			amount, concerns := c.Amounts[quota]
			if !concerns {
				continue
			}
			at, written := c.at[quota]
			switch {
			case !written:
				l.waiting[quota] = true
				return nil, Writing
			case at > number(resourceVersion):
				ready = Behind
			}
			out = append(out, Pending{Object: c.Object, Since: c.Since, Amount: amount})
		}
	}
	if ready != Ready {
		return nil, ready
	}
	return out, Ready
}

// Expire drops the charges that are too old, as those of requests that failed, and tells when to call it again; false when nothing is left.
func (l *Ledger) Expire(now time.Time) (next time.Duration, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	for _, c := range l.order {
		if !c.closed {
			return c.opened.Add(Patience).Sub(now), true
		}
	}
	return 0, false
}

func (l *Ledger) expire(now time.Time) {
	n := 0
	for ; n < len(l.order) && (l.order[n].closed || !now.Before(l.order[n].opened.Add(Patience))); n++ {
		if c := l.order[n]; !c.closed {
			l.close(c)
			l.tell(c.Namespace)
		}
	}
	l.order = l.order[n:]
}

func (l *Ledger) close(c *Charge) {
	c.closed = true
	open := slices.DeleteFunc(slices.Clone(l.charges[c.Object]), func(o *Charge) bool { return o == c })
	if l.charges[c.Object] = open; len(open) == 0 {
		delete(l.charges, c.Object)
	}
}

// number is a resourceVersion as the ordered number that it is (KEP-5504).
func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
