package crd

import (
	"fmt"
	"math"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

func hasStatus(v *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return v.Subresources != nil && v.Subresources.Status != nil
}

func hasScale(v *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return v.Subresources != nil && v.Subresources.Scale != nil
}

func (c *custom) hasStatus() bool {
	for _, f := range c.forms {
		if hasStatus(f.declared) {
			return true
		}
	}
	return false
}

// steps takes a path such as .spec.replicas apart; a scale's paths name fields only.
func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// scale finds the scale's numbers in the hub version, or, where versions differ in nothing but their name, where a version that has the subresource says.
func (c *custom) scale() *kind.ErasedScale {
	declared := c.hub.declared
	for _, f := range c.ordered() {
		if !hasScale(declared) && hasScale(f.declared) {
			declared = f.declared
		}
	}
	if !hasScale(declared) {
		return nil
	}
	s := declared.Subresources.Scale
	number := func(path string) func(kind.Object) int32 {
		at := steps(path)
		return func(o kind.Object) int32 {
			n, _, _ := unstructured.NestedInt64(object(o).Object, at...) // validation keeps other types out
			return int32(n)
		}
	}
	return &kind.ErasedScale{
		Replicas: number(s.SpecReplicasPath), StatusReplicas: number(s.StatusReplicasPath),
		SetReplicas: func(o kind.Object, n int32) {
			// What stands in the way is no object; then the write is refused, since the path still holds no number.
			_ = unstructured.SetNestedField(object(o).Object, int64(n), steps(s.SpecReplicasPath)...)
		},
		Selector: func(o kind.Object) string {
			if s.LabelSelectorPath == nil || *s.LabelSelectorPath == "" {
				return ""
			}
			text, _, _ := unstructured.NestedString(object(o).Object, steps(*s.LabelSelectorPath)...)
			return text
		},
	}
}

// validateScale checks that what the scale subresource shows are the numbers and the text that it must show.
func (f *form) validateScale(u *unstructured.Unstructured, spec bool) field.ErrorList {
	if !hasScale(f.declared) {
		return nil
	}
	s := f.declared.Subresources.Scale
	var errs field.ErrorList
	if spec {
		errs = append(errs, replicas(u, s.SpecReplicasPath)...)
	}
	errs = append(errs, replicas(u, s.StatusReplicasPath)...)
	if at := s.LabelSelectorPath; at != nil && *at != "" {
		if text, _, err := unstructured.NestedString(u.Object, steps(*at)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*at), text, err.Error()))
		}
	}
	return errs
}

func replicas(u *unstructured.Unstructured, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(u.Object, steps(path)...)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(field.NewPath(path), n, err.Error())}
	case n < 0:
		return field.ErrorList{field.Invalid(field.NewPath(path), n, "should be a non-negative integer")}
	case n > math.MaxInt32:
		return field.ErrorList{field.Invalid(field.NewPath(path), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32))}
	}
	return nil
}
