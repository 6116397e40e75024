package core

import (
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// timestamp is now in whole seconds, as the API writes times: what a client reads and sends back must equal what is stored.
func timestamp(env kind.Env) metav1.Time { return metav1.NewTime(env.Now().Truncate(time.Second)) }

// subdomainName is the rule for most names; prefix is true for what a suffix will follow.
func subdomainName(name string, prefix bool) []string {
	return apivalidation.NameIsDNSSubdomain(name, prefix)
}

// labelName is the rule for names that become one DNS label (Namespace).
func labelName(name string, prefix bool) []string { return apivalidation.NameIsDNSLabel(name, prefix) }

func validateAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	return apivalidation.ValidateAnnotations(annotations, path)
}

// validateTemplateMeta checks the metadata of a template of a claim, of which only labels and annotations are used.
func validateTemplateMeta(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	var p problems
	p.add(validateAnnotations(meta.Annotations, path.Child("annotations"))...)
	p.add(metavalidation.ValidateLabels(meta.Labels, path.Child("labels"))...)
	const why = "cannot be set"
	for name, set := range map[string]bool{
		"name": meta.Name != "", "generateName": meta.GenerateName != "", "namespace": meta.Namespace != "", "selfLink": meta.SelfLink != "",
		"uID": meta.UID != "", "resourceVersion": meta.ResourceVersion != "", "generation": meta.Generation != 0,
		"creationTimestamp": !meta.CreationTimestamp.IsZero(), "deletionTimestamp": meta.DeletionTimestamp != nil,
		"deletionGracePeriodSeconds": meta.DeletionGracePeriodSeconds != nil, "ownerReferences": meta.OwnerReferences != nil,
		"finalizers": meta.Finalizers != nil, "managedFields": meta.ManagedFields != nil,
	} {
		if set {
			p.forbidden(path.Child(name), why)
		}
	}
	return p.list
}
