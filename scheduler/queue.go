package scheduler

import (
	"container/heap"
	"container/list"
	"math/bits"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/framework"
)

// place is where a pod that has no node yet is.
type place uint8

const (
	nowhere place = iota
	active        // ready to be decided on
	backoff       // ready, but failed a short while ago
	parked        // fits nowhere until something changes
	gated         // held back by a PreEnqueue plugin
	binding       // decided; being bound
	asking        // extenders are being asked about it
)

// item is one pod on its way to a node.
type item struct {
	pod     *framework.Pod
	profile *framework.Profile
	place   place

	first    time.Time // when the scheduler first saw it
	since    time.Time // when it came where it is; decides among equal priorities
	seq      uint64    // the same within one instant
	attempts int
	refusals int // decisions without a node
	errors   int // failures since the last decision
	failed   bool
	evicting int       // victims that are being made to leave for its sake: until all are told to, it is not tried again, lest it look for others
	woken    bool      // meanwhile something happened that may let it go
	until    time.Time // end of its back-off
	plugins  []string  // who refused it
	awaits   framework.EventKind
	said     string           // why it was refused last, as its user was told
	changes  []explain.Change // the smallest that would let it go

	index int           // in its heap
	entry *list.Element // in the order of parking
}

// queue orders the pods without a node. It is pure: it knows the time only as it is told.
type queue struct {
	initial, longest time.Duration
	patience         time.Duration // how long a pod is parked at most
	less             func(a, b framework.QueueItem) bool

	items   map[types.UID]*item
	active  activeHeap
	backoff backoffHeap
	parked  list.List // of *item, in the order of parking
	await   [32]int   // by event kind: how many parked pods it may wake
	gates   int       // how many pods are gated
	opening list.List // of *item: the gated pods that something else than they themselves may let go

	added, removed func(*item) // hear of pods that come and go, if set
	seq            uint64
}

func newQueue(less func(a, b framework.QueueItem) bool, initial, longest, patience time.Duration) *queue {
	return &queue{initial: initial, longest: longest, patience: patience, less: less, items: map[types.UID]*item{}, active: activeHeap{less: less}}
}

// add queues a new pod, or gates it.
func (q *queue) add(it *item, now time.Time) {
	q.items[it.pod.Object.UID] = it
	it.first = now
	if q.added != nil {
		q.added(it)
	}
	q.admit(it, now)
}

// admit asks whether the pod may be queued at all.
func (q *queue) admit(it *item, now time.Time) {
	q.leave(it)
	if s := it.profile.Admit(it.pod); !s.OK() {
		it.place, it.since, it.plugins, it.said = gated, now, []string{s.Plugin}, s.Message()
		q.gates++
		if it.awaits = it.profile.Awaits(it.plugins); it.awaits&^framework.SelfChanged != 0 {
			it.entry = q.opening.PushBack(it)
			q.count(it, 1)
		}
		return
	}
	q.activate(it, now)
}

func (q *queue) activate(it *item, now time.Time) {
	q.leave(it)
	q.seq++
	it.place, it.since, it.seq = active, now, q.seq
	heap.Push(&q.active, it)
}

// leave takes a pod from where it is.
func (q *queue) leave(it *item) {
	switch it.place {
	case active:
		heap.Remove(&q.active, it.index)
	case backoff:
		heap.Remove(&q.backoff, it.index)
	case parked:
		q.parked.Remove(it.entry)
		it.entry = nil
		q.count(it, -1)
	case gated:
		q.gates--
		if it.entry != nil {
			q.opening.Remove(it.entry)
			it.entry = nil
			q.count(it, -1)
		}
	}
	it.place = nowhere
}

// count keeps account of what parked pods wait for, so that an event which nobody waits for costs nothing.
func (q *queue) count(it *item, sign int) {
	for kinds := uint32(it.awaits); kinds != 0; kinds &= kinds - 1 {
		q.await[bits.TrailingZeros32(kinds)] += sign
	}
}

// remove forgets a pod.
func (q *queue) remove(uid types.UID) *item {
	it := q.items[uid]
	if it != nil {
		q.leave(it)
		delete(q.items, uid)
		if q.removed != nil {
			q.removed(it)
		}
	}
	return it
}

// pop takes the next pod to decide on; nil if there is none. When nothing else is to be done a pod need not wait for the end of its back-off, unless what failed was an
// error rather than a decision.
func (q *queue) pop(now time.Time) *item {
	q.expire(now)
	var it *item
	switch {
	case q.active.Len() > 0:
		it = heap.Pop(&q.active).(*item)
	case q.backoff.Len() > 0:
		if it = q.firstRefused(); it == nil {
			return nil
		}
		heap.Remove(&q.backoff, it.index)
	default:
		return nil
	}
	it.place = nowhere
	it.attempts++
	return it
}

func (q *queue) firstRefused() *item {
	var best *item
	for _, it := range q.backoff.list {
		if !it.failed && (best == nil || it.until.Before(best.until)) {
			best = it
		}
	}
	return best
}

