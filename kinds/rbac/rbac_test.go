package rbac_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/fake"
	"github.com/yare-project/yare/kinds/rbac"
)

func kindOf(t *testing.T, plural string) *kind.Kind {
	t.Helper()
	for _, k := range rbac.Group.Kinds {
		if k.Names.Plural == plural {
			return k
		}
	}
	t.Fatalf("no kind %s", plural)
	return nil
}

func pods(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"pods"}}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func TestValidation(t *testing.T) {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}
	clusterRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "r"}
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ns", Name: "a"}
	for name, test := range map[string]struct {
		plural   string
		obj, old kind.Object
		want     string
	}{
		"role":                   {"roles", &rbacv1.Role{Rules: []rbacv1.PolicyRule{pods("get")}}, nil, ""},
		"no verbs":               {"roles", &rbacv1.Role{Rules: []rbacv1.PolicyRule{pods()}}, nil, "rules[0].verbs: Required value: verbs must contain at least one value"},
		"no groups":              {"roles", &rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, Resources: []string{"pods"}}}}, nil, "rules[0].apiGroups: Required value: resource rules must supply at least one api group"},
		"no resources":           {"clusterroles", &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}}}}, nil, "rules[0].resources: Required value: resource rules must supply at least one resource"},
		"url in a namespace":     {"roles", &rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}}, nil, "namespaced rules cannot apply to non-resource URLs"},
		"url":                    {"clusterroles", &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}}, nil, ""},
		"url and resource":       {"clusterroles", &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}, Resources: []string{"pods"}}}}, nil, "rules cannot apply to both regular resources and non-resource URLs"},
		"aggregates nothing":     {"clusterroles", &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}}, nil, "at least one clusterRoleSelector required"},
		"bad selector":           {"clusterroles", &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a b": ""}}}}}, nil, "aggregationRule.clusterRoleSelectors[0].matchLabels"},
		"binding":                {"rolebindings", &rbacv1.RoleBinding{RoleRef: ref, Subjects: []rbacv1.Subject{account}}, nil, ""},
		"binding of two kinds":   {"rolebindings", &rbacv1.RoleBinding{RoleRef: clusterRef}, nil, ""},
		"cluster wide to a role": {"clusterrolebindings", &rbacv1.ClusterRoleBinding{RoleRef: ref}, nil, `roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`},
		"another group":          {"rolebindings", &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: "x", Kind: "Role", Name: "r"}}, nil, "roleRef.apiGroup: Unsupported value"},
		"no role":                {"rolebindings", &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role"}}, nil, "roleRef.name: Required value"},
		"role with a slash":      {"rolebindings", &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "a/b"}}, nil, "may not contain '/'"},
		"other role":             {"rolebindings", &rbacv1.RoleBinding{RoleRef: ref}, &rbacv1.RoleBinding{RoleRef: clusterRef}, "cannot change roleRef"},
		"account without place":  {"clusterrolebindings", &rbacv1.ClusterRoleBinding{RoleRef: clusterRef, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}}}, nil, "subjects[0].namespace: Required value"},
		"nameless subject":       {"clusterrolebindings", &rbacv1.ClusterRoleBinding{RoleRef: clusterRef, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName}}}, nil, "subjects[0].name: Required value"},
		"unknown subject":        {"clusterrolebindings", &rbacv1.ClusterRoleBinding{RoleRef: clusterRef, Subjects: []rbacv1.Subject{{Kind: "Robot", Name: "r"}}}, nil, "subjects[0].kind: Unsupported value"},
		"user of no group":       {"rolebindings", &rbacv1.RoleBinding{RoleRef: ref, Subjects: []rbacv1.Subject{{Kind: "User", Name: "u"}}}, nil, "subjects[0].apiGroup: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			err := kindOf(t, test.plural).Validate(test.obj, test.old).ToAggregate()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	k := kindOf(t, "roles")
	for name, ok := range map[string]bool{"system:node": true, "Mixed Case": true, "a/b": false, "..": false, "a%b": false} {
		if got := len(k.ValidateName(name, false)) == 0; got != ok {
			t.Errorf("name %q: accepted=%v", name, got)
		}
	}
}

