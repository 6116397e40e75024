// Package apiextensions declares the kinds of the group apiextensions.k8s.io: the CustomResourceDefinition. What it defines is served elsewhere.
package apiextensions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// Group is apiextensions.k8s.io.
var Group = kind.Group{Name: "apiextensions.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme}}

type definition = apiextensionsv1.CustomResourceDefinition

var _ = kind.Add(&Group, kind.Def[definition]{
	Names:          kind.Names{Plural: "customresourcedefinitions", Short: []string{"crd", "crds"}, Categories: []string{"api-extensions"}},
	Scope:          kind.Cluster,
	RequireVersion: true,
	Default:        apiextensionsv1.SetObjectDefaults_CustomResourceDefinition,
	Prepare:        prepare,
	Validate:       validate,
	ValidateStatus: validateStatus,
	NoAge:          true,
	Columns: []kind.Column[definition]{{Name: "Created At", Type: "date", Description: "When the object was created.",
		Value: func(d *definition, _ time.Time) any { return d.CreationTimestamp.Time.UTC().Format(time.RFC3339) }}},
})

// prepare records the version that is stored from now on: it stays in the status until every object was rewritten.
func prepare(d, _ *definition) {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			if !slices.Contains(d.Status.StoredVersions, v.Name) {
				d.Status.StoredVersions = append(slices.Clip(d.Status.StoredVersions), v.Name)
			}
			return
		}
	}
}

func validate(d, old *definition) field.ErrorList {
	now, before, err := internal(d, old)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	case old == nil:
		return validation.ValidateCustomResourceDefinition(context.Background(), now)
	}
	return validation.ValidateCustomResourceDefinitionUpdate(context.Background(), now, before)
}

func validateStatus(d, old *definition) field.ErrorList {
	now, before, err := internal(d, old)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("status"), err)}
	}
	if before == nil {
		return nil
	}
	return validation.ValidateUpdateCustomResourceDefinitionStatus(now, before)
}

// internal converts to the version in which the library's rules are written.
func internal(d, old *definition) (now, before *apiextensions.CustomResourceDefinition, err error) {
	if now, err = convert(d); err != nil || old == nil {
		return now, nil, err
	}
	before, err = convert(old)
	return now, before, err
}

func convert(d *definition) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	// The conversion may share memory with its argument, and validation of defaults writes.
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d.DeepCopy(), out, nil); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", d.Name, err)
	}
	return out, nil
}
