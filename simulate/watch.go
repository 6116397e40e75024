package simulate

import (
	"context"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// watcher passes a table's changes on in order. Behind each batch it sends a bookmark: whoever takes that has dealt with all before it, since its channel holds nothing.
type watcher struct {
	memory  *memory
	pending []watch.Event // guarded by the memory's lock, as is idle
	idle    bool          // all was dealt with
	wake    chan struct{}
	out     chan watch.Event
	like    func() client.Object
	cancel  context.CancelFunc
	done    chan struct{}
	once    sync.Once
}

// tell queues a change for all watchers. The memory's lock is held.
func (t *table) tell(e watch.Event) {
	for _, w := range t.watchers {
		w.add(e)
	}
}

func (w *watcher) add(e watch.Event) {
	w.pending = append(w.pending, e)
	w.idle = false
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Watch implements client.Transport: first it says that there is nothing, then it tells of all there is as if it came just now.
func (m *memory) Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &watcher{memory: m, wake: make(chan struct{}, 1), out: make(chan watch.Event), like: maker(ref.GroupVersionResource), done: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	t := m.table(ref.GroupVersionResource)
	t.watchers = append(t.watchers, w)
	w.add(watch.Event{Type: watch.Bookmark, Object: w.bookmark(0, true)})
	for _, o := range t.list(ref.Namespace) {
		w.add(watch.Event{Type: watch.Added, Object: o})
	}
	go w.run(ctx)
	return w, nil
}

func maker(gvr schema.GroupVersionResource) func() client.Object {
	return func() client.Object {
		if gvk, ok := client.KindFor(gvr); ok {
			if o, err := client.Scheme().New(gvk); err == nil {
				return o.(client.Object)
			}
		}
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
}

func (w *watcher) bookmark(revision uint64, first bool) client.Object {
	o := w.like()
	o.SetResourceVersion(strconv.FormatUint(revision, 10))
	if first {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return o
}

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.once.Do(w.cancel)
	<-w.done
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	defer close(w.out)
	for {
		batch, revision := w.take()
		for _, e := range batch {
			if !w.send(ctx, e) {
				return
			}
		}
		if len(batch) > 0 {
			if !w.send(ctx, watch.Event{Type: watch.Bookmark, Object: w.bookmark(revision, false)}) {
				return
			}
			w.rest()
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watcher) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *watcher) take() ([]watch.Event, uint64) {
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	batch := w.pending
	w.pending = nil
	return batch, w.memory.revision
}

// rest notes that the last batch was dealt with.
func (w *watcher) rest() {
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	if len(w.pending) == 0 {
		w.idle = true
		w.memory.moved.Broadcast()
	}
}

// flush returns once every watcher has acted on every change so far, or ctx ended.
func (m *memory) flush(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.moved.Broadcast()
	})
	defer stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.idle() && ctx.Err() == nil {
		m.moved.Wait()
	}
}

func (m *memory) idle() bool {
	for _, t := range m.tables {
		for _, w := range t.watchers {
			if !w.idle {
				return false
			}
		}
	}
	return true
}
