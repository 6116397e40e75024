package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// Event is one thing that a watch tells.
type Event struct {
	Type watch.EventType
	// Object is set for Added, Modified and Deleted.
	Object *stored.Object
	// Revision is set for Bookmark; InitialEnd marks the one after the initial events.
	Revision   store.Revision
	InitialEnd bool
	// Status is set for Error, after which nothing follows.
	Status *metav1.Status
}

// Watch is one client's stream of changes. One goroutine uses it, with one context.
type Watch struct {
	r         *Resource
	prefix    string
	sel       selector
	source    store.Watch
	initial   []*stored.Object
	start     store.Revision
	sendEnd   bool // the bookmark that ends the initial events is due
	bookmarks bool
	awaited   bool // start has yet to come
	ended     bool
	failed    *Event // why the watch could not start
	buffer    []Event

	tick  context.Context // ends when the next bookmark is due
	stop  context.CancelFunc
	timer *time.Timer
	due   atomic.Bool
}

// Watch opens a stream of the changes to a collection. What a watch cannot serve (a resource version no longer retained) it says as its first
// event, as the API does; errors are for requests that make no sense. Close it.
func (r *Resource) Watch(ctx context.Context, rq *Request, opts *metav1.ListOptions) (*Watch, error) {
	if err := checkWatchOptions(opts); err != nil {
		return nil, err
	}
	sel, err := selectorOf(r.Kind, rq, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	w := &Watch{r: r, prefix: r.prefix(rq.Ref.Namespace), sel: sel, bookmarks: opts.AllowWatchBookmarks}
	if err := w.open(ctx, opts); err != nil {
		return nil, err
	}
	return w, nil
}

// checkWatchOptions judges the options as Kubernetes does, with its defaults: without a revision, a continue token is refused; with one, it says nothing.
func checkWatchOptions(o *metav1.ListOptions) error {
	checked := *o
	if o.SendInitialEvents == nil && o.ResourceVersionMatch == "" {
		if o.Continue == "" || o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return nil
		}
		checked.SendInitialEvents, checked.ResourceVersionMatch = new(bool), metav1.ResourceVersionMatchNotOlderThan
	}
	return invalidList(&checked, true)
}

func (w *Watch) open(ctx context.Context, opts *metav1.ListOptions) error {
	rev := store.Revision(0)
	if opts.ResourceVersion != "" {
		var err error
		if rev, err = parseRevision(opts.ResourceVersion); err != nil {
			return err
		}
	}
	initial := rev == 0 // the old way: no resource version means state first, then changes
	if opts.SendInitialEvents != nil {
		initial = *opts.SendInitialEvents
	}
	w.start = rev
	if rev > w.r.Store.Revision() {
		if opts.SendInitialEvents == nil {
			w.awaited = true
			return nil
		}
		if w.r.fresh(ctx, rev) != nil {
			w.fail(tooLarge(rev, w.r.Store.Revision()))
			return nil
		}
	}
	if initial || rev == 0 {
		snap := w.r.table.Snapshot()
		w.start = snap.Revision()
		if initial {
			if err := w.r.allReadable(snap, w.prefix, "", &w.sel); err != nil {
				return err
			}
			w.initial = w.collect(snap)
			w.sendEnd = opts.SendInitialEvents != nil && w.bookmarks
		}
	}
	return w.follow()
}

// follow begins to read the changes after start.
func (w *Watch) follow() error {
	source, err := w.r.table.Watch(w.start)
	switch {
	case err == nil:
		w.source = source
		w.r.streams.add(w)
	case errors.Is(err, store.ErrCompacted):
		w.fail(w.tooOld(w.start))
	case errors.Is(err, store.ErrFuture):
		w.fail(tooLarge(w.start, w.r.Store.Revision()))
	default:
		return apierrors.NewServiceUnavailable(err.Error())
	}
	return nil
}

// arrive waits until start is there: as long as the client watches, which learns nothing meanwhile, as in Kubernetes.
func (w *Watch) arrive(ctx context.Context) error {
	if err := w.r.table.WaitFor(ctx, w.start); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	w.awaited = false
	if err := w.follow(); err != nil {
		w.fail(err)
	}
	return nil
}

// Initial tells whether the watch begins with the objects that there are.
func (w *Watch) Initial() bool { return len(w.initial) > 0 || w.sendEnd }

func (w *Watch) collect(snap store.Snapshot) []*stored.Object {
	return w.r.page(snap, w.prefix, "", w.r.Clock.Now(), &w.sel, 0).Items
}

