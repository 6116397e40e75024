package authorization_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/authorization"
	"github.com/yare-project/yare/kinds/fake"
)

func ask(t *testing.T, env kind.Env, plural string, obj kind.Object) (kind.Object, error) {
	t.Helper()
	for _, k := range authorization.Group.Kinds {
		if k.Names.Plural == plural {
			return k.Answer(context.Background(), env, obj)
		}
	}
	t.Fatalf("no kind %s", plural)
	return nil, nil
}

func world() *fake.Env {
	r := authz.NewRBAC()
	r.Set(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}})
	r.Set(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "ann"}, {Kind: "Group", Name: "dev"}}})
	return &fake.Env{Who: &user.DefaultInfo{Name: "ann"}, Authorizer: authz.New(r), Resolver: authz.New(r)}
}

func getPods(namespace string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: namespace}
}

func TestAccessReviews(t *testing.T) {
	env := world()
	review := func(s authorizationv1.SubjectAccessReviewSpec) *authorizationv1.SubjectAccessReview {
		return &authorizationv1.SubjectAccessReview{Spec: s}
	}
	for name, test := range map[string]struct {
		plural string
		obj    kind.Object
		want   bool
	}{
		"user":         {"subjectaccessreviews", review(authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: getPods("ns")}), true},
		"group":        {"subjectaccessreviews", review(authorizationv1.SubjectAccessReviewSpec{Groups: []string{"dev"}, ResourceAttributes: getPods("ns")}), true},
		"another":      {"subjectaccessreviews", review(authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: getPods("ns")}), false},
		"elsewhere":    {"subjectaccessreviews", review(authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: getPods("other")}), false},
		"path":         {"subjectaccessreviews", review(authorizationv1.SubjectAccessReviewSpec{User: "ann", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}}), false},
		"self":         {"selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: getPods("ns")}}, true},
		"self refused": {"selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: getPods("")}}, false},
		"in namespace": {"localsubjectaccessreviews", &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: getPods("ns")}}, true},
	} {
		out, err := ask(t, env, test.plural, test.obj)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var status authorizationv1.SubjectAccessReviewStatus
		switch o := out.(type) {
		case *authorizationv1.SubjectAccessReview:
			status = o.Status
		case *authorizationv1.SelfSubjectAccessReview:
			status = o.Status
		case *authorizationv1.LocalSubjectAccessReview:
			status = o.Status
		}
		if status.Allowed != test.want || status.Denied {
			t.Errorf("%s: %+v", name, status)
		}
	}
}

func TestReviewsThatMakeNoSense(t *testing.T) {
	path := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/x"}
	labelled := metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}
	for name, test := range map[string]struct {
		plural string
		obj    kind.Object
		want   string
	}{
		"no question":       {"subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u"}}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"},
		"two questions":     {"subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: getPods(""), NonResourceAttributes: path}}, "cannot be specified in combination with resourceAttributes"},
		"nobody":            {"subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: getPods("")}}, "at least one of user or group must be specified"},
		"labels":            {"selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{ObjectMeta: labelled, Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: getPods("")}}, "must be empty"},
		"another namespace": {"localsubjectaccessreviews", &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: getPods("other")}}, "must match metadata.namespace"},
		"path in namespace": {"localsubjectaccessreviews", &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", NonResourceAttributes: path}}, "disallowed on this kind of request"},
		"rules of nowhere":  {"selfsubjectrulesreviews", &authorizationv1.SelfSubjectRulesReview{}, "no namespace on request"},
		"two selectors": {"selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Resource: "pods", FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "a=b", Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}}}}}}, "may not specified at the same time"},
	} {
		out, err := ask(t, world(), test.plural, test.obj)
		if err == nil || !strings.Contains(err.Error(), test.want) || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got %v, %v", name, out, err)
		}
	}
}

func TestSelectorsReachTheAuthorizer(t *testing.T) {
	var asked authorizer.Attributes
	env := &fake.Env{Who: &user.DefaultInfo{Name: "n"}, Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = a
		return authorizer.DecisionAllow, "", nil
	})}
	out, err := ask(t, env, "selfsubjectaccessreviews", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: "list", Resource: "pods",
		FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "spec.nodeName", Operator: "In", Values: []string{"n1"}}, {Key: "x", Operator: "Exists"}}},
		LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "app=web"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	fields, fieldErr := asked.GetFieldSelector()
	labels, _ := asked.GetLabelSelector()
	if len(fields) != 1 || fields[0].Field != "spec.nodeName" || fields[0].Value != "n1" || fieldErr == nil || len(labels) != 1 || labels[0].String() != "app=web" {
		t.Errorf("fields %v (%v), labels %v", fields, fieldErr, labels)
	}
	if s := out.(*authorizationv1.SelfSubjectAccessReview).Status; !s.Allowed || !strings.Contains(s.EvaluationError, "not supported") {
		t.Errorf("the requirement that was left out is not told: %+v", s)
	}
}

func TestRulesReview(t *testing.T) {
	out, err := ask(t, world(), "selfsubjectrulesreviews", &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "ns"}})
	if err != nil {
		t.Fatal(err)
	}
	want := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
		NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	if d := cmp.Diff(want, out.(*authorizationv1.SelfSubjectRulesReview).Status); d != "" {
		t.Error(d)
	}
}
