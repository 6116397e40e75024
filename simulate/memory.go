package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// memory is the API as the scheduler of a simulation sees it: it satisfies client.Transport for what a scheduler reads and writes, and nothing more. Objects are kept as they
// are given, never copied and never changed. Unlike a real server's, its watches deliver what is there object by object in the order of creation, so that two runs are
// the same, and flush waits until every watcher has acted on every change.
type memory struct {
	now time.Time // of the simulation

	mu       sync.Mutex
	moved    *sync.Cond // a watcher got on
	revision uint64
	tables   map[schema.GroupVersionResource]*table
	written  func(old, new client.Object) // told of each change, after it is visible, without the lock; new is nil for a removal
}

type table struct {
	objects  map[types.NamespacedName]client.Object
	order    []types.NamespacedName // of creation; some are gone
	gone     int                    // how many at most
	watchers []*watcher
}

func newMemory(now time.Time) *memory {
	m := &memory{now: now, tables: map[schema.GroupVersionResource]*table{}, written: func(client.Object, client.Object) {}}
	m.moved = sync.NewCond(&m.mu)
	return m
}

func (m *memory) table(gvr schema.GroupVersionResource) *table {
	t := m.tables[gvr]
	if t == nil {
		t = &table{objects: map[types.NamespacedName]client.Object{}}
		m.tables[gvr] = t
	}
	return t
}

// compact forgets the order of what is gone. What came back after it had gone is in its newer place.
func (t *table) compact() {
	last := make(map[types.NamespacedName]int, len(t.order))
	for i, key := range t.order {
		last[key] = i
	}
	kept := t.order[:0]
	for i, key := range t.order {
		if t.objects[key] != nil && last[key] == i {
			kept = append(kept, key)
		}
	}
	t.order, t.gone = kept, 0
}

func keyOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// fill stores an object of the cluster that is simulated, as it is.
func (m *memory) fill(o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64); err == nil {
		m.revision = max(m.revision, n) // what is written later is newer
	}
	t := m.table(resourceOf(o))
	if t.objects[keyOf(o)] == nil {
		t.order = append(t.order, keyOf(o))
	}
	t.objects[keyOf(o)] = o
	t.tell(watch.Event{Type: watch.Added, Object: o})
}

// put stores o, which belongs to the memory from here on, under the next revision.
func (m *memory) put(o client.Object) {
	m.mu.Lock()
	t := m.table(resourceOf(o))
	key := keyOf(o)
	old := t.objects[key]
	kind := watch.Modified
	if old == nil {
		kind = watch.Added
		t.order = append(t.order, key)
	}
	m.revision++
	o.SetResourceVersion(strconv.FormatUint(m.revision, 10))
	t.objects[key] = o
	t.tell(watch.Event{Type: kind, Object: o})
	m.mu.Unlock()
	m.written(old, o)
}

// drop removes an object; it is no error if there is none.
func (m *memory) drop(gvr schema.GroupVersionResource, key types.NamespacedName) {
	m.mu.Lock()
	t := m.table(gvr)
	old := t.objects[key]
	if old == nil {
		m.mu.Unlock()
		return
	}
	m.revision++
	gone := old.DeepCopyObject().(client.Object)
	gone.SetResourceVersion(strconv.FormatUint(m.revision, 10))
	delete(t.objects, key)
	if t.gone++; t.gone > len(t.objects)+1024 {
		t.compact()
	}
	t.tell(watch.Event{Type: watch.Deleted, Object: gone})
	m.mu.Unlock()
	m.written(old, nil)
}

func (m *memory) find(ref resource.Ref) (client.Object, error) {
	o, ok := m.table(ref.GroupVersionResource).objects[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	if !ok {
		return nil, apierrors.NewNotFound(ref.GroupResource(), ref.Name)
	}
	return o, nil
}

// Get implements client.Transport.
func (m *memory) Get(_ context.Context, ref resource.Ref, _ metav1.GetOptions) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(ref)
}

