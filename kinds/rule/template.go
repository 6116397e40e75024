package rule

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TemplateMeta checks the metadata of a template of a claim, of which only labels and annotations are used.
func TemplateMeta(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(meta.Annotations, path.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(meta.Labels, path.Child("labels"))...)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", meta.Name != ""}, {"generateName", meta.GenerateName != ""}, {"namespace", meta.Namespace != ""}, {"selfLink", meta.SelfLink != ""},
		{"uID", meta.UID != ""}, {"resourceVersion", meta.ResourceVersion != ""}, {"generation", meta.Generation != 0},
		{"creationTimestamp", !meta.CreationTimestamp.IsZero()}, {"deletionTimestamp", meta.DeletionTimestamp != nil},
		{"deletionGracePeriodSeconds", meta.DeletionGracePeriodSeconds != nil}, {"ownerReferences", meta.OwnerReferences != nil},
		{"finalizers", meta.Finalizers != nil}, {"managedFields", meta.ManagedFields != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), "cannot be set"))
		}
	}
	return errs
}
