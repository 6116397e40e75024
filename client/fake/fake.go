// Package fake is an API server in memory for the tests of loops: it satisfies client.Transport.
//
// It keeps what loops depend on: one growing resourceVersion, conflicts, uids, generation, status apart from the rest, selectors, ordered watches with
// bookmarks and initial events, all patch types, finalizers, graceful deletion of bound pods, propagation policies as finalizers, pods/binding,
// pods/eviction and namespaces/finalize. It authorizes, defaults, admits and validates nothing, and collects no garbage: use the real API server
// for those. Apply patches merge without tracking who owns a field.
//
// Objects are copied in and out never changed: like the real thing, what it returns is shared.
// Everything is safe for concurrent use.
package fake

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// Action is one request that was carried out or refused, in order.
type Action struct {
	Verb string // as RBAC names it
	Ref  resource.Ref
	Err  error
}

func (a Action) String() string {
	name := a.Ref.Resource
	if a.Ref.Subresource != "" {
		name += "/" + a.Ref.Subresource
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s %s", a.Verb, name, types.NamespacedName{Namespace: a.Ref.Namespace, Name: a.Ref.Name}), " /")
}

// Hook answers a create at a subresource. parent is a copy that belongs to the hook; if save is true, it is stored.
type Hook func(parent client.Object, body runtime.Object) (answer runtime.Object, save bool, err error)

// Transport is the fake. Make one with New.
type Transport struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	changed  *sync.Cond
	revision uint64
	tables   map[schema.GroupVersionResource]*table
	actions  []Action
	hooks    map[string]Hook
	fail     func(verb string, ref resource.Ref, obj runtime.Object) error
}

type table struct {
	objects map[types.NamespacedName]client.Object
	events  []event
	lost    uint64 // events up to this revision are gone
}

type event struct {
	revision uint64
	kind     watch.EventType
	object   client.Object // for Deleted: the last state with the deletion's revision
	previous client.Object
}

// New makes a server that holds objects. A nil clock is the real one.
func New(c clock.PassiveClock, objects ...client.Object) *Transport {
	if c == nil {
		c = clock.RealClock{}
	}
	t := &Transport{clock: c, tables: map[schema.GroupVersionResource]*table{}, hooks: map[string]Hook{}}
	t.changed = sync.NewCond(&t.mu)
	t.OnCreate("pods/binding", bind)
	t.OnCreate("pods/eviction", nil)
	for _, o := range objects {
		t.MustCreate(o)
	}
	return t
}

// MustCreate stores obj, status and uid as given; it panics if it cannot.
func (t *Transport) MustCreate(obj client.Object) client.Object {
	gvk, ok := client.KindOf(obj)
	if !ok {
		panic(fmt.Sprintf("fake: %T is of no known kind", obj))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	stored, err := t.create(client.ResourceFor(gvk), obj.GetNamespace(), obj, true)
	if err != nil {
		panic(err)
	}
	return stored
}

// OnCreate sets what a create at resource/subresource does, such as "pods/eviction".
func (t *Transport) OnCreate(sub string, h Hook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hooks[sub] = h
}

// FailWith makes f judge every request before it is carried out: an error refuses it. Nil ends that. f must not call the fake.
func (t *Transport) FailWith(f func(verb string, ref resource.Ref, obj runtime.Object) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail = f
}

// Actions returns all requests since the start or the last ClearActions; writes only unless reads is true.
func (t *Transport) Actions(reads bool) []Action {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Action
	for _, a := range t.actions {
		if reads || (a.Verb != "get" && a.Verb != "list" && a.Verb != "watch") {
			out = append(out, a)
		}
	}
	return out
}

// ClearActions forgets the requests so far.
func (t *Transport) ClearActions() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.actions = nil
}

// Compact forgets all events so far: watches from older revisions get 410 Gone.
func (t *Transport) Compact() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.tables {
		x.events, x.lost = nil, t.revision
	}
	t.changed.Broadcast()
}