// all lists the objects of a resource in the order of creation.
func (m *memory) all(gvr schema.GroupVersionResource, namespace string) []client.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table(gvr).list(namespace)
}

func (t *table) list(namespace string) []client.Object {
	if t.gone > 0 {
		t.compact()
	}
	var out []client.Object
	for _, key := range t.order {
		if namespace == "" || key.Namespace == namespace {
			out = append(out, t.objects[key])
		}
	}
	return out
}

// List implements client.Transport. Nobody selects: schedulers read all there is.
func (m *memory) List(_ context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if opts.LabelSelector != "" || opts.FieldSelector != "" {
		return nil, metav1.ListMeta{}, apierrors.NewBadRequest("a simulation has no selectors")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []runtime.Object
	for _, o := range m.table(ref.GroupVersionResource).list(ref.Namespace) {
		out = append(out, o)
	}
	return out, metav1.ListMeta{ResourceVersion: strconv.FormatUint(m.revision, 10)}, nil
}

// Create implements client.Transport: for bindings, and for claims of devices that extended resources stand for.
func (m *memory) Create(_ context.Context, ref resource.Ref, obj runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
	if ref.Subresource != "" {
		return m.bind(ref, obj)
	}
	o, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T has no metadata", obj))
	}
	m.mu.Lock()
	next := m.revision + 1
	m.mu.Unlock()
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%s%d", o.GetGenerateName(), next))
	}
	o.SetNamespace(ref.Namespace)
	o.SetUID(types.UID(fmt.Sprintf("made-%d", next)))
	o.SetCreationTimestamp(metav1.NewTime(m.now))
	m.put(o)
	return o, nil
}

// Update implements client.Transport.
func (m *memory) Update(_ context.Context, ref resource.Ref, obj runtime.Object, _ metav1.UpdateOptions) (runtime.Object, error) {
	o, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T has no metadata", obj))
	}
	m.mu.Lock()
	old, err := m.find(ref)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if rv := o.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(ref.GroupResource(), ref.Name, fmt.Errorf("it has been changed"))
	}
	m.put(o)
	return o, nil
}

// Patch implements client.Transport.
func (m *memory) Patch(_ context.Context, ref resource.Ref, kind types.PatchType, body []byte, _ metav1.PatchOptions) (runtime.Object, error) {
	m.mu.Lock()
	old, err := m.find(ref)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	o, err := patched(old, kind, body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.GetUID() != old.GetUID() {
		return nil, apierrors.NewConflict(ref.GroupResource(), ref.Name, fmt.Errorf("it is another object of this name"))
	}
	m.put(o)
	return o, nil
}

func patched(old client.Object, kind types.PatchType, body []byte) (client.Object, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, body)
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, body, old)
	default:
		return nil, fmt.Errorf("a simulation does not patch by %s", kind)
	}
	if err != nil {
		return nil, err
	}
	gvk, _ := client.KindOf(old)
	o, err := client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	return o.(client.Object), json.Unmarshal(after, o)
}

// Delete implements client.Transport: a pod on a node is told to end, anything else is gone.
func (m *memory) Delete(_ context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error) {
	m.mu.Lock()
	old, err := m.find(ref)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != old.GetUID() {
		return nil, apierrors.NewConflict(ref.GroupResource(), ref.Name, fmt.Errorf("it is another object of this name"))
	}
	if ends := ending(old, m.now); ends != nil {
		m.put(ends)
		return ends, nil
	}
	m.drop(ref.GroupVersionResource, keyOf(old))
	return old, nil
}

// DeleteCollection implements client.Transport; nobody asks for it.
func (m *memory) DeleteCollection(_ context.Context, ref resource.Ref, _ metav1.DeleteOptions, _ metav1.ListOptions) error {
	return apierrors.NewMethodNotSupported(ref.GroupResource(), "deletecollection")
}

func qualified(o client.Object) string {
	return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}
