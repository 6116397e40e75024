package fake

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// Watch streams the changes after opts.ResourceVersion; without one, or with SendInitialEvents, the present objects first.
func (t *Transport) Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	match, err := matcher(ref, opts)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.begin("watch", ref, nil); err != nil {
		return nil, err
	}
	x := t.table(ref.GroupVersionResource)
	w := &watcher{server: t, table: x, match: match, out: make(chan watch.Event), done: make(chan struct{})}
	streams := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if rv := opts.ResourceVersion; streams || rv == "" || rv == "0" {
		w.after = t.revision
		for _, o := range t.selected(ref.GroupVersionResource, match) {
			w.first = append(w.first, watch.Event{Type: watch.Added, Object: o})
		}
		if streams {
			w.first = append(w.first, watch.Event{Type: watch.Bookmark, Object: bookmark(ref, t.revision)})
		}
	} else if w.after, err = strconv.ParseUint(rv, 10, 64); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion %q is no number", rv))
	} else if w.after < x.lost {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.after, x.lost))
	}
	ctx, w.cancel = context.WithCancel(ctx)
	context.AfterFunc(ctx, w.wake)
	go w.run(ctx)
	return w, nil
}

func bookmark(ref resource.Ref, revision uint64) runtime.Object {
	var o client.Object = &unstructured.Unstructured{Object: map[string]any{}}
	if gvk, ok := client.KindFor(ref.GroupVersionResource); ok {
		if typed, err := client.Scheme().New(gvk); err == nil {
			o = typed.(client.Object)
		}
	}
	o.SetResourceVersion(strconv.FormatUint(revision, 10))
	o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o
}

type watcher struct {
	server *Transport
	table  *table
	match  func(client.Object) bool
	first  []watch.Event
	after  uint64
	out    chan watch.Event
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

// Stop ends the watch and returns once it has.
func (w *watcher) Stop() {
	w.once.Do(w.cancel)
	<-w.done
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

func (w *watcher) wake() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.changed.Broadcast()
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	defer close(w.out)
	pending := w.first
	for {
		for _, e := range pending {
			select {
			case w.out <- e:
			case <-ctx.Done():
				return
			}
			if e.Type == watch.Error {
				return
			}
		}
		if pending = w.wait(ctx); pending == nil {
			return
		}
	}
}

// wait returns the next events, or nil when ctx ended.
func (w *watcher) wait(ctx context.Context) []watch.Event {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil
		}
		if w.after < w.table.lost {
			gone := apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")
			return []watch.Event{{Type: watch.Error, Object: &gone.ErrStatus}}
		}
		if events := w.ready(); len(events) > 0 {
			return events
		}
		w.server.changed.Wait()
	}
}

func (w *watcher) ready() []watch.Event {
	var out []watch.Event
	events := w.table.events
	start := len(events)
	for start > 0 && events[start-1].revision > w.after {
		start--
	}
	for _, e := range events[start:] {
		w.after = e.revision
		now, before := e.kind != watch.Deleted && w.match(e.object), e.previous != nil && w.match(e.previous)
		switch {
		case now && before:
			out = append(out, watch.Event{Type: watch.Modified, Object: e.object})
		case now:
			out = append(out, watch.Event{Type: watch.Added, Object: e.object})
		case before:
			out = append(out, watch.Event{Type: watch.Deleted, Object: e.object})
		}
	}
	return out
}

// matcher combines a request's namespace, name and selectors. Any field of an object can be selected by its JSON path.
func matcher(ref resource.Ref, opts metav1.ListOptions) (func(client.Object) bool, error) {
	label, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	field, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(o client.Object) bool {
		return (ref.Namespace == "" || o.GetNamespace() == ref.Namespace) && (ref.Name == "" || o.GetName() == ref.Name) &&
			label.Matches(labels.Set(o.GetLabels())) && (field.Empty() || field.Matches(pathsOf(o)))
	}, nil
}

// paths is an object as a set of fields.
type paths map[string]any

func pathsOf(o client.Object) paths {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return m
}

func (p paths) Has(path string) bool { return p.Get(path) != "" }

func (p paths) Get(path string) string {
	v, found, err := unstructured.NestedFieldNoCopy(p, strings.Split(path, ".")...)
	if err != nil || !found || v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
