package admission

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/kind"
)

// namespaceLifecycle refuses to write into a namespace that does not exist (404), or to add to one that is being deleted (403, with a
// cause by which clients tell it apart).
type namespaceLifecycle struct{}

func (namespaceLifecycle) Name() string { return "NamespaceLifecycle" }

func (namespaceLifecycle) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	switch {
	case r.Ref.Namespace == "" || r.Ref.Resource == "namespaces" && r.Ref.Group == "":
		return nil
	case r.Operation != admissionv1.Create && r.Operation != admissionv1.Update:
		return nil
	case r.Ref.Group == authorizationv1.GroupName && r.Ref.Resource == "localsubjectaccessreviews":
		return nil // what one may do in a namespace can be asked before there is one
	}
	ns, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
	if err != nil {
		return err
	}
	if r.Operation != admissionv1.Create || ns.Status.Phase != corev1.NamespaceTerminating && ns.DeletionTimestamp == nil {
		return nil
	}
	return terminating(r)
}

func terminating(r *kind.AdmissionRequest) error {
	err := apierrors.NewForbidden(r.Ref.GroupResource(), nameOf(r), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", r.Ref.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", r.Ref.Namespace), Field: "metadata.namespace",
	})
	return err
}

// namespaceProtection keeps the namespaces that a cluster cannot do without.
type namespaceProtection struct{}

var immortal = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

func (namespaceProtection) Name() string { return "NamespaceProtection" }

func (namespaceProtection) Validate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	if !on(r, "", "namespaces", admissionv1.Delete) || !slices.Contains(immortal, r.Ref.Name) && (r.Old == nil || !slices.Contains(immortal, r.Old.GetName())) {
		return nil
	}
	return forbid(r, "this namespace may not be deleted")
}
