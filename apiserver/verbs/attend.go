package verbs

import (
	"slices"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// attend lists the writes that keep the attendants of an object in step with a change from old to obj, either of which may be nil.
func (r *Resource) attend(obj, old kind.Object) ([]store.Write, error) {
	if r.Kind.Attendants == nil {
		return nil, nil
	}
	var now, was []kind.Attendant
	if obj != nil {
		now = r.Kind.Attendants(obj)
	}
	if old != nil {
		was = r.Kind.Attendants(old)
	}
	var writes []store.Write
	for i := range now {
		if holds(was, &now[i]) {
			continue
		}
		w, err := r.arrive(&now[i])
		if err != nil {
			return nil, err
		}
		writes = append(writes, w...)
	}
	for i := range was {
		if !holds(now, &was[i]) {
			writes = append(writes, r.leave(&was[i])...)
		}
	}
	return writes, nil
}

func holds(list []kind.Attendant, a *kind.Attendant) bool {
	return slices.ContainsFunc(list, func(b kind.Attendant) bool {
		return a.Resource == b.Resource && a.Object.GetNamespace() == b.Object.GetNamespace() && a.Object.GetName() == b.Object.GetName()
	})
}

// arrive makes an attendant.
func (r *Resource) arrive(a *kind.Attendant) ([]store.Write, error) {
	other, served := r.lookup(a.Resource)
	if !served {
		return nil, nil
	}
	other.born(a.Object)
	value := stored.New(other.Kind, a.Object)
	w := store.Write{Table: other.table, Key: other.key(a.Object.GetNamespace(), a.Object.GetName()), Expect: store.Absent(),
		Make: func(rev store.Revision) store.Value { return value.Stamp(rev) }}
	if other.seal != nil {
		var err error
		if w.Make, err = other.seal.with(w.Key, w.Make); err != nil {
			return nil, err
		}
	}
	return []store.Write{w}, nil
}

// leave deletes an attendant if it is still there.
func (r *Resource) leave(a *kind.Attendant) []store.Write {
	other, served := r.lookup(a.Resource)
	if !served {
		return nil
	}
	item, exists := other.table.Proposed(other.key(a.Object.GetNamespace(), a.Object.GetName()))
	if !exists {
		return nil
	}
	last := item.Value.(*stored.Object)
	if !a.Mine(last.Hub()) {
		return nil
	}
	return []store.Write{{Table: other.table, Key: item.Key, Expect: store.At(item.Revision), Delete: true,
		Make: func(rev store.Revision) store.Value { return last.Deleted(rev) }}}
}