func TestDefaultsFillGroups(t *testing.T) {
	b := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "u"}, {Kind: "Group", Name: "g"}, {Kind: "ServiceAccount", Name: "s"}}}
	k := kindOf(t, "rolebindings")
	k.Default(b)
	once := b.DeepCopy()
	k.Default(b)
	if d := cmp.Diff(once, b); d != "" {
		t.Errorf("not idempotent: %s", d)
	}
	got := []string{b.RoleRef.APIGroup, b.Subjects[0].APIGroup, b.Subjects[1].APIGroup, b.Subjects[2].APIGroup}
	if d := cmp.Diff([]string{rbacv1.GroupName, rbacv1.GroupName, rbacv1.GroupName, ""}, got); d != "" {
		t.Error(d)
	}
}

func TestColumns(t *testing.T) {
	b := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{
		{Kind: "User", Name: "u"}, {Kind: "User", Name: "v"}, {Kind: "Group", Name: "g"}, {Kind: "ServiceAccount", Namespace: "ns", Name: "s"}}}
	var got []string
	for _, c := range kindOf(t, "clusterrolebindings").Versions[0].Columns {
		got = append(got, c.Name+"="+c.Value(b, time.Time{}).(string))
	}
	if d := cmp.Diff([]string{"Role=ClusterRole/view", "Users=u, v", "Groups=g", "ServiceAccounts=ns/s"}, got); d != "" {
		t.Error(d)
	}
}

// world has: ann, who reads pods and edits roles in ns; and bob, who may escalate and bind; and a cluster admin.
func world() (*fake.Env, *authz.RBAC) {
	r := authz.NewRBAC()
	env := &fake.Env{Authorizer: authz.New(r), Resolver: authz.New(r)}
	put := func(o kind.Object, resource string) {
		env.Put(rbacv1.GroupName, resource, o)
		r.Set(o)
	}
	put(&rbacv1.Role{ObjectMeta: meta("ns", "reader"), Rules: []rbacv1.PolicyRule{pods("get", "list")}}, "roles")
	put(&rbacv1.ClusterRole{ObjectMeta: meta("", "deleter"), Rules: []rbacv1.PolicyRule{pods("delete")}}, "clusterroles")
	put(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: map[string]string{"to": "whole"}}, Rules: []rbacv1.PolicyRule{pods("delete")}}, "clusterroles")
	put(&rbacv1.ClusterRole{ObjectMeta: meta("", "whole"), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "whole"}}}}}, "clusterroles")
	put(&rbacv1.ClusterRole{ObjectMeta: meta("", "all"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, {Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}}}, "clusterroles")
	put(&rbacv1.ClusterRole{ObjectMeta: meta("", "binder"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"deleter"}},
		{Verbs: []string{"escalate"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}}}}, "clusterroles")
	bind := func(namespace, name, refKind, who string) kind.Object {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: refKind, Name: name}
		to := []rbacv1.Subject{{Kind: "User", Name: who}}
		if namespace == "" {
			return &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", name), RoleRef: ref, Subjects: to}
		}
		return &rbacv1.RoleBinding{ObjectMeta: meta(namespace, name), RoleRef: ref, Subjects: to}
	}
	r.Set(bind("ns", "reader", "Role", "ann"))
	r.Set(bind("ns", "binder", "ClusterRole", "bob"))
	r.Set(bind("", "all", "ClusterRole", "admin"))
	return env, r
}

