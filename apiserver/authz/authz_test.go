package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/resource"
)

func words(s string) []string { return strings.Fields(s) }

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: words(verbs), Resources: words(resources), ResourceNames: names}
	for _, g := range words(groups) {
		r.APIGroups = append(r.APIGroups, strings.TrimPrefix(g, "core"))
	}
	return r
}

func urlRule(verbs, urls string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: words(verbs), NonResourceURLs: words(urls)}
}

func clusterRoleOf(name string, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Rules: rules}
}

func roleOf(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

// bound makes a RoleBinding, or a ClusterRoleBinding when namespace is empty. to is "u:name", "g:name" or "s:namespace:name".
func boundTo(namespace, name, refKind, ref string, to ...string) runtime.Object {
	var subjects []rbacv1.Subject
	for _, s := range to {
		p := strings.SplitN(s, ":", 3)
		switch p[0] {
		case "u":
			subjects = append(subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: strings.TrimPrefix(s, "u:")})
		case "g":
			subjects = append(subjects, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: strings.TrimPrefix(s, "g:")})
		case "s":
			subjects = append(subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: p[1], Name: p[2]})
		}
	}
	roleRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: refKind, Name: ref}
	if namespace == "" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: roleRef, Subjects: subjects}
	}
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: roleRef, Subjects: subjects}
}

// ask parses "user[,group...] verb group/resource[/sub] [namespace/]name" or "user verb /path". "-" stands for no group name, namespace or name.
func ask(t testing.TB, question string) authorizer.AttributesRecord {
	t.Helper()
	f := strings.Fields(question)
	who := strings.Split(f[0], ",")
	a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who[0], Groups: who[1:]}, Verb: f[1]}
	if strings.HasPrefix(f[2], "/") {
		a.Path = f[2]
		return a
	}
	a.ResourceRequest = true
	p := strings.Split(f[2], "/")
	a.APIGroup, a.Resource = strings.TrimPrefix(p[0], "core"), p[1]
	if len(p) > 2 {
		a.Subresource = p[2]
	}
	if len(f) > 3 {
		a.Namespace, a.Name, _ = strings.Cut(f[3], "/")
	}
	return a
}

