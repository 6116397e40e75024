package apiextensions_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/apiextensions"
)

func definitions() *kind.Kind { return apiextensions.Group.Kinds[0] }

func sample() *apiextensionsv1.CustomResourceDefinition {
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}
	}
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://example.com/convert")}}}}}
	definitions().Default(d)
	definitions().Prepare(d, nil)
	return d
}

func TestScaleThatTheStoredVersionLacks(t *testing.T) {
	d := sample()
	if errs := definitions().Validate(d, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	d.Spec.Versions[1].Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"}}
	errs := definitions().Validate(d, nil)
	if len(errs) != 1 || errs[0].Field != "spec.versions[1].subresources.scale" || !strings.Contains(errs[0].Detail, "v1") {
		t.Fatal(errs)
	}
	d.Spec.Versions[0].Subresources = d.Spec.Versions[1].Subresources.DeepCopy()
	if errs := definitions().Validate(d, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
}

func TestDeletionWaitsForTheObjects(t *testing.T) {
	d := sample()
	k := definitions()
	if !k.KeepDeleted(d) {
		t.Fatal("a definition would go at once")
	}
	d.DeletionTimestamp = &metav1.Time{}
	k.OnDelete(d)
	if len(d.Finalizers) != 1 || d.Finalizers[0] != apiextensionsv1.CustomResourceCleanupFinalizer || d.Status.Conditions[0].Type != apiextensionsv1.Terminating {
		t.Fatalf("marked: %+v %+v", d.Finalizers, d.Status.Conditions)
	}
	if k.KeepDeleted(d) {
		t.Fatal("a definition whose finalizer is gone would stay")
	}
}