func TestNobodyGivesMoreThanTheyHold(t *testing.T) {
	env, _ := world()
	role := func(rules ...rbacv1.PolicyRule) kind.Object {
		return &rbacv1.Role{ObjectMeta: meta("ns", "new"), Rules: rules}
	}
	clusterRole := func(rules ...rbacv1.PolicyRule) kind.Object {
		return &rbacv1.ClusterRole{ObjectMeta: meta("", "new"), Rules: rules}
	}
	binding := func(refKind, ref string) kind.Object {
		return &rbacv1.RoleBinding{ObjectMeta: meta("ns", "new"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: refKind, Name: ref}}
	}
	clusterBinding := func(ref string) kind.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "new"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ref}}
	}
	multiplying := rbacv1.PolicyRule{Verbs: make([]string, 100), APIGroups: make([]string, 100), Resources: make([]string, 100), ResourceNames: make([]string, 100)}
	aggregated := &rbacv1.ClusterRole{ObjectMeta: meta("", "new"), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}}
	owned := binding("ClusterRole", "all").(*rbacv1.RoleBinding)
	owned.Finalizers = []string{"x"}
	for name, test := range map[string]struct {
		who      string
		resource string
		obj, old kind.Object
		refusal  string
	}{
		"what she holds":               {"ann", "roles", role(pods("get")), nil, ""},
		"more verbs":                   {"ann", "roles", role(pods("get", "delete")), nil, `{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}`},
		"all verbs":                    {"ann", "roles", role(pods("*")), nil, "permissions not currently held"},
		"more than can be compared":    {"ann", "roles", role(multiplying), nil, "its rules stand for more than 100000 single permissions"},
		"the same of an admin":         {"bob", "roles", role(multiplying), nil, ""},
		"on update too":                {"ann", "roles", role(pods("delete")), role(pods("get")), "permissions not currently held"},
		"everywhere":                   {"ann", "clusterroles", clusterRole(pods("get")), nil, "permissions not currently held"},
		"may escalate":                 {"bob", "roles", role(pods("delete")), nil, ""},
		"may not escalate that":        {"bob", "clusterroles", clusterRole(pods("delete")), nil, "permissions not currently held"},
		"binds what she holds":         {"ann", "rolebindings", binding("Role", "reader"), nil, ""},
		"binds more":                   {"ann", "rolebindings", binding("ClusterRole", "deleter"), nil, "permissions not currently held"},
		"binds parts of a whole":       {"ann", "rolebindings", binding("ClusterRole", "whole"), nil, "permissions not currently held"},
		"binds everywhere":             {"ann", "clusterrolebindings", clusterBinding("deleter"), nil, "permissions not currently held"},
		"binds what is not there":      {"ann", "rolebindings", binding("Role", "none"), nil, `rolebindings.rbac.authorization.k8s.io "none" not found`},
		"may bind":                     {"bob", "rolebindings", binding("ClusterRole", "deleter"), nil, ""},
		"may not bind that":            {"bob", "rolebindings", binding("ClusterRole", "all"), nil, "permissions not currently held"},
		"may not bind everywhere":      {"bob", "clusterrolebindings", clusterBinding("deleter"), nil, "permissions not currently held"},
		"aggregates":                   {"ann", "clusterroles", aggregated, nil, "must have cluster-admin privileges to use the aggregationRule"},
		"admin aggregates":             {"admin", "clusterroles", aggregated, nil, ""},
		"admin gives all":              {"admin", "clusterrolebindings", clusterBinding("all"), nil, ""},
		"master gives all":             {"m,system:masters", "clusterrolebindings", clusterBinding("all"), nil, ""},
		"the collector removes itself": {"ann", "rolebindings", binding("ClusterRole", "all"), owned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			who := strings.Split(test.who, ",")
			r := &kind.AdmissionRequest{Operation: admissionv1.Create, User: &user.DefaultInfo{Name: who[0], Groups: who[1:]}, Object: test.obj,
				Ref: resource.Ref{GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource(test.resource), Namespace: test.obj.GetNamespace()}}
			if test.old != nil {
				r.Operation, r.Old, r.Ref.Name = admissionv1.Update, test.old, "new"
			}
			err := rbac.Escalation{}.Validate(context.Background(), env, r)
			switch {
			case test.refusal == "" && err != nil:
				t.Error(err)
			case test.refusal != "" && (err == nil || !strings.Contains(err.Error(), test.refusal) || !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)):
				t.Errorf("got %v, want %q", err, test.refusal)
			}
		})
	}
}