// Next returns what happened since, at least one event, in order. The slice is valid until the next call. io.EOF: the watch has ended, its
// last event said why if it was an error. ctx's error when it ends first.
func (w *Watch) Next(ctx context.Context) ([]Event, error) {
	w.buffer = w.buffer[:0]
	if w.awaited {
		if err := w.arrive(ctx); err != nil {
			return nil, err
		}
		w.buffer = w.buffer[:0]
	}
	if w.failed != nil {
		w.buffer, w.failed = append(w.buffer, *w.failed), nil
		return w.buffer, nil
	}
	if w.ended {
		return nil, io.EOF
	}
	if w.first() {
		return w.buffer, nil
	}
	w.bookmark()
	for len(w.buffer) == 0 {
		events, err := w.source.Next(w.wait(ctx))
		switch {
		case err == nil:
			for i := range events {
				w.add(&events[i])
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case w.due.Load():
		case errors.Is(err, store.ErrCompacted):
			w.refuse(w.tooOld(w.source.Progress()))
		case errors.Is(err, store.ErrClosed):
			w.ended = true
			return nil, io.EOF
		default:
			w.refuse(apierrors.NewInternalError(err))
		}
		w.bookmark()
	}
	return w.buffer, nil
}

// first gives the initial events, then the bookmark that ends them.
func (w *Watch) first() bool {
	for _, o := range w.initial {
		w.buffer = append(w.buffer, Event{Type: watch.Added, Object: o})
	}
	w.initial = nil
	if w.sendEnd {
		w.sendEnd = false
		w.buffer = append(w.buffer, Event{Type: watch.Bookmark, Revision: w.start, InitialEnd: true})
	}
	return len(w.buffer) > 0
}

// wait is ctx, cut short when a bookmark is due.
func (w *Watch) wait(ctx context.Context) context.Context {
	if !w.bookmarks {
		return ctx
	}
	if w.tick == nil || w.tick.Err() != nil {
		if w.stop != nil {
			w.stop()
		}
		w.tick, w.stop = context.WithCancel(ctx)
		cancel := w.stop
		w.timer = time.AfterFunc(w.r.Bookmarks, func() {
			w.due.Store(true)
			cancel()
		})
	}
	return w.tick
}

func (w *Watch) bookmark() {
	if w.due.Load() && !w.ended {
		w.due.Store(false)
		w.buffer = append(w.buffer, Event{Type: watch.Bookmark, Revision: w.source.Progress()})
	}
}

// add translates a change of the table into what it is to this watcher: an object that comes to match was added, one that ceases to was deleted.
func (w *Watch) add(e *store.Event) {
	if len(e.Key) < len(w.prefix) || e.Key[:len(w.prefix)] != w.prefix {
		return
	}
	now := e.Value.(*stored.Object)
	var prev *stored.Object
	if e.Prev != nil {
		prev = e.Prev.(*stored.Object)
	}
	was := prev != nil && w.sel.matches(prev)
	is := !e.Deleted && w.sel.matches(now)
	switch {
	case is && was:
		w.buffer = append(w.buffer, Event{Type: watch.Modified, Object: now})
	case is:
		w.buffer = append(w.buffer, Event{Type: watch.Added, Object: now})
	case was && e.Deleted:
		w.buffer = append(w.buffer, Event{Type: watch.Deleted, Object: now})
	case was:
		w.buffer = append(w.buffer, Event{Type: watch.Deleted, Object: prev.Deleted(e.Revision)})
	}
}

func (w *Watch) tooOld(rev store.Revision) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rev, w.r.Store.Revision()))
}

// fail ends the watch before it began; its one event is the error.
func (w *Watch) fail(err error) {
	w.refuse(err)
	w.failed = &Event{Type: watch.Error, Status: w.buffer[len(w.buffer)-1].Status}
}

// refuse ends the watch with an error event.
func (w *Watch) refuse(err error) {
	w.ended = true
	status := metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	if api, ok := err.(apierrors.APIStatus); ok {
		status = api.Status()
	}
	w.buffer = append(w.buffer, Event{Type: watch.Error, Status: &status})
}

// Close ends the watch.
func (w *Watch) Close() {
	if w.timer != nil {
		w.timer.Stop()
		w.stop()
	}
	if w.source != nil {
		w.r.streams.remove(w)
		w.source.Close()
	}
}

// BookmarkObject makes the object that a bookmark carries: empty but for its kind, the resource version and, after the initial events, the
// annotation that says so.
func BookmarkObject(v *kind.Version, e Event) runtime.Object {
	obj := v.New()
	obj.GetObjectKind().SetGroupVersionKind(v.GroupVersionKind)
	if m, ok := obj.(metav1.Object); ok {
		m.SetResourceVersion(strconv.FormatUint(e.Revision, 10))
		if e.InitialEnd {
			m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	}
	return obj
}
