package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// reflector keeps one store equal to what the server has: one streaming list-and-watch where the server offers it (KEP-3157), a list and then a watch where it
// does not. A broken watch resumes at the last revision seen; a revision that is gone starts over.
type reflector struct {
	store     *store
	transport Transport
	clock     clock.Clock
	log       *slog.Logger

	revision  string // resume here; empty: list first
	listFirst bool   // the server refuses to stream the list
	progress  bool   // something arrived since the last failure
}

const (
	backoffFirst = 50 * time.Millisecond
	backoffLimit = 30 * time.Second
)

// errEnded says that the server ended a watch without an error, as it does now and then on purpose.
var errEnded = errors.New("watch ended")

func (r *reflector) run(ctx context.Context) {
	delay := backoffFirst
	for {
		r.progress = false
		err := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.progress {
			delay = backoffFirst
			if errors.Is(err, errEnded) {
				continue
			}
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			r.revision = ""
		}
		r.log.Debug("watch interrupted; trying again", "after", delay, "error", err)
		if !r.pause(ctx, delay) {
			return
		}
		delay = min(2*delay, backoffLimit)
	}
}

// pause waits d, up to half longer so that many clients do not return at once; false when ctx ended.
func (r *reflector) pause(ctx context.Context, d time.Duration) bool {
	timer := r.clock.NewTimer(d + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// session lists if needed and follows one watch to its end. It never returns nil.
func (r *reflector) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.revision == "" && !r.listFirst {
		err := r.stream(ctx)
		if !refusesStreaming(err) {
			return err
		}
		r.listFirst = true
	}
	if r.revision == "" {
		if err := r.list(ctx); err != nil {
			return err
		}
	}
	w, err := r.transport.Watch(ctx, r.store.ref, r.options(metav1.ListOptions{ResourceVersion: r.revision}))
	if err != nil {
		return err
	}
	defer w.Stop()
	return r.follow(ctx, w)
}

func refusesStreaming(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

func (r *reflector) options(o metav1.ListOptions) metav1.ListOptions {
	o.FieldSelector, o.LabelSelector = r.store.opts.FieldSelector, r.store.opts.LabelSelector
	o.AllowWatchBookmarks = true
	return o
}

func (r *reflector) list(ctx context.Context) error {
	objects := map[types.NamespacedName]Object{}
	opts := r.options(metav1.ListOptions{ResourceVersion: "0"})
	opts.AllowWatchBookmarks = false
	for {
		page, info, err := r.transport.List(ctx, r.store.ref, opts)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		for _, item := range page {
			o, ok := item.(Object)
			if !ok {
				return fmt.Errorf("list: a %T has no metadata", item)
			}
			objects[keyOf(o)] = o
		}
		if info.Continue == "" {
			r.complete(objects, info.ResourceVersion)
			return nil
		}
		opts.Continue, opts.ResourceVersion = info.Continue, ""
	}
}

func (r *reflector) complete(objects map[types.NamespacedName]Object, revision string) {
	r.store.replace(objects, revision)
	r.revision, r.progress = revision, true
	r.store.markSynced()
}

// stream asks for the present objects and all later changes in one watch.
func (r *reflector) stream(ctx context.Context) error {
	yes := true
	w, err := r.transport.Watch(ctx, r.store.ref, r.options(metav1.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}))
	if err != nil {
		return err
	}
	defer w.Stop()
	objects := map[types.NamespacedName]Object{}
	for {
		e, err := next(ctx, w)
		if err != nil {
			return err
		}
		o, err := r.object(e)
		if err != nil {
			return err
		}
		switch {
		case e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
			r.complete(objects, o.GetResourceVersion())
			return r.follow(ctx, w)
		case e.Type == watch.Added, e.Type == watch.Modified:
			objects[keyOf(o)] = o
		case e.Type == watch.Deleted:
			delete(objects, keyOf(o))
		}
	}
}

func (r *reflector) follow(ctx context.Context, w watch.Interface) error {
	for {
		e, err := next(ctx, w)
		if err != nil {
			return err
		}
		o, err := r.object(e)
		if err != nil {
			return err
		}
		r.progress = true
		switch e.Type {
		case watch.Added, watch.Modified:
			r.store.change(keyOf(o), o, o.GetResourceVersion())
		case watch.Deleted:
			r.store.change(keyOf(o), nil, o.GetResourceVersion())
		case watch.Bookmark:
			r.store.saw(o.GetResourceVersion())
		}
		r.revision = o.GetResourceVersion()
	}
}

func next(ctx context.Context, w watch.Interface) (watch.Event, error) {
	select {
	case e, open := <-w.ResultChan():
		if !open {
			return e, errEnded
		}
		return e, nil
	case <-ctx.Done():
		return watch.Event{}, ctx.Err()
	}
}

func (r *reflector) object(e watch.Event) (Object, error) {
	if e.Type == watch.Error {
		return nil, apierrors.FromObject(e.Object)
	}
	o, ok := e.Object.(Object)
	if !ok {
		return nil, fmt.Errorf("watch: %s event with a %T, which has no metadata", e.Type, e.Object)
	}
	return o, nil
}