// Revision is the newest resourceVersion.
func (t *Transport) Revision() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strconv.FormatUint(t.revision, 10)
}

// Wait returns once cond holds, checking it at first and after each write. It is the bounded wait of tests: ctx bounds it.
func (t *Transport) Wait(ctx context.Context, cond func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})
	defer stop()
	for {
		t.mu.Lock()
		before := t.revision
		t.mu.Unlock()
		if cond() {
			return nil
		}
		t.mu.Lock()
		for t.revision == before && ctx.Err() == nil {
			t.changed.Wait()
		}
		t.mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// begin records a request and judges it. The lock is held.
func (t *Transport) begin(verb string, ref resource.Ref, obj runtime.Object) (int, error) {
	a := Action{Verb: verb, Ref: ref}
	if m, ok := obj.(metav1.Object); ok && a.Ref.Name == "" {
		a.Ref.Name = m.GetName()
	}
	if t.fail != nil {
		a.Err = t.fail(verb, ref, obj)
	}
	t.actions = append(t.actions, a)
	return len(t.actions) - 1, a.Err
}

func (t *Transport) end(i int, err error) {
	if i < len(t.actions) {
		t.actions[i].Err = err
	}
}

func (t *Transport) table(gvr schema.GroupVersionResource) *table {
	x := t.tables[gvr]
	if x == nil {
		x = &table{objects: map[types.NamespacedName]client.Object{}}
		t.tables[gvr] = x
	}
	return x
}

func notFound(ref resource.Ref) error {
	return apierrors.NewNotFound(ref.GroupResource(), ref.Name)
}

func (t *Transport) find(ref resource.Ref) (client.Object, error) {
	o, ok := t.table(ref.GroupVersionResource).objects[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	if !ok {
		return nil, notFound(ref)
	}
	return o, nil
}

// Get reads one object.
func (t *Transport) Get(_ context.Context, ref resource.Ref, _ metav1.GetOptions) (runtime.Object, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.begin("get", ref, nil); err != nil {
		return nil, err
	}
	return t.find(ref)
}

// List reads a collection in key order. It ignores Limit: the whole collection is one page.
func (t *Transport) List(_ context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	match, err := matcher(ref, opts)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.begin("list", ref, nil); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	return asObjects(t.selected(ref.GroupVersionResource, match)), metav1.ListMeta{ResourceVersion: strconv.FormatUint(t.revision, 10)}, nil
}

func (t *Transport) selected(gvr schema.GroupVersionResource, match func(client.Object) bool) []client.Object {
	var out []client.Object
	for _, o := range t.table(gvr).objects {
		if match(o) {
			out = append(out, o)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if a, b := out[i].GetNamespace(), out[j].GetNamespace(); a != b {
			return a < b
		}
		return out[i].GetName() < out[j].GetName()
	})
	return out
}

func asObjects(in []client.Object) []runtime.Object {
	out := make([]runtime.Object, len(in))
	for i, o := range in {
		out[i] = o
	}
	return out
}

// write stores obj (or removes it) under the next revision and publishes the event. The lock is held; obj belongs to the fake from here on.
func (t *Transport) write(gvr schema.GroupVersionResource, obj client.Object, remove bool) client.Object {
	t.revision++
	obj.SetResourceVersion(strconv.FormatUint(t.revision, 10))
	x := t.table(gvr)
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	e := event{revision: t.revision, kind: watch.Modified, object: obj, previous: x.objects[key]}
	switch {
	case remove:
		e.kind = watch.Deleted
		delete(x.objects, key)
	case e.previous == nil:
		e.kind = watch.Added
		x.objects[key] = obj
	default:
		x.objects[key] = obj
	}
	x.events = append(x.events, e)
	t.changed.Broadcast()
	return obj
}

// part is the named field of an object's struct: "Spec" or "Status"; invalid when there is none.
func part(o client.Object, name string) reflect.Value {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.Elem().FieldByName(name)
}
