// Package resourcequota counts what the objects of a namespace use of its ResourceQuotas, and takes over into a quota's status the limits that its spec sets.
//
// Admission charges what a request will use before its object is stored; this loop counts where a charge does not tell the truth: a new quota or new
// limits, objects that went or now use less, objects that nobody charged, and charges whose request failed. A count includes what was charged for objects
// that no cache shows yet, and is written only over the state of the quota that it was made for; so a count never gives away what a request was granted.
//
// Nothing is counted by the clock but a check every five minutes, for what another server's admission may have left behind.
package resourcequota

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/quota"
	"github.com/yare-project/yare/loop"
)

const (
	recheck = 5 * time.Minute  // between counts without a reason
	moment  = time.Millisecond // so that a time which is waited for has passed
	unknown = 10 * time.Second // until a resource that a quota names is looked for again
)

// chargesKey is the pass over charges whose objects did not come. No quota has it: its namespace is no name.
var chargesKey = loop.Key{Namespace: "*", Name: "charges"}

var everything = schema.GroupResource{Group: "*", Resource: "*"}

const byNamespace = "resourcequota.namespace"

// Descriptor declares the loop. list says what is served; the ledger is admission's.
func Descriptor(list served.List, ledger *quota.Ledger) loop.Descriptor {
	if ledger == nil {
		ledger = quota.NewLedger()
	}
	return loop.Descriptor{
		Name:    "resourcequota-controller",
		Reads:   []loop.Access{{GroupResource: everything}},
		Writes:  []loop.Access{{GroupResource: corev1.Resource("resourcequotas/status"), Verbs: []string{"update"}}},
		Workers: 5,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in, list, ledger), nil },
	}
}

type counter struct {
	in       loop.Inputs
	list     served.List
	ledger   *quota.Ledger
	quotas   client.Cache[*corev1.ResourceQuota]
	api      client.API[*corev1.ResourceQuota]
	monitors monitors
}