func TestRBAC(t *testing.T) {
	r := NewRBAC()
	for _, o := range []runtime.Object{
		// The examples of the Kubernetes documentation, "Using RBAC Authorization".
		roleOf("default", "pod-reader", rule("get watch list", "core", "pods")),
		boundTo("default", "read-pods", "Role", "pod-reader", "u:jane"),
		clusterRoleOf("secret-reader", nil, rule("get watch list", "core", "secrets")),
		boundTo("development", "read-secrets", "ClusterRole", "secret-reader", "u:dave"),
		boundTo("", "read-secrets-global", "ClusterRole", "secret-reader", "g:manager"),
		roleOf("default", "pod-and-pod-logs-reader", rule("get list", "core", "pods pods/log")),
		boundTo("default", "logs", "Role", "pod-and-pod-logs-reader", "s:default:logger"),
		roleOf("default", "configmap-updater", rule("update get", "core", "configmaps", "my-configmap")),
		boundTo("default", "cm", "Role", "configmap-updater", "u:updater"),
		clusterRoleOf("health", nil, urlRule("get post", "/healthz /healthz/*")),
		boundTo("", "health", "ClusterRole", "health", "g:probers"),
		clusterRoleOf("scaler", nil, rule("get patch", "*", "*/scale")),
		boundTo("", "scaler", "ClusterRole", "scaler", "u:hpa"),
		clusterRoleOf("all", nil, rule("*", "*", "*")),
		boundTo("team", "all", "ClusterRole", "all", "u:lead"),
		boundTo("", "ghost", "ClusterRole", "missing", "u:ghost"),
		boundTo("default", "ghost", "Role", "missing", "u:ghost"),
		clusterRoleOf("apps", nil, rule("list", "apps", "*")),
		boundTo("", "apps", "ClusterRole", "apps", "u:apps"),
	} {
		r.Set(o)
	}
	for question, want := range map[string]bool{
		"jane get core/pods default/x":                                     true,
		"jane list core/pods default":                                      true,
		"jane delete core/pods default/x":                                  false,
		"jane get core/pods other/x":                                       false,
		"jane list core/pods":                                              false, // in all namespaces
		"jane get core/pods/log default/x":                                 false,
		"jane get apps/pods default/x":                                     false,
		"Jane get core/pods default/x":                                     false,
		"dave get core/secrets development/s":                              true,
		"dave get core/secrets default/s":                                  false,
		"dave list core/secrets":                                           false,
		"x,manager list core/secrets":                                      true,
		"x,manager get core/secrets anywhere/s":                            true,
		"manager get core/secrets anywhere/s":                              false, // a user is not the group of that name
		"x,jane get core/pods default/x":                                   false,
		"system:serviceaccount:default:logger get core/pods/log default/x": true,
		"system:serviceaccount:other:logger get core/pods/log default/x":   false,
		"updater update core/configmaps default/my-configmap":              true,
		"updater update core/configmaps default/other":                     false,
		"updater list core/configmaps default":                             false, // no name, so none of the names
		"updater create core/configmaps default":                           false,
		"x,probers get /healthz":                                           true,
		"x,probers get /healthz/etcd":                                      true,
		"x,probers get /healthzz":                                          false,
		"x,probers delete /healthz":                                        false,
		"hpa patch apps/deployments/scale ns/d":                            true,
		"hpa get core/replicationcontrollers/scale ns/d":                   true,
		"hpa patch apps/deployments ns/d":                                  false,
		"hpa patch apps/deployments/status ns/d":                           false,
		"lead create core/pods/exec team/p":                                true,
		"lead get core/nodes -":                                            false,
		"lead create core/pods other":                                      false,
		"lead get /healthz":                                                false,
		"ghost get core/pods default/x":                                    false,
		"apps list apps/deployments ns":                                    true,
		"apps list apps/deployments/status ns":                             true,
		"apps list batch/jobs ns":                                          false,
	} {
		got, reason, err := r.Authorize(context.Background(), ask(t, strings.ReplaceAll(question, " -", "")))
		if (got == authorizer.DecisionAllow) != want || got == authorizer.DecisionDeny || err != nil {
			t.Errorf("%s: %v (%s) %v, want allowed=%v", question, got, reason, err, want)
		}
	}
	_, reason, _ := r.Authorize(context.Background(), ask(t, "ghost get core/pods default/x"))
	if !strings.Contains(reason, `clusterrole.rbac.authorization.k8s.io "missing" not found`) || !strings.Contains(reason, `role.rbac.authorization.k8s.io "missing" not found`) {
		t.Errorf("the missing roles are not named: %q", reason)
	}
}

func allowed(t testing.TB, a authorizer.Authorizer, question string) bool {
	t.Helper()
	d, _, err := a.Authorize(context.Background(), ask(t, question))
	if err != nil {
		t.Fatal(err)
	}
	return d == authorizer.DecisionAllow
}

func TestAggregatedRolesFollowTheirParts(t *testing.T) {
	r := NewRBAC()
	monitoring := clusterRoleOf("monitoring", nil)
	monitoring.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "monitoring"}}}}
	r.Set(monitoring)
	r.Set(boundTo("", "b", "ClusterRole", "monitoring", "u:m"))
	part := clusterRoleOf("part", map[string]string{"to": "monitoring"}, rule("get", "core", "endpoints"))
	const question = "m get core/endpoints ns/x"
	steps := []struct {
		do   func()
		want bool
	}{
		{func() {}, false},
		{func() { r.Set(part) }, true},
		{func() { r.Set(clusterRoleOf("part", nil, part.Rules...)) }, false},
		{func() { r.Set(part) }, true},
		{func() { r.Drop(part) }, false},
		{func() { r.Set(part); r.Drop(monitoring) }, false},
		{func() { r.Set(monitoring) }, true},
	}
	for i, s := range steps {
		if s.do(); allowed(t, r, question) != s.want {
			t.Errorf("step %d: allowed=%v", i, !s.want)
		}
	}
}

