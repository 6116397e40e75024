package authn

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// question is a request that somebody makes.
type question authorizer.AttributesRecord

func (q question) Attributes() authorizer.AttributesRecord { return authorizer.AttributesRecord(q) }

// rights allows what is listed as "verb resource[/sub] [namespace/]name", "-" for no name.
func rights(list ...string) authorizer.AuthorizerFunc {
	return func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		what := a.GetResource()
		if a.GetSubresource() != "" {
			what += "/" + a.GetSubresource()
		}
		name := a.GetName()
		if name == "" {
			name = "-"
		}
		if a.GetNamespace() != "" {
			name = a.GetNamespace() + "/" + name
		}
		if strings.HasPrefix(a.GetVerb(), "impersonate:") && a.GetAPIGroup() != "authentication.k8s.io" {
			return authorizer.DecisionDeny, "the wrong API group", nil
		}
		if slices.Contains(list, a.GetVerb()+" "+what+" "+name) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// TestConstrainedImpersonation asks to list the pods of ns as somebody else.
func TestConstrainedImpersonation(t *testing.T) {
	agent := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:agent", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}}}
	human := &user.DefaultInfo{Name: "me", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}}}
	const (
		onUser, onAccount = "impersonate-on:user-info:list pods ns/-", "impersonate-on:serviceaccount:list pods ns/-"
		onNode, onOwn     = "impersonate-on:arbitrary-node:list pods ns/-", "impersonate-on:associated-node:list pods ns/-"
	)
	headers := func(list ...string) []string { return list }
	for name, test := range map[string]struct {
		who     user.Info
		headers []string
		rights  []string
		as      string // with groups, and the constraint
		refusal string
	}{
		"user":                     {human, headers("User", "bob"), []string{onUser, "impersonate:user-info users bob"}, "bob [system:authenticated] impersonate:user-info", ""},
		"user and group":           {human, headers("User", "bob", "Group", "dev"), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info groups dev"}, "bob [dev system:authenticated] impersonate:user-info", ""},
		"uid and extra":            {human, headers("User", "bob", "Uid", "7", "Extra-Acme.com%2fa", "b"), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info uids 7", "impersonate:user-info userextras/acme.com/a b"}, "bob [system:authenticated] impersonate:user-info", ""},
		"anonymous":                {human, headers("User", "system:anonymous"), []string{onUser, "impersonate:user-info users system:anonymous"}, "system:anonymous [system:unauthenticated] impersonate:user-info", ""},
		"account":                  {human, headers("User", "system:serviceaccount:ns:web"), []string{onAccount, "impersonate:serviceaccount serviceaccounts ns/web"}, "system:serviceaccount:ns:web [system:serviceaccounts system:serviceaccounts:ns system:authenticated] impersonate:serviceaccount", ""},
		"node":                     {human, headers("User", "system:node:n2"), []string{onNode, "impersonate:arbitrary-node nodes n2"}, "system:node:n2 [system:nodes system:authenticated] impersonate:arbitrary-node", ""},
		"own node":                 {agent, headers("User", "system:node:n1"), []string{onOwn, "impersonate:associated-node nodes *"}, "system:node:n1 [system:nodes system:authenticated] impersonate:associated-node", ""},
		"the old right":            {human, headers("User", "bob"), []string{"impersonate users bob"}, "bob [system:authenticated]", ""},
		"node by the old right":    {human, headers("User", "system:node:n2"), []string{"impersonate users system:node:n2"}, "system:node:n2 [system:authenticated]", ""},
		"whom, but not for this":   {human, headers("User", "bob"), []string{"impersonate-on:user-info:get pods ns/-", "impersonate:user-info users bob"}, "", `pods is forbidden: User "me" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns"`},
		"this, but not as bob":     {human, headers("User", "bob"), []string{onUser, "impersonate:user-info users joe"}, "", `cannot impersonate:user-info resource "users" in API group "authentication.k8s.io"`},
		"not in that namespace":    {human, headers("User", "bob"), []string{"impersonate-on:user-info:list pods other/-", "impersonate:user-info users bob"}, "", `pods is forbidden: User "me" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns"`},
		"the right of another way": {human, headers("User", "bob"), []string{onAccount, "impersonate:serviceaccount users bob"}, "", `pods is forbidden: User "me" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns"`},
		"old right of the group":   {human, headers("User", "bob", "Group", "dev"), []string{onUser, "impersonate:user-info users bob", "impersonate groups dev"}, "", `cannot impersonate:user-info resource "groups"`},
		"masters, never":           {human, headers("User", "bob", "Group", "system:masters"), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info groups system:masters"}, "", "impersonating the system:masters group is not allowed"},
		"empty group":              {human, headers("User", "bob", "Group", ""), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info groups -"}, "", "impersonating the empty string group is not allowed"},
		"extra without prefix":     {human, headers("User", "bob", "Extra-Scopes", "a"), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info userextras/scopes a"}, "", "impersonating an invalid key in extra is not allowed"},
		"empty extra":              {human, headers("User", "bob", "Extra-Acme.com%2fa", ""), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info userextras/acme.com/a -"}, "", "impersonating the empty string value in extra is not allowed"},
		"another extra":            {human, headers("User", "bob", "Extra-Acme.com%2fa", "c"), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info userextras/acme.com/a b"}, "", `resource "userextras/acme.com/a"`},
		"another uid":              {human, headers("User", "bob", "Uid", "8"), []string{onUser, "impersonate:user-info users bob", "impersonate:user-info uids 7"}, "", `resource "uids"`},
		"account as a user":        {human, headers("User", "system:serviceaccount:ns:web"), []string{onUser, "impersonate:user-info users system:serviceaccount:ns:web"}, "", `pods is forbidden: User "me" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" in the namespace "ns"`},
		"account with a group":     {human, headers("User", "system:serviceaccount:ns:web", "Group", "dev"), []string{onAccount, "impersonate:serviceaccount serviceaccounts ns/web", "impersonate:serviceaccount groups dev"}, "", `cannot impersonate resource "serviceaccounts"`},
		"account elsewhere":        {human, headers("User", "system:serviceaccount:ns:web"), []string{onAccount, "impersonate:serviceaccount serviceaccounts other/web"}, "", `cannot impersonate:serviceaccount resource "serviceaccounts"`},
		"node as a user":           {human, headers("User", "system:node:n2"), []string{onUser, "impersonate:user-info users system:node:n2"}, "", `pods is forbidden: User "me" cannot impersonate-on:arbitrary-node:list resource "pods" in API group "" in the namespace "ns"`},
		"node with a group":        {human, headers("User", "system:node:n2", "Group", "x"), []string{onNode, "impersonate:arbitrary-node nodes n2"}, "", `cannot impersonate resource "users"`},
		"another node":             {agent, headers("User", "system:node:n2"), []string{onOwn, "impersonate:associated-node nodes *"}, "", `pods is forbidden: User "system:serviceaccount:kube-system:agent" cannot impersonate-on:arbitrary-node:list resource "pods" in API group "" in the namespace "ns"`},
		"own node by its name":     {agent, headers("User", "system:node:n1"), []string{onOwn, "impersonate:associated-node nodes n1"}, "", `cannot impersonate:associated-node resource "nodes"`},
		"a human's node":           {human, headers("User", "system:node:n1"), []string{onOwn, "impersonate:associated-node nodes *"}, "", `pods is forbidden: User "me" cannot impersonate-on:arbitrary-node:list resource "pods" in API group "" in the namespace "ns"`},
		"no node's name":           {human, headers("User", "system:node:N 2"), []string{onNode, "impersonate:arbitrary-node nodes N 2"}, "", `pods is forbidden: User "me" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns"`},
		"nothing":                  {human, headers("User", "bob"), nil, "", `pods is forbidden: User "me" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns"`},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{"Accept": {"x"}}
			for i := 0; i < len(test.headers); i += 2 {
				h.Add("Impersonate-"+test.headers[i], test.headers[i+1])
			}
			got, did, err := NewImpersonator().Impersonate(context.Background(), h, test.who, rights(test.rights...), question{Verb: "list", Resource: "pods", Namespace: "ns", ResourceRequest: true})
			if test.refusal != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refusal) || got != nil {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || !did {
				t.Fatal(did, err)
			}
			as := got.GetName() + " [" + strings.Join(got.GetGroups(), " ") + "]"
			if c, ok := got.(interface{ ImpersonationConstraint() string }); ok {
				as += " " + c.ImpersonationConstraint()
			}
			if d := cmp.Diff(test.as, as); d != "" || len(h) != 1 {
				t.Error(d, h)
			}
		})
	}
}

// TestARightToTheOwnNodeDependsOnNoParticulars looks at what an authorizer is told of the agent.
func TestARightToTheOwnNodeDependsOnNoParticulars(t *testing.T) {
	agent := &user.DefaultInfo{Name: "system:serviceaccount:ns:agent", UID: "1", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}, "a.b/c": {"d"}}}
	asked := 0
	allow := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked++
		want := map[string][]string{"authentication.kubernetes.io/associated-node-keys": {"a.b/c", "authentication.kubernetes.io/node-name"}}
		if d := cmp.Diff(want, a.GetUser().GetExtra()); d != "" {
			t.Error(d)
		}
		return authorizer.DecisionAllow, "", nil
	})
	h := http.Header{"Impersonate-User": {"system:node:n1"}}
	if _, ok, err := NewImpersonator().Impersonate(context.Background(), h, agent, allow, question{Verb: "get", Path: "/healthz"}); !ok || err != nil || asked != 2 {
		t.Error(ok, err, asked)
	}
}

func TestNobodyImpersonatedCostsNothing(t *testing.T) {
	h := http.Header{"Accept": {"x"}, "User-Agent": {"y"}}
	who := &user.DefaultInfo{Name: "me"}
	i := NewImpersonator()
	if n := testing.AllocsPerRun(100, func() { _, _, _ = i.Impersonate(context.Background(), h, who, nil, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
