// Package objects keeps the config maps and secrets that the node's pods use: each is listed and watched by name, from the moment the first pod
// refers to it until the last one is gone, and no other is ever read. That is what the API allows a node, and it is also the
// least memory.
//
// Get waits for the first answer about an object and never returns data that is older than what the watch has brought. When an object
// changes, appears or goes, the users that hold it are told by a call of Config.Changed. Safe for concurrent use.
//
// It does not decide what to do without an object: it answers the API's NotFound.
package objects

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// Key names an object: its resource, such as "configmaps", its namespace and name.
type Key struct{ Resource, Namespace, Name string }

// Config is what a Store needs.
type Config struct {
	Transport client.Transport
	// Changed hears that an object has changed, appeared or gone, once for each pod that holds it. It must not block.
	Changed func(user types.UID, key Key)
	Clock   clock.Clock  // nil: the real one
	Log     *slog.Logger // nil: slog.Default()
}

// Store keeps the objects.
type Store struct {
	cfg Config
	ctx context.Context

	mu      sync.Mutex
	entries map[Key]*entry
	held    map[types.UID]map[Key]bool
}

type entry struct {
	key    Key
	users  map[types.UID]bool
	cancel context.CancelFunc

	mu     sync.Mutex
	first  chan struct{} // closed at the first answer
	known  bool
	object client.Object // nil: not found
	err    error         // why there is no answer yet
}

// New makes a Store whose watches end with ctx.
func New(ctx context.Context, cfg Config) *Store {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Store{cfg: cfg, ctx: ctx, entries: map[Key]*entry{}, held: map[types.UID]map[Key]bool{}}
}

// Hold says which objects a user needs from now on, in place of those it held before; none releases them all.
func (s *Store) Hold(user types.UID, keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := make(map[Key]bool, len(keys))
	for _, k := range keys {
		want[k] = true
		s.entry(k).users[user] = true
	}
	for k := range s.held[user] {
		if e := s.entries[k]; e != nil && !want[k] {
			delete(e.users, user)
			if len(e.users) == 0 {
				e.cancel()
				delete(s.entries, k)
			}
		}
	}
	if len(want) == 0 {
		delete(s.held, user)
		return
	}
	s.held[user] = want
}

// entry returns the entry of a key, starting its watch on first use. s.mu is held.
func (s *Store) entry(k Key) *entry {
	e := s.entries[k]
	if e == nil {
		ctx, cancel := context.WithCancel(s.ctx)
		e = &entry{key: k, users: map[types.UID]bool{}, cancel: cancel, first: make(chan struct{})}
		s.entries[k] = e
		go s.follow(ctx, e)
	}
	return e
}

// ConfigMap answers a config map that some user holds.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o, err := s.get(ctx, Key{"configmaps", namespace, name})
	if err != nil {
		return nil, err
	}
	cm, ok := o.(*corev1.ConfigMap)
	if !ok {
		return nil, fmt.Errorf("configmap %s/%s: the API answered a %T", namespace, name, o)
	}
	return cm, nil
}

// Secret answers a secret that some user holds.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	o, err := s.get(ctx, Key{"secrets", namespace, name})
	if err != nil {
		return nil, err
	}
	secret, ok := o.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("secret %s/%s: the API answered a %T", namespace, name, o)
	}
	return secret, nil
}

// patience is how long Get waits for the first answer about an object.
const patience = 10 * time.Second

func (s *Store) get(ctx context.Context, k Key) (client.Object, error) {
	s.mu.Lock()
	e := s.entries[k]
	s.mu.Unlock()
	if e == nil {
		return nil, fmt.Errorf("%s %s/%s is not held by any pod of this node", k.Resource, k.Namespace, k.Name)
	}
	e.mu.Lock()
	first := e.first
	e.mu.Unlock()
	select {
	case <-first:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.cfg.Clock.After(patience):
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.known && e.object == nil:
		return nil, apierrors.NewNotFound(corev1.Resource(k.Resource), k.Name)
	case e.known:
		return e.object, nil
	case e.err != nil:
		return nil, fmt.Errorf("%s %s/%s: %w", k.Resource, k.Namespace, k.Name, e.err)
	}
	return nil, fmt.Errorf("%s %s/%s: no answer from the API within %s", k.Resource, k.Namespace, k.Name, patience)
}

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// follow lists and watches one object until ctx ends.
func (s *Store) follow(ctx context.Context, e *entry) {
	wait := firstRetry
	for ctx.Err() == nil {
		progress, err := s.session(ctx, e)
		if ctx.Err() != nil {
			return
		}
		if progress {
			wait = firstRetry
		}
		if err != nil {
			s.cfg.Log.Debug("watch of a pod's object interrupted", "object", e.key, "err", err)
			e.mu.Lock()
			e.err = err
			e.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-s.cfg.Clock.After(wait):
		}
		wait = min(2*wait, lastRetry)
	}
}

// session lists once and watches until the watch ends; progress says that the list worked.
func (s *Store) session(ctx context.Context, e *entry) (progress bool, err error) {
	ref := resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource(e.key.Resource), Namespace: e.key.Namespace}
	opts := metav1.ListOptions{FieldSelector: "metadata.name=" + e.key.Name}
	list, meta, err := s.cfg.Transport.List(ctx, ref, opts)
	if err != nil {
		return false, err
	}
	var found client.Object
	if len(list) > 0 {
		found, _ = list[0].(client.Object)
	}
	s.put(e, found)
	opts.ResourceVersion, opts.AllowWatchBookmarks = meta.ResourceVersion, true
	w, err := s.cfg.Transport.Watch(ctx, ref, opts)
	if err != nil {
		return true, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok {
				return true, nil
			}
			if err := s.take(e, event); err != nil {
				return true, err
			}
		}
	}
}

func (s *Store) take(e *entry, event watch.Event) error {
	switch event.Type {
	case watch.Added, watch.Modified:
		o, ok := event.Object.(client.Object)
		if !ok {
			return fmt.Errorf("the watch brought a %T", event.Object)
		}
		s.put(e, o)
	case watch.Deleted:
		s.put(e, nil)
	case watch.Error:
		return apierrors.FromObject(event.Object)
	}
	return nil
}

// put takes in news and tells the users if it is any.
func (s *Store) put(e *entry, o client.Object) {
	e.mu.Lock()
	first := !e.known
	same := !first && version(e.object) == version(o)
	e.known, e.object, e.err = true, o, nil
	if first {
		close(e.first)
	}
	e.mu.Unlock()
	if first || same || s.cfg.Changed == nil {
		return
	}
	s.mu.Lock()
	users := make([]types.UID, 0, len(e.users))
	for u := range e.users {
		users = append(users, u)
	}
	s.mu.Unlock()
	for _, u := range users {
		s.cfg.Changed(u, e.key)
	}
}

func version(o client.Object) string {
	if o == nil {
		return ""
	}
	return string(o.GetUID()) + "/" + o.GetResourceVersion()
}