// TestTheIndexForgetsNothingAndKeepsNothing applies random changes to the index, and compares it with one that is built anew of what is left.
func TestTheIndexForgetsNothingAndKeepsNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := NewRBAC()
	state := map[string]runtime.Object{}
	for range 3000 {
		namespace := []string{"", "a", "b"}[random.IntN(3)]
		name := fmt.Sprint(random.IntN(4))
		var o runtime.Object
		if random.IntN(3) == 0 {
			rules := rule("get", "core", fmt.Sprintf("r%d", random.IntN(3)))
			if o = roleOf(namespace, name, rules); namespace == "" {
				o = clusterRoleOf(name, nil, rules)
			}
		} else {
			refKind := []string{"ClusterRole", "Role"}[random.IntN(2)]
			var to []string
			for range random.IntN(4) {
				to = append(to, fmt.Sprintf("%s:%d", []string{"u", "g", "s:a"}[random.IntN(3)], random.IntN(3)))
			}
			o = boundTo(namespace, name, refKind, fmt.Sprint(random.IntN(4)), to...)
		}
		key := fmt.Sprintf("%T/%s/%s", o, namespace, name)
		if random.IntN(3) == 0 {
			delete(state, key)
			r.Drop(o)
		} else {
			state[key] = o
			r.Set(o)
		}
	}
	fresh := NewRBAC()
	for _, o := range state {
		fresh.Set(o)
	}
	if d := cmp.Diff([]int{len(fresh.rules), len(fresh.grants), len(fresh.bound)}, []int{len(r.rules), len(r.grants), len(r.bound)}); d != "" {
		t.Errorf("sizes of the index: %s", d)
	}
	for _, who := range []string{"0", "1", "2", "x,0", "x,1", "x,2", "system:serviceaccount:a:0", "system:serviceaccount:b:0"} {
		for _, in := range []string{"r0 a/x", "r1 b/x", "r2", "r0"} {
			question := who + " get core/" + in
			if got, want := allowed(t, r, question), allowed(t, fresh, question); got != want {
				t.Errorf("%s: %v, want %v", question, got, want)
			}
		}
	}
}

func TestRulesFor(t *testing.T) {
	r := NewRBAC()
	for _, o := range []runtime.Object{
		clusterRoleOf("c", nil, rule("get", "core", "nodes"), urlRule("get", "/metrics")), boundTo("", "c", "ClusterRole", "c", "u:u"),
		roleOf("ns", "n", rule("get", "core", "pods")), boundTo("ns", "n", "Role", "n", "g:g"),
	} {
		r.Set(o)
	}
	who := &user.DefaultInfo{Name: "u", Groups: []string{"g"}}
	for namespace, want := range map[string][]string{"ns": {"nodes", "pods"}, "": {"nodes"}, "other": {"nodes"}} {
		resources, others, partial, err := New(r).RulesFor(context.Background(), who, namespace)
		var got []string
		for _, rule := range resources {
			got = append(got, rule.GetResources()...)
		}
		if d := cmp.Diff(want, got); d != "" || partial || err != nil || len(others) != 1 {
			t.Errorf("%q: %s %v %v %v", namespace, d, partial, err, others)
		}
	}
}

