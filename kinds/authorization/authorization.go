// Package authorization declares the kinds of authorization.k8s.io (v1): questions about what somebody may do. Nothing of them is stored.
package authorization

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/kind"
)

// Group is the authorization group.
var Group = kind.Group{Name: authorizationv1.GroupName, Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{authorizationv1.AddToScheme}}

// question is what every access review asks.
type question struct {
	resource    *authorizationv1.ResourceAttributes
	nonResource *authorizationv1.NonResourceAttributes
}

// answer judges a question about a user.
func answer(ctx context.Context, env kind.Env, who user.Info, q question) authorizationv1.SubjectAccessReviewStatus {
	attributes := attributesOf(who, q)
	decision, reason, err := env.Authorize(ctx, attributes)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	if err := utilerrors.NewAggregate([]error{err, attributes.FieldSelectorParsingErr, attributes.LabelSelectorParsingErr}); err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func attributesOf(who user.Info, q question) authorizer.AttributesRecord {
	if q.nonResource != nil {
		return authorizer.AttributesRecord{User: who, Path: q.nonResource.Path, Verb: q.nonResource.Verb}
	}
	r := q.resource
	version := r.Version
	if version == "" {
		version = "*"
	}
	a := authorizer.AttributesRecord{User: who, Verb: r.Verb, Namespace: r.Namespace, APIGroup: r.Group, APIVersion: version,
		Resource: r.Resource, Subresource: r.Subresource, Name: r.Name, ResourceRequest: true}
	a.FieldSelectorRequirements, a.FieldSelectorParsingErr = fieldRequirements(r.FieldSelector)
	a.LabelSelectorRequirements, a.LabelSelectorParsingErr = labelRequirements(r.LabelSelector)
	return a
}

// subject is the user that a review names.
func subject(s *authorizationv1.SubjectAccessReviewSpec) user.Info {
	who := &user.DefaultInfo{Name: s.User, UID: s.UID, Groups: s.Groups}
	for k, v := range s.Extra {
		if who.Extra == nil {
			who.Extra = map[string][]string{}
		}
		who.Extra[k] = v
	}
	return who
}

func validateQuestion(q question) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	switch {
	case q.resource != nil && q.nonResource != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), q.nonResource, "cannot be specified in combination with resourceAttributes"))
	case q.resource == nil && q.nonResource == nil:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes"), q.nonResource, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if q.resource != nil {
		errs = append(errs, validateSelectors(q.resource, spec.Child("resourceAttributes"))...)
	}
	return errs
}

func validateSubject(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	if s.User == "" && len(s.Groups) == 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified")}
	}
	return nil
}

// validateMeta refuses metadata that a client set, which a review has no use for. What the server fills in is not looked at.
func validateMeta(m *metav1.ObjectMeta, detail string) field.ErrorList {
	if m.Name == "" && m.GenerateName == "" && len(m.Labels)+len(m.Annotations)+len(m.OwnerReferences)+len(m.Finalizers) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), m.Name, detail)}
}

func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: kind}, "", errs)
}

var errNoUser = apierrors.NewInternalError(errors.New("the request has no user"))
