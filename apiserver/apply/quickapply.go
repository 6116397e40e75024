package apply

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// quickApply does what the field manager does for an apply in the ordinary case: a plain configuration in the hub version of a Go type with a
// schema, which still has every field that its manager applied before, so that nothing has to be removed, and which takes nothing from another
// manager without force. Only the top-level fields that the configuration has are merged and compared: the others cannot change. false: the
// case is not ordinary, nothing was done, and the field manager must decide (and explain a conflict).
func (m *Managers) quickApply(live kind.Object, config runtime.Object, v *kind.Version, sub, manager string, force bool) (kind.Object, bool) {
	types, ok := m.types.(*Types)
	if !ok || v.To != nil || m.kind.Merge != nil || stored.MetaOf(live) == nil {
		return nil, false
	}
	f := types.form(v.GroupVersionKind)
	plain, ok := config.(*unstructured.Unstructured)
	if !ok || f.schema == nil || !m.ordinary(live, plain, v, sub, manager) {
		return nil, false
	}
	owners, ok := m.owners(live, live, v, "", f)
	if !ok || len(owners) == 0 && live.GetUID() != "" {
		return nil, false
	}
	want, err := types.ObjectToTyped(plain)
	if err != nil {
		return nil, false
	}
	large := wide(plain.Object)
	if large {
		want = inOrder(want)
	}
	set, err := want.ToFieldSet()
	if err != nil {
		return nil, false
	}
	self := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: v.GroupVersion().String(),
		FieldsType: "FieldsV1", Subresource: sub}
	if !keeps(owners, &self, set) {
		return nil, false
	}
	before, after, err := merge(live, plain, want, f)
	if err != nil {
		return nil, false
	}
	if large {
		before, after = inOrder(before), inOrder(after)
	}
	change, err := before.Compare(after)
	if err != nil {
		return nil, false
	}
	same := value.Equals(before.AsValue(), after.AsValue())
	owners, ok = settle(owners, change, self, set.Difference(stripped), force, same)
	if !ok {
		return nil, false
	}
	out := stored.Copy(live)
	if !same {
		if err := m.fill(out, plain, after); err != nil {
			return nil, false
		}
	}
	out.SetManagedFields(entriesOf(owners))
	return out, true
}

// ordinary tells whether a configuration is one that quickApply can decide. kubectl's first apply after its client-side ones takes over what the
// annotation of those names, which the field manager does.
func (m *Managers) ordinary(live kind.Object, config *unstructured.Unstructured, v *kind.Version, sub, manager string) bool {
	if config.GroupVersionKind() != v.GroupVersionKind || manager == "" || config.GetManagedFields() != nil {
		return false
	}
	if _, unreached := config.Object[m.unowned(sub)]; unreached {
		return false
	}
	_, clientSide := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	return manager != "kubectl" || !clientSide
}

// keeps tells whether set has everything that self applied before.
func keeps(owners []owner, self *metav1.ManagedFieldsEntry, set *fieldpath.Set) bool {
	for i := range owners {
		if same(&owners[i].entry, self) {
			return owners[i].set.Equals(set) || owners[i].set.Difference(set).Empty()
		}
	}
	return true
}

// merge merges a configuration into those top-level fields of live that it has.
func merge(live kind.Object, config *unstructured.Unstructured, want *typed.TypedValue, f form) (before, after *typed.TypedValue, err error) {
	copied := stored.Shallow(live)
	copied.SetManagedFields(nil)
	part := reflect.ValueOf(copied).Elem()
	for i, t := 0, part.Type(); i < t.NumField(); i++ {
		name := jsonName(t.Field(i))
		if _, has := config.Object[name]; !has && name != "" && name != "metadata" {
			part.Field(i).SetZero()
		}
	}
	lhs, err := value.NewValueReflect(copied)
	if err != nil {
		return nil, nil, err
	}
	before = typed.AsTypedUnvalidated(lhs, f.schema, f.ref)
	after, err = before.Merge(want)
	return before, after, err
}

// fill takes the merged fields over into out, and defaults it.
func (m *Managers) fill(out kind.Object, config *unstructured.Unstructured, merged *typed.TypedValue) error {
	content, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return fmt.Errorf("merging made no object")
	}
	made := m.kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, made); err != nil {
		return fmt.Errorf("the merged object is no valid %s: %w", m.kind.Names.Kind, err)
	}
	from, to := reflect.ValueOf(made).Elem(), reflect.ValueOf(out).Elem()
	for i, t := 0, to.Type(); i < t.NumField(); i++ {
		name := jsonName(t.Field(i))
		if _, has := config.Object[name]; has && name != "" || name == "metadata" {
			to.Field(i).Set(from.Field(i))
		}
	}
	out.GetObjectKind().SetGroupVersionKind(m.kind.Hub)
	if m.kind.Default != nil {
		m.kind.Default(out)
	}
	return nil
}

// settle gives set to self, and takes what an apply changed from everybody else: false if it may not. unchanged says that the object stays as it was:
// its entries keep their times.
func settle(owners []owner, change *typed.Comparison, self metav1.ManagedFieldsEntry, set *fieldpath.Set, force, unchanged bool) ([]owner, bool) {
	taken := change.Modified.Union(change.Added)
	out := make([]owner, 0, len(owners)+1)
	mine := owner{entry: self}
	for _, o := range owners {
		if same(&o.entry, &self) {
			mine = o
			continue
		}
		if !force && !o.set.Intersection(taken).Empty() {
			return nil, false
		}
		remains, err := o.lose(taken, change.Removed)
		if err != nil {
			return nil, false
		}
		if remains {
			out = append(out, o)
		}
	}
	if set.Empty() {
		return out, true
	}
	if !unchanged {
		mine.entry.Time = now()
	}
	if err := mine.become(set); err != nil {
		return nil, false
	}
	return append(out, mine), true
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