func TestUnion(t *testing.T) {
	opinion := func(d authorizer.Decision, reason string, err error) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return d, reason, err
		})
	}
	no, yes, deny := authorizer.DecisionNoOpinion, authorizer.DecisionAllow, authorizer.DecisionDeny
	for name, test := range map[string]struct {
		members []authorizer.Authorizer
		who     string
		want    authorizer.Decision
		reason  string
	}{
		"nobody":                  {nil, "x", no, ""},
		"masters":                 {[]authorizer.Authorizer{opinion(deny, "", nil)}, "x,system:masters", yes, ""},
		"user of the name":        {nil, "system:masters", no, ""},
		"later allows":            {[]authorizer.Authorizer{opinion(no, "a", nil), opinion(yes, "", nil)}, "x", yes, ""},
		"first denies":            {[]authorizer.Authorizer{opinion(deny, "no", nil), opinion(yes, "", nil)}, "x", deny, "no"},
		"an error allows nothing": {[]authorizer.Authorizer{opinion(no, "", errors.New("broken"))}, "x", no, ""},
		"reasons are told":        {[]authorizer.Authorizer{opinion(no, "a", nil), opinion(no, "b", nil)}, "x", no, "a\nb"},
	} {
		got, reason, _ := New(test.members...).Authorize(context.Background(), ask(t, test.who+" get core/pods ns/x"))
		if got != test.want || reason != test.reason {
			t.Errorf("%s: %v %q", name, got, reason)
		}
	}
}

func TestDenialIsWordedAsClientsKnowIt(t *testing.T) {
	for question, want := range map[string]string{
		"x list core/pods y":               `User "x" cannot list resource "pods" in API group "" in the namespace "y"`,
		"x get apps/deployments/scale y/d": `User "x" cannot get resource "deployments/scale" in API group "apps" in the namespace "y"`,
		"x list core/nodes":                `User "x" cannot list resource "nodes" in API group "" at the cluster scope`,
		"x get /metrics":                   `User "x" cannot get path "/metrics"`,
		"<script> get /<b>":                `User "&lt;script&gt;" cannot get path "/&lt;b&gt;"`,
	} {
		if d := cmp.Diff(want, Denial(ask(t, question), "")); d != "" {
			t.Error(d)
		}
	}
	err := Forbidden(ask(t, "x get core/pods y/p"), "because")
	if want := `pods "p" is forbidden: User "x" cannot get resource "pods" in API group "" in the namespace "y": because`; err.Error() != want || !apierrors.IsForbidden(err) {
		t.Errorf("got %q", err.Error())
	}
}

// scripted gives each resource one watch.
type scripted map[string]*watch.FakeWatcher

func (s scripted) Watch(_ context.Context, ref resource.Ref, _ metav1.ListOptions) (watch.Interface, error) {
	return s[ref.Resource], nil
}

func TestRunFollowsTheCluster(t *testing.T) {
	source := scripted{}
	end := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	for _, name := range followed {
		source[name] = watch.NewFakeWithChanSize(10, false)
	}
	source["roles"].Add(roleOf("ns", "r", rule("get", "core", "pods")))
	source["rolebindings"].Add(boundTo("ns", "b", "Role", "r", "u:u"))
	for _, w := range source {
		w.Action(watch.Bookmark, end)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, done := NewRBAC(), make(chan error)
	go func() { done <- r.Run(ctx, source, clock.RealClock{}, slog.New(slog.DiscardHandler)) }()
	<-r.Synced()
	if !allowed(t, r, "u get core/pods ns/x") {
		t.Error("what was there at the start is not known after Synced")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func BenchmarkAuthorize(b *testing.B) {
	r := NewRBAC()
	for i := range 10000 {
		r.Set(roleOf("ns", fmt.Sprint(i), rule("get", "core", "pods")))
		r.Set(boundTo("ns", fmt.Sprint(i), "Role", fmt.Sprint(i), fmt.Sprintf("u:%d", i)))
	}
	a := ask(b, "5000,system:authenticated get core/pods ns/x")
	b.ReportAllocs()
	for b.Loop() {
		if d, _, _ := r.Authorize(context.Background(), a); d != authorizer.DecisionAllow {
			b.Fatal(d)
		}
	}
}
