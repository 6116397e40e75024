package apply

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/yare-project/yare/kind"
)

// maxUpdaters is how many entries of plain writes an object keeps before the oldest are merged, as Kubernetes.
const maxUpdaters = 10

// stripped are the fields that nobody owns, as Kubernetes.
var stripped = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"), fieldpath.MakePathOrDie("metadata", "creationTimestamp"),
	fieldpath.MakePathOrDie("metadata", "selfLink"), fieldpath.MakePathOrDie("metadata", "uid"), fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "managedFields"), fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// owner is one entry of managedFields with its set of fields, both shared.
type owner struct {
	entry metav1.ManagedFieldsEntry
	set   *fieldpath.Set
}

// quick does what the field manager does for a plain write in the ordinary case: a Go type with a schema, written in the hub version, whose
// entries are all of that version. It decodes no entry twice, compares only the parts of the objects that differ, and encodes only the entries
// that change. false: the case is not ordinary, nothing was done, and the field manager must decide.
func (m *Managers) quick(live, obj kind.Object, v *kind.Version, sub, manager string) bool {
	types, ok := m.types.(*Types)
	if !ok || v.To != nil || m.kind.Merge != nil {
		return false
	}
	f := types.form(v.GroupVersionKind)
	if f.schema == nil {
		return false
	}
	owners, ok := m.owners(live, obj, v, sub, f)
	if !ok || len(owners) == 0 && live.GetUID() != "" {
		return false // an object that was never tracked stays so
	}
	self := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v.GroupVersion().String(),
		FieldsType: "FieldsV1", Subresource: sub}
	if manager == "" {
		self.Manager = "unknown"
	}
	var shape []byte
	shaped := false
	if len(owners) == 0 && sub == "" {
		buffer := shapes.Get().(*[]byte)
		shape, shaped = m.shapeOf((*buffer)[:0], live, obj)
		defer func() { *buffer = shape[:0]; shapes.Put(buffer) }()
		if shaped {
			if k, hit := m.born.find(shape); hit {
				self.FieldsV1, self.Time = k.fields, now()
				obj.SetManagedFields([]metav1.ManagedFieldsEntry{self})
				return true
			}
		}
	}
	w := m.walker()
	if w == nil || reflect.TypeOf(live) != reflect.TypeOf(obj) {
		return false
	}
	change, ok := w.compare(live, obj, m.unowned(sub))
	if !ok {
		return false
	}
	owners, err := reassign(owners, change, self)
	if err != nil || tooMany(owners) {
		return false
	}
	if shaped && len(owners) == 1 {
		m.born.keep(string(shape), known{fields: owners[0].entry.FieldsV1})
	}
	obj.SetManagedFields(entriesOf(owners))
	return true
}

// owners decodes the entries that a write starts from: those that it sends, if it may set them and does; else those of the live object.
func (m *Managers) owners(live, obj kind.Object, v *kind.Version, sub string, f form) ([]owner, bool) {
	entries := obj.GetManagedFields()
	switch {
	case sub != "" || entries == nil:
		entries = live.GetManagedFields()
	case len(entries) == 0 || len(entries) == 1 && entries[0] == (metav1.ManagedFieldsEntry{}):
		return nil, false // the client wants them reset
	}
	out := make([]owner, len(entries), len(entries)+1)
	for i := range entries {
		e := entries[i]
		if e.FieldsV1 == nil || e.FieldsType != "FieldsV1" || e.APIVersion != v.GroupVersion().String() ||
			e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate ||
			slices.ContainsFunc(out[:i], func(o owner) bool { return same(&o.entry, &e) }) {
			return nil, false
		}
		known, ok := m.sets.get(e.FieldsV1, f)
		if !ok {
			return nil, false
		}
		e.FieldsV1 = known.fields
		out[i] = owner{entry: e, set: known.set}
	}
	return out, true
}

// same tells whether two entries are of one owner.
func same(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
}

// reassign gives what has changed to self and takes it, and what has gone, from everybody else.
func reassign(owners []owner, change *typed.Comparison, self metav1.ManagedFieldsEntry) ([]owner, error) {
	taken := change.Modified.Union(change.Added)
	mine := taken.Difference(stripped)
	found := false
	out := owners[:0]
	for _, o := range owners {
		if same(&o.entry, &self) && !mine.Empty() {
			found = true
			o.entry.Time = now()
			if err := o.become(o.set.Difference(change.Removed).Union(mine)); err != nil {
				return nil, err
			}
			out = append(out, o)
			continue
		}
		remains, err := o.lose(taken, change.Removed)
		if err != nil {
			return nil, err
		}
		if remains {
			out = append(out, o)
		}
	}
	if found || mine.Empty() {
		return out, nil
	}
	self.Time = now()
	o := owner{entry: self}
	err := o.become(mine)
	return append(out, o), err
}

// lose takes fields from an owner: false if none is left to it.
func (o *owner) lose(taken, removed *fieldpath.Set) (remains bool, err error) {
	left := o.set
	if both := left.Intersection(taken); !both.Empty() {
		left = left.Difference(both)
	}
	if !removed.Empty() {
		left = left.Difference(removed)
	}
	if left.Empty() {
		return false, nil
	}
	return true, o.become(left)
}

// become encodes a set if it is not what the owner has already.
func (o *owner) become(set *fieldpath.Set) error {
	if o.set != nil && o.set.Equals(set) {
		return nil
	}
	fields, err := encodeSet(set)
	o.entry.FieldsV1, o.set = fields, set
	return err
}

func now() *metav1.Time { return &metav1.Time{Time: time.Now().UTC()} }

func tooMany(owners []owner) bool {
	n := 0
	for i := range owners {
		if owners[i].entry.Operation == metav1.ManagedFieldsOperationUpdate {
			n++
		}
	}
	return n > maxUpdaters
}

// entriesOf are the entries in the order that the API gives them.
func entriesOf(owners []owner) []metav1.ManagedFieldsEntry {
	if len(owners) == 0 {
		return nil
	}
	out := make([]metav1.ManagedFieldsEntry, len(owners))
	for i := range owners {
		out[i] = owners[i].entry
	}
	slices.SortFunc(out, order)
	return out
}
