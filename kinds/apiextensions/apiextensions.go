// Package apiextensions declares the kinds of the group apiextensions.k8s.io: the CustomResourceDefinition. What it defines is served elsewhere.
package apiextensions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// Group is apiextensions.k8s.io.
var Group = kind.Group{Name: "apiextensions.k8s.io", Versions: []string{"v1"}, AnyFinalizer: true, AddToScheme: []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme}}

type definition = apiextensionsv1.CustomResourceDefinition

// maxBody lets a definition have a schema of 5 MB, in any encoding, with the owners of its fields. Kubernetes stops at 3 MiB.
const maxBody = 16 << 20

var _ = kind.Add(&Group, kind.Def[definition]{
	Names:           kind.Names{Plural: "customresourcedefinitions", Short: []string{"crd", "crds"}, Categories: []string{"api-extensions"}},
	AnyGenerateName: true,
	Scope:           kind.Cluster,
	RequireVersion:  true,
	Default:         apiextensionsv1.SetObjectDefaults_CustomResourceDefinition,
	Prepare:         prepare,
	Validate:        validate,
	ValidateStatus:  validateStatus,
	Warn:            warn,
	KeepDeleted:     keepDeleted,
	OnDelete:        terminate,
	NoAge:           true,
	Body:            maxBody,
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

// keepDeleted holds a definition until its objects are gone: its deletion always takes the finalizer, which whoever deletes them takes away.
func keepDeleted(d *definition) bool { return d.DeletionTimestamp == nil }

// terminate marks a definition whose deletion begins.
func terminate(d *definition) {
	if !slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		d.Finalizers = append(slices.Clip(d.Finalizers), apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	apihelpers.SetCRDCondition(d, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
		Reason: "InstanceDeletionPending", Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"})
}

func validate(d, old *definition) field.ErrorList {
	now, before, err := internal(d, old)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	case old == nil:
		return append(validation.ValidateCustomResourceDefinition(context.Background(), now), validateScale(d)...)
	}
	return append(validation.ValidateCustomResourceDefinitionUpdate(context.Background(), now, before), validateScale(d)...)
}

// validateScale refuses what is not served: a scale subresource that the stored version lacks could only be reached through the webhook, which takes
// whole objects.
func validateScale(d *definition) field.ErrorList {
	if c := d.Spec.Conversion; c == nil || c.Strategy != apiextensionsv1.WebhookConverter {
		return nil
	}
	scaled := func(v *apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Subresources != nil && v.Subresources.Scale != nil
	}
	storage := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if storage < 0 || scaled(&d.Spec.Versions[storage]) {
		return nil
	}
	for i := range d.Spec.Versions {
		if scaled(&d.Spec.Versions[i]) {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "versions").Index(i).Child("subresources", "scale"), fmt.Sprintf(
				"with a conversion webhook the stored version %s must have a scale subresource too", d.Spec.Versions[storage].Name))}
		}
	}
	return nil
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
