package crd

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/yare-project/yare/kind"
)

// settle finishes an object that a client sent in this version: metadata must have its types, unknown fields are dropped and named, missing ones
// get their defaults.
func (f *form) settle(u *unstructured.Unstructured) ([]error, error) {
	s, err := f.structural()
	if err != nil {
		return nil, err
	}
	unknown, err := f.shape(u, s, false)
	if err != nil {
		return nil, err
	}
	defaulting.Default(u.Object, s)
	return unknown, nil
}

// shape drops what an object of this version has no place for. mend drops metadata of the wrong type too, which is otherwise an error.
func (f *form) shape(u *unstructured.Unstructured, s *structuralschema.Structural, mend bool) ([]error, error) {
	meta, has, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{DropMalformedFields: mend, ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	gvk := f.gvk
	if !f.of.preserves() {
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	}
	fault, more := objectmeta.CoerceWithOptions(nil, u.Object, s, false, objectmeta.CoerceOptions{DropInvalidFields: mend, ReturnUnknownFieldPaths: true})
	if fault != nil {
		return nil, fault
	}
	unknown = append(unknown, more...)
	u.SetGroupVersionKind(gvk)
	if has {
		if mend && meta.Generation == 0 {
			meta.Generation = 1
		}
		if err := setMeta(u, meta); err != nil {
			return nil, err
		}
	}
	var out []error
	for _, path := range unknown {
		out = append(out, fmt.Errorf("unknown field %q", path))
	}
	return out, nil
}

func setMeta(u *unstructured.Unstructured, meta *metav1.ObjectMeta) error {
	if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
		return fmt.Errorf("write metadata: %w", err)
	}
	return nil
}

// refine brings an object that the server changed itself (a conversion, an admission plugin, an apply) to the form that settle gives.
func (f *form) refine(u *unstructured.Unstructured) {
	s, err := f.structural()
	if err != nil {
		return // the same error refuses the write when the object is validated
	}
	if !f.of.preserves() {
		pruning.Prune(u.Object, s, true)
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	}
	defaulting.Default(u.Object, s)
}

// recall brings an object from disk up to the schema of now.
func (c *custom) recall(o kind.Object) {
	u := object(o)
	f := c.formOf(u)
	if f == nil {
		return
	}
	s, err := f.structural()
	if err != nil {
		return
	}
	if _, err := f.shape(u, s, true); err != nil {
		return // it is shown as it is
	}
	defaulting.Default(u.Object, s)
}

// formOf is the version that an object is in; nil if the definition does not have it any more.
func (c *custom) formOf(u *unstructured.Unstructured) *form {
	gvk := u.GroupVersionKind()
	if gvk.Group != c.hub.gvk.Group {
		return nil
	}
	return c.forms[gvk.Version]
}
