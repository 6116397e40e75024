package verbs

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/alike"
	"github.com/yare-project/yare/internal/plain"
	"github.com/yare-project/yare/kind"
)

const (
	// generatedSuffix is how many random characters a generateName gets, and maxGenerated how long the whole may be: as Kubernetes.
	generatedSuffix = 5
	maxGenerated    = 63
)

// place puts obj into the request's namespace, or refuses a contradiction.
func (r *Resource) place(rq *Request, obj kind.Object) error {
	ns := rq.Ref.Namespace
	if r.Kind.Scope == kind.Cluster {
		obj.SetNamespace("")
		return nil
	}
	switch {
	case ns == "" && !r.Kind.Virtual:
		return apierrors.NewBadRequest("an empty namespace may not be set during creation")
	case obj.GetNamespace() == "":
		obj.SetNamespace(ns)
	case obj.GetNamespace() != ns:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// unborn takes away what the server alone sets on a new object.
func unborn(obj kind.Object) {
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// born sets it.
func (r *Resource) born(obj kind.Object) {
	obj.SetUID(types.UID(uuid.NewUUID()))
	obj.SetCreationTimestamp(r.now())
	obj.SetGeneration(0)
	if r.Kind.Spec != nil {
		obj.SetGeneration(1)
	}
}

// round gives an object's times the precision of the wire.
func (r *Resource) round(obj kind.Object) {
	if r.Kind.Round != nil {
		r.Kind.Round(obj)
	}
}

// generateName makes a name from a base.
func generateName(base string) string {
	if len(base) > maxGenerated-generatedSuffix {
		base = base[:maxGenerated-generatedSuffix]
	}
	return base + utilrand.String(generatedSuffix)
}

// validateMeta checks a new object's metadata.
func (r *Resource) validateMeta(obj kind.Object) field.ErrorList {
	nameOf := r.Kind.ValidateName
	if nameOf == nil {
		nameOf = metavalidation.NameIsDNSSubdomain
	}
	path := field.NewPath("metadata")
	errs := r.validateFinalizers(obj, path)
	if m := stored.MetaOf(obj); m != nil {
		return append(errs, metavalidation.ValidateObjectMeta(unusual(m), r.Kind.Scope == kind.Namespaced, nameOf, path)...)
	}
	return append(errs, metavalidation.ValidateObjectMetaAccessor(obj, r.Kind.Scope == kind.Namespaced, nameOf, path)...)
}

// validateMetaUpdate checks changed metadata: what may change at all, and the form of what has changed.
func (r *Resource) validateMetaUpdate(obj, old kind.Object) field.ErrorList {
	path := field.NewPath("metadata")
	if m, was := stored.MetaOf(obj), stored.MetaOf(old); m != nil && was != nil && m.ResourceVersion != "" && m.Generation >= was.Generation && judgedMeta.Same(m, was) {
		return v1validation.ValidateManagedFields(m.ManagedFields, path.Child("managedFields"))
	}
	errs := metavalidation.ValidateObjectMetaAccessorUpdate(obj, old, path)
	if prefix := obj.GetGenerateName(); prefix != "" && prefix != old.GetGenerateName() {
		for _, message := range pathvalidation.IsValidPathSegmentPrefix(prefix) {
			errs = append(errs, field.Invalid(path.Child("generateName"), prefix, message))
		}
		nameOf := r.Kind.ValidateName
		if nameOf == nil {
			nameOf = metavalidation.NameIsDNSSubdomain
		}
		if r.Kind.AnyGenerateName || r.Kind.Dynamic {
			nameOf = func(string, bool) []string { return nil }
		}
		for _, message := range nameOf(prefix, true) {
			errs = append(errs, field.Invalid(path.Child("generateName"), prefix, message))
		}
	}
	if finalizers := obj.GetFinalizers(); len(finalizers) > 0 {
		errs = append(errs, metavalidation.ValidateFinalizers(finalizers, path.Child("finalizers"))...)
		errs = append(errs, r.validateFinalizers(obj, path)...)
	}
	return errs
}

// judgedMeta compares metadata but for what every write changes. What is as it was has been judged.
var judgedMeta = alike.New[metav1.ObjectMeta]("ManagedFields", "ResourceVersion", "Generation")

// validateFinalizers holds the finalizers of built-in kinds to a domain, unless they are the cluster's own.
func (r *Resource) validateFinalizers(obj kind.Object, path *field.Path) field.ErrorList {
	if r.Kind.Dynamic || r.Kind.AnyFinalizer {
		return nil
	}
	return kind.CheckFinalizers(obj.GetFinalizers(), path.Child("finalizers"))
}

// unusual is m without the labels and annotations if they are all well formed, as they nearly always are: the validator would take longer to say so.
func unusual(m *metav1.ObjectMeta) *metav1.ObjectMeta {
	rest := *m
	if wellFormed(m.Labels, plain.Value) {
		rest.Labels = nil
	}
	size := 0
	if wellFormed(m.Annotations, func(value string) bool { size += len(value); return true }) && size < metavalidation.TotalAnnotationSizeLimitB/2 && len(m.Annotations) < 256 {
		rest.Annotations = nil
	}
	return &rest
}

func wellFormed(pairs map[string]string, value func(string) bool) bool {
	for k, v := range pairs {
		if !plain.Key(k) || !value(v) {
			return false
		}
	}
	return true
}

// inherit carries over what an update cannot change, and counts the generation.
func (r *Resource) inherit(obj, old kind.Object) {
	obj.SetGeneration(old.GetGeneration())
	obj.SetSelfLink("")
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if marked := old.GetDeletionTimestamp(); marked != nil {
		obj.SetDeletionTimestamp(marked)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(grace)
	}
}

// count bumps the generation if what it counts has changed.
func (r *Resource) count(obj, old kind.Object) {
	if r.Kind.Spec != nil && !r.sameSpec(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func (r *Resource) sameSpec(obj, old kind.Object) bool {
	if r.Kind.SameSpec != nil {
		return r.Kind.SameSpec(obj, old)
	}
	now, was := r.Kind.Spec(obj), r.Kind.Spec(old)
	// What is equal to the letter, which is the most frequent case and the quicker one to tell, is equal in meaning.
	return reflect.DeepEqual(now, was) || equality.Semantic.DeepEqual(now, was)
}

// dedupeOwners drops repeated owner references, telling the client.
func dedupeOwners(rq *Request, obj kind.Object) {
	refs := obj.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	seen := make(map[types.UID]bool, len(refs))
	var kept []metav1.OwnerReference
	var repeated []string
	for _, ref := range refs {
		if seen[ref.UID] && contains(kept, ref) {
			repeated = append(repeated, string(ref.UID))
			continue
		}
		seen[ref.UID] = true
		kept = append(kept, ref)
	}
	if len(repeated) > 0 {
		obj.SetOwnerReferences(kept)
		rq.Warn(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; " +
			"please fix your requests; duplicate UID(s) observed: " + strings.Join(repeated, ", "))
	}
}

func contains(refs []metav1.OwnerReference, ref metav1.OwnerReference) bool {
	for i := range refs {
		if equality.Semantic.DeepEqual(refs[i], ref) {
			return true
		}
	}
	return false
}

// unchanged tells whether obj says nothing new: the same as old but for the times at which managers wrote. Then obj takes old's bookkeeping.
func unchanged(k *kind.Kind, obj, old kind.Object) bool {
	fresh := obj.GetManagedFields()
	if !sameManagers(fresh, old.GetManagedFields()) {
		return false
	}
	rv := obj.GetResourceVersion()
	obj.SetManagedFields(old.GetManagedFields())
	obj.SetResourceVersion(old.GetResourceVersion())
	if equal(k, obj, old) {
		return true
	}
	obj.SetManagedFields(fresh)
	obj.SetResourceVersion(rv)
	return false
}

// equal compares objects in meaning.
func equal(k *kind.Kind, a, b kind.Object) bool {
	if k.Equal != nil {
		return k.Equal(a, b)
	}
	return equality.Semantic.DeepEqual(a, b)
}

func sameManagers(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Manager != y.Manager || x.Operation != y.Operation || x.APIVersion != y.APIVersion || x.Subresource != y.Subresource || x.FieldsType != y.FieldsType {
			return false
		}
		if (x.FieldsV1 == nil) != (y.FieldsV1 == nil) || x.FieldsV1 != nil && !x.FieldsV1.Equal(*y.FieldsV1) {
			return false
		}
	}
	return true
}

// userAgentManager is the field manager that a client's User-Agent names: its first word, printable, of at most 128 bytes.
func userAgentManager(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, name)
	return truncate(name, 128)
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// ManagerOf names the field manager of a client that gives none, from its User-Agent.
func ManagerOf(userAgent string) string { return userAgentManager(userAgent) }
