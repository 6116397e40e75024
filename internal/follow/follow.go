// Package follow keeps something in step with the objects of one resource, by a watch that begins with all objects that exist.
//
// It is for the few parts below the client package that need a live view: authorizers, for example. What they are told is complete and
// in order for each object; after a broken watch, objects that went away unseen are dropped too. Calls come one at a time.
//
// It does not filter, convert or index.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/resource"
)

// Source is where watches come from: an API server's in-process transport, for example.
type Source interface {
	Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error)
}

// Config says what is followed and who is told.
type Config struct {
	Source Source
	Ref    resource.Ref
	// Set hears of each object's newest state, Drop of its last one when it is gone. They must not change it.
	Set, Drop func(obj runtime.Object)
	// Synced, if not nil, is called once, when every object that existed at the start was set.
	Synced func()
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Back-off between watches that break.
const (
	firstWait = 50 * time.Millisecond
	maxWait   = 5 * time.Second
)

// Run follows until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	f := &follower{Config: cfg, known: map[types.NamespacedName]runtime.Object{}}
	wait := firstWait
	for {
		began := cfg.Clock.Now()
		err := f.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if cfg.Clock.Since(began) > maxWait {
			wait = firstWait
		}
		cfg.Log.Debug("watch ended", "resource", cfg.Ref.Resource, "error", err)
		timer := cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		wait = min(2*wait, maxWait)
	}
}

type follower struct {
	Config
	known  map[types.NamespacedName]runtime.Object
	synced bool
}

// once runs one watch until it ends.
func (f *follower) once(ctx context.Context) error {
	yes := true
	w, err := f.Source.Watch(ctx, f.Ref, metav1.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	stale := make(map[types.NamespacedName]bool, len(f.known))
	for key := range f.known {
		stale[key] = true
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok {
				return errors.New("closed")
			}
			if err := f.handle(event, stale); err != nil {
				return err
			}
		}
	}
}

func (f *follower) handle(event watch.Event, stale map[types.NamespacedName]bool) error {
	if event.Type == watch.Error {
		if status, ok := event.Object.(*metav1.Status); ok {
			return errors.New(status.Message)
		}
		return fmt.Errorf("watch: %v", event.Object)
	}
	obj, ok := event.Object.(metav1.Object)
	if !ok {
		return fmt.Errorf("watch: %T is no object", event.Object)
	}
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	switch event.Type {
	case watch.Added, watch.Modified:
		delete(stale, key)
		f.known[key] = event.Object
		f.Set(event.Object)
	case watch.Deleted:
		delete(stale, key)
		delete(f.known, key)
		f.Drop(event.Object)
	case watch.Bookmark:
		if obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			f.complete(stale)
		}
	}
	return nil
}

// complete ends the list that a watch begins with: what was known and did not come again is gone.
func (f *follower) complete(stale map[types.NamespacedName]bool) {
	for key := range stale {
		f.Drop(f.known[key])
		delete(f.known, key)
		delete(stale, key)
	}
	if !f.synced {
		f.synced = true
		if f.Synced != nil {
			f.Synced()
		}
	}
}
