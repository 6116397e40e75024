// Package apply keeps track of which client owns which field of an object (metadata.managedFields) and merges server-side apply.
//
// The merge itself is that of sigs.k8s.io/structured-merge-diff through k8s.io/apimachinery's field managers; this package builds one
// field manager per kind, version and subresource from a kind's definition.
// Most writes take a shorter way to the same result (quick.go for plain ones, quickapply.go for applied ones): it decodes and encodes only
// what it has not seen, and compares only what can differ. What it cannot do is left to the field manager; random tests hold the two together.
//
// Guarantees: a live object that is passed in is never changed. Everything is safe for concurrent use. Field tracking never refuses a
// plain write: where ownership cannot be computed, the object loses its managedFields and the write goes on.
package apply

import (
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// Managers are the field managers of one kind, made when first needed.
type Managers struct {
	kind  *kind.Kind
	types managedfields.TypeConverter

	mu sync.RWMutex
	by map[managerKey]*managedfields.FieldManager

	sets setCache
	// born are the sets of those who create objects, by the objects' shapes.
	born setCache
	// shaper writes shapes; nil if the kind's have none.
	shaper func() objectShaper
	// structure is the kind's Go type; nil if it is no struct with metadata.
	structure func() reflect.Type
	// walker compares objects of that type as its schema says; nil if it can't, or if there is none.
	walker func() *rootWalker
}

type managerKey struct {
	version schema.GroupVersionKind
	sub     string
}

// For makes the managers of k.
func For(k *kind.Kind, types managedfields.TypeConverter) *Managers {
	m := &Managers{kind: k, types: types, by: map[managerKey]*managedfields.FieldManager{}}
	m.structure = func() reflect.Type {
		if t := reflect.TypeOf(k.New()); t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && stored.MetaOf(k.New()) != nil {
			return t.Elem()
		}
		return nil
	}
	m.walker = sync.OnceValue(func() *rootWalker {
		types, ok := m.types.(*Types)
		t := m.structure()
		if !ok || t == nil {
			return nil
		}
		return newRootWalker(t, types.form(k.Hub))
	})
	m.shaper = sync.OnceValue(func() objectShaper { return newObjectShaper(m.structure(), m.unowned("")) })
	return m
}

// Update records that manager made live into obj, through version and subresource. live is an empty object of the kind on create. It
// returns obj with managedFields set.
func (m *Managers) Update(live, obj kind.Object, v *kind.Version, sub, manager string) (kind.Object, error) {
	if m.quick(live, obj, v, sub, manager) {
		return obj, nil
	}
	f, err := m.manager(v, sub)
	if err != nil {
		return nil, err
	}
	out, ok := f.UpdateNoErrors(live, obj, manager).(kind.Object)
	if !ok {
		return nil, fmt.Errorf("managed fields of %s: %T came back", m.kind.Resource(), obj)
	}
	return out, nil
}

// Apply merges the configuration config into live. A nil object means that nothing changes.
func (m *Managers) Apply(live kind.Object, config runtime.Object, v *kind.Version, sub, manager string, force bool) (kind.Object, error) {
	if out, done := m.quickApply(live, config, v, sub, manager, force); done {
		return out, nil
	}
	f, err := m.manager(v, sub)
	if err != nil {
		return nil, err
	}
	out, err := f.Apply(live, config, manager, force)
	if err != nil || out == nil {
		return nil, err
	}
	hub, ok := out.(kind.Object)
	if !ok {
		return nil, fmt.Errorf("apply to %s: %T came back", m.kind.Resource(), out)
	}
	return hub, nil
}

func (m *Managers) manager(v *kind.Version, sub string) (*managedfields.FieldManager, error) {
	key := managerKey{v.GroupVersionKind, sub}
	m.mu.RLock()
	f := m.by[key]
	m.mu.RUnlock()
	if f != nil {
		return f, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.by[key]; f != nil {
		return f, nil
	}
	c := conversions{m.kind}
	make, types := managedfields.NewDefaultFieldManager, m.types
	if m.kind.Merge != nil {
		var err error
		if types, err = m.kind.Merge(); err != nil {
			return nil, fmt.Errorf("merge schema of %s: %w", m.kind.Resource(), err)
		}
		make = managedfields.NewDefaultCRDFieldManager
	}
	f, err := make(types, c, c, c, v.GroupVersionKind, m.kind.Hub.GroupVersion(), sub, m.resets(sub))
	if err != nil {
		return nil, fmt.Errorf("field manager of %s: %w", v.GroupVersionKind, err)
	}
	m.by[key] = f
	return f, nil
}

// resets are the fields that a write through sub does not reach, so that nobody comes to own them there: status in the object itself,
// everything but status (and metadata) in the status subresource.
func (m *Managers) resets(sub string) map[fieldpath.APIVersion]fieldpath.Filter {
	field := m.unowned(sub)
	if field == "" {
		return nil
	}
	unreached := fieldpath.NewSet(fieldpath.MakePathOrDie(field))
	if m.kind.Dynamic && sub == "status" { // Kubernetes lets the status of a custom resource change nothing else
		unreached.Insert(fieldpath.MakePathOrDie("metadata"))
	}
	filter := fieldpath.NewExcludeSetFilter(unreached)
	out := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, v := range m.kind.Versions {
		if v.NoStatus {
			continue
		}
		out[fieldpath.APIVersion(v.GroupVersion().String())] = filter
	}
	return out
}

// unowned is the field that a write through sub does not reach, or "".
func (m *Managers) unowned(sub string) string {
	switch {
	case !m.kind.HasStatus:
		return ""
	case sub == "":
		return "status"
	case sub == "status":
		return "spec"
	}
	return ""
}