func start(in loop.Inputs, list served.List, ledger *quota.Ledger) loop.Reconcile {
	c := &counter{in: in, list: list, ledger: ledger, quotas: client.CacheOf[*corev1.ResourceQuota](in.Caches, client.CacheOptions{}),
		api: client.Of[*corev1.ResourceQuota](in.Transport)}
	c.quotas.AddIndex(byNamespace, func(q *corev1.ResourceQuota) []string { return []string{q.Namespace} })
	c.quotas.OnChange(func(old, new *corev1.ResourceQuota) {
		if new != nil && (old == nil || stale(new) || !equality.Semantic.DeepEqual(old.Spec, new.Spec)) {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	c.watchDefinitions()
	ledger.Watch(func(namespace string) {
		for _, q := range c.quotas.By(byNamespace, namespace) {
			in.Enqueue(loop.KeyOf(q))
		}
	}, func() { in.EnqueueAfter(chargesKey, quota.Patience) })
	return c.reconcile
}

// stale tells whether a quota's status lacks what its spec bounds.
func stale(q *corev1.ResourceQuota) bool {
	if !quota.Equal(q.Spec.Hard, q.Status.Hard) {
		return true
	}
	for n := range q.Status.Hard {
		if _, counted := q.Status.Used[n]; !counted {
			return true
		}
	}
	return false
}

func (c *counter) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if key == chargesKey {
		after, more := c.ledger.Expire(c.in.Clock.Now())
		if !more {
			return loop.Result{}, nil
		}
		return loop.Result{After: max(after, moment)}, nil
	}
	q, ok := c.quotas.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Result{}, nil
	}
	resources, err := c.covered(ctx, q.Spec.Hard)
	if err != nil {
		return loop.Result{}, err
	}
	// The charges come before the objects: one whose object arrives in between is found among the objects.
	pending, ready := c.ledger.Pending(q.UID, q.ResourceVersion)
	switch ready {
	case quota.Writing:
		return loop.Result{}, nil // the ledger wakes this pass again
	case quota.Behind:
		c.in.Enqueue(key) // the cache shows that state in a moment
		return loop.Result{}, nil
	}
	count := newCount(q, pending, c.in.Clock.Now())
	for _, m := range resources {
		count.add(m.GroupResource(), m.cache.List(q.Namespace))
	}
	return c.write(ctx, q, count)
}

func (c *counter) write(ctx context.Context, q *corev1.ResourceQuota, count *count) (loop.Result, error) {
	status := corev1.ResourceQuotaStatus{Hard: quota.Pick(q.Spec.Hard, quota.Names(q.Spec.Hard)), Used: count.total()}
	result := loop.Result{After: recheck}
	if next := count.next; !next.IsZero() {
		result.After = min(result.After, max(next.Sub(c.in.Clock.Now())+moment, moment))
	}
	if len(status.Used) < len(status.Hard) {
		result.After = min(result.After, unknown)
	}
	if q.Status.Used != nil && quota.Equal(q.Status.Hard, status.Hard) && quota.Equal(q.Status.Used, status.Used) {
		return result, nil
	}
	next := q.DeepCopy()
	next.Status = status
	switch _, err := c.api.UpdateStatus(ctx, next); {
	case apierrors.IsConflict(err): // a request was charged meanwhile; the cache shows it in a moment
		c.in.Enqueue(loop.KeyOf(q))
		return loop.Result{}, nil
	case apierrors.IsNotFound(err):
		return loop.Result{}, nil
	case err != nil:
		return loop.Result{}, fmt.Errorf("write the status of quota %s/%s: %w", q.Namespace, q.Name, err)
	}
	return result, nil
}

// changed counts again the quotas for which a change of an object tells something that admission did not charge.
func (c *counter) changed(gr schema.GroupResource, old, new client.Object) {
	newest := client.Newest(old, new)
	charged := c.ledger.Seen(newest.GetUID(), newest.GetResourceVersion(), new == nil)
	quotas := c.quotas.By(byNamespace, newest.GetNamespace())
	if len(quotas) == 0 || old != nil && new != nil && !quota.Measured(gr) {
		return
	}
	for _, q := range quotas {
		// What an object used is what it used when it was counted, whenever that was: a pod may since be past its grace period.
		before, after := amount(gr, q, old, time.Time{}), amount(gr, q, new, c.in.Clock.Now())
		moved := !quota.Equal(before, after)
		// A new object that was charged is as the charge said. After a change, a look is cheaper than to find that out.
		if old == nil && charged[q.UID] {
			moved = false
		}
		if moved || old != nil && charged[q.UID] {
			c.in.Enqueue(loop.KeyOf(q))
		}
		if pod, ok := new.(*corev1.Pod); ok && len(after) > 0 && (old == nil || old.GetDeletionTimestamp() == nil) {
			if until, deleted := quota.ChargedUntil(pod); deleted {
				c.in.EnqueueAfter(loop.KeyOf(q), until.Sub(c.in.Clock.Now())+moment)
			}
		}
	}
}

// amount is what an object uses of a quota at a time.
func amount(gr schema.GroupResource, q *corev1.ResourceQuota, o client.Object, at time.Time) corev1.ResourceList {
	if o == nil || !quota.InScope(q, o) {
		return nil
	}
	names := quota.Covered(gr, q.Spec.Hard)
	if len(names) == 0 {
		return nil
	}
	return quota.Mask(quota.Usage(gr, o, at), names)
}

// count is one count of one quota.
type count struct {
	quota   *corev1.ResourceQuota
	now     time.Time
	used    corev1.ResourceList
	pending map[types.UID][]quota.Pending
	next    time.Time // when the passing of time alone changes the count
}

func newCount(q *corev1.ResourceQuota, pending []quota.Pending, now time.Time) *count {
	c := &count{quota: q, now: now, used: corev1.ResourceList{}, pending: map[types.UID][]quota.Pending{}}
	for _, p := range pending {
		c.pending[p.Object] = append(c.pending[p.Object], p)
	}
	return c
}

// add counts all objects of one resource in the quota's namespace.
func (c *count) add(gr schema.GroupResource, objects []client.Object) {
	names := quota.Covered(gr, c.quota.Spec.Hard)
	quota.AddTo(c.used, quota.Pick(nil, names))
	for _, o := range objects {
		if open, ok := c.pending[o.GetUID()]; ok {
			c.pending[o.GetUID()] = unreflected(open, o.GetResourceVersion())
		}
		if !quota.InScope(c.quota, o) {
			continue
		}
		quota.AddTo(c.used, quota.Mask(quota.Usage(gr, o, c.now), names))
		if pod, ok := o.(*corev1.Pod); ok {
			c.wake(pod)
		}
	}
}

func (c *count) wake(pod *corev1.Pod) {
	if until, ok := quota.ChargedUntil(pod); ok && !until.Before(c.now) && (c.next.IsZero() || until.Before(c.next)) {
		c.next = until
	}
}

func unreflected(open []quota.Pending, resourceVersion string) []quota.Pending {
	var out []quota.Pending
	for _, p := range open {
		if !p.Reflected(resourceVersion) {
			out = append(out, p)
		}
	}
	return out
}

// total is the count with what is still to come. What no served resource covers is not in it: nobody knows.
func (c *count) total() corev1.ResourceList {
	names := quota.Names(c.used)
	for _, open := range c.pending {
		for _, p := range open {
			quota.AddTo(c.used, quota.Mask(p.Amount, names))
		}
	}
	return c.used
}