// expire moves pods whose back-off or patience is over.
func (q *queue) expire(now time.Time) {
	for q.backoff.Len() > 0 && !q.backoff.list[0].until.After(now) {
		q.activate(q.backoff.list[0], now)
	}
	for front := q.parked.Front(); front != nil; front = q.parked.Front() {
		it := front.Value.(*item)
		if now.Sub(it.since) < q.patience {
			return
		}
		q.ready(it, now)
	}
}

// due is when expire will next have something to do; ok is false if never.
func (q *queue) due() (at time.Time, ok bool) {
	if q.backoff.Len() > 0 {
		at, ok = q.backoff.list[0].until, true
	}
	if front := q.parked.Front(); front != nil {
		if t := front.Value.(*item).since.Add(q.patience); !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// refuse parks a pod that fits nowhere.
func (q *queue) refuse(it *item, plugins []string, now time.Time) {
	q.leave(it)
	it.refusals++
	it.errors, it.failed = 0, false
	it.place, it.since, it.plugins, it.awaits = parked, now, plugins, it.profile.Awaits(plugins)
	it.until = now.Add(q.delay(it.refusals))
	it.entry = q.parked.PushBack(it)
	q.count(it, 1)
}

// fail puts a pod off whose decision or binding failed.
func (q *queue) fail(it *item, now time.Time) {
	q.leave(it)
	it.errors++
	it.failed = true
	it.until = now.Add(q.delay(it.errors))
	it.place, it.since = backoff, now
	heap.Push(&q.backoff, it)
}

func (q *queue) delay(times int) time.Duration {
	d := q.initial
	for ; times > 1 && d < q.longest; times-- {
		d *= 2
	}
	return min(d, q.longest)
}

// ready queues a parked pod: at once if its back-off is over, else at its end.
func (q *queue) ready(it *item, now time.Time) {
	if !it.until.After(now) {
		q.activate(it, now)
		return
	}
	q.leave(it)
	it.place = backoff
	heap.Push(&q.backoff, it)
}

// wake queues the parked pods that e may help, and asks again about the gated ones.
func (q *queue) wake(e *framework.Event, now time.Time) {
	if !q.awaited(e.Kind) {
		return
	}
	var next *list.Element
	for at, last := q.opening.Front(), q.opening.Back(); at != nil; at = next {
		it := at.Value.(*item)
		if next = at.Next(); at == last {
			next = nil // what is gated again comes behind it
		}
		if it.awaits&e.Kind != 0 && it.profile.Helps(it.pod, it.plugins, e) {
			q.admit(it, now)
		}
	}
	for at := q.parked.Front(); at != nil; at = next {
		next = at.Next()
		it := at.Value.(*item)
		if it.awaits&e.Kind == 0 || it.woken || !it.profile.Helps(it.pod, it.plugins, e) {
			continue
		}
		if it.evicting > 0 {
			it.woken = true
		} else {
			q.ready(it, now)
		}
	}
}

func (q *queue) awaited(kind framework.EventKind) bool {
	for kinds := uint32(kind); kinds != 0; kinds &= kinds - 1 {
		if q.await[bits.TrailingZeros32(kinds)] > 0 {
			return true
		}
	}
	return false
}

// update replaces a waiting pod by its new state. changed tells that something which matters for scheduling is different.
func (q *queue) update(it *item, p *framework.Pod, changed bool, now time.Time) {
	it.pod = p
	switch it.place {
	case gated:
		if changed {
			q.admit(it, now)
		}
	case parked:
		if changed {
			if s := it.profile.Admit(p); !s.OK() {
				q.admit(it, now)
				return
			}
			q.ready(it, now)
		}
	case active:
		heap.Fix(&q.active, it.index)
	}
}

// depth counts the pods by place.
func (q *queue) depth() (activeN, backoffN, parkedN, gatedN int) {
	return q.active.Len(), q.backoff.Len(), q.parked.Len(), q.gates
}

type activeHeap struct {
	list []*item
	less func(a, b framework.QueueItem) bool
}

func (h *activeHeap) Len() int { return len(h.list) }
func (h *activeHeap) Less(i, j int) bool {
	a, b := h.list[i], h.list[j]
	qa, qb := framework.QueueItem{Pod: a.pod, Since: a.since}, framework.QueueItem{Pod: b.pod, Since: b.since}
	if h.less(qa, qb) {
		return true
	}
	return !h.less(qb, qa) && a.seq < b.seq
}
func (h *activeHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}
func (h *activeHeap) Push(x any) {
	it := x.(*item)
	it.index = len(h.list)
	h.list = append(h.list, it)
}
func (h *activeHeap) Pop() any {
	it := h.list[len(h.list)-1]
	h.list[len(h.list)-1] = nil
	h.list = h.list[:len(h.list)-1]
	return it
}

type backoffHeap struct{ list []*item }

func (h *backoffHeap) Len() int           { return len(h.list) }
func (h *backoffHeap) Less(i, j int) bool { return h.list[i].until.Before(h.list[j].until) }
func (h *backoffHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}
func (h *backoffHeap) Push(x any) {
	it := x.(*item)
	it.index = len(h.list)
	h.list = append(h.list, it)
}
func (h *backoffHeap) Pop() any {
	it := h.list[len(h.list)-1]
	h.list[len(h.list)-1] = nil
	h.list = h.list[:len(h.list)-1]
	return it
}
