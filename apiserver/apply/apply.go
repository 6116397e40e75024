// Package apply keeps track of which client owns which field of an object (metadata.managedFields) and merges server-side apply.
//
// The merge itself is that of sigs.k8s.io/structured-merge-diff through k8s.io/apimachinery's field managers; this package builds one
// field manager per kind, version and subresource from a kind's definition.
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

	"github.com/yare-project/yare/kind"
)

// Managers are the field managers of one kind, made when first needed.
type Managers struct {
	kind  *kind.Kind
	types managedfields.TypeConverter

	mu sync.RWMutex
	by map[managerKey]*managedfields.FieldManager

	sets setCache
	// prunable are the fields of the kind's Go type that may be left out of a comparison; nil if it is no struct.
	prunable func() []prunableField
}

type managerKey struct {
	version schema.GroupVersionKind
	sub     string
}

// For makes the managers of k.
func For(k *kind.Kind, types managedfields.TypeConverter) *Managers {
	return &Managers{kind: k, types: types, by: map[managerKey]*managedfields.FieldManager{}, prunable: sync.OnceValue(func() []prunableField {
		t := reflect.TypeOf(k.New())
		if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
			return nil
		}
		return prunable(t.Elem())
	})}
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
	f, err := managedfields.NewDefaultFieldManager(m.types, c, c, c, v.GroupVersionKind, m.kind.Hub.GroupVersion(), sub, m.resets(sub))
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
	filter := fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie(field)))
	out := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, v := range m.kind.Versions {
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
