package access_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kinds/access"
)

var quiet = slog.New(slog.DiscardHandler)

func rbacRef(plural, namespace, name string) resource.Ref {
	return resource.Ref{GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource(plural), Namespace: namespace, Name: name}
}

func ensure(t *testing.T, api access.API, b access.Bootstrap) {
	t.Helper()
	b.Log = quiet
	if err := access.Ensure(context.Background(), api, b); err != nil {
		t.Fatal(err)
	}
}

func read[T runtime.Object](t *testing.T, api access.API, ref resource.Ref) T {
	t.Helper()
	obj, err := api.Get(context.Background(), ref, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(T)
}

// index feeds a cluster's roles to the authorizer that judges by them.
func index(t *testing.T, api access.API) authorizer.Authorizer {
	t.Helper()
	r := authz.NewRBAC()
	for _, plural := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		items, _, err := api.List(context.Background(), rbacRef(plural, "", ""), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range items {
			r.Set(o)
		}
	}
	return authz.New(r)
}

func may(t *testing.T, a authorizer.Authorizer, who user.DefaultInfo, verb, group, resource, namespace string) bool {
	t.Helper()
	q := authorizer.AttributesRecord{User: &who, Verb: verb, APIGroup: group, Resource: resource, Namespace: namespace, Name: "x", ResourceRequest: true}
	if resource[0] == '/' {
		q = authorizer.AttributesRecord{User: &who, Verb: verb, Path: resource}
	}
	d, _, _ := a.Authorize(context.Background(), q)
	return d == authorizer.DecisionAllow
}

func TestAFreshClusterLetsEachDoWhatTheyShould(t *testing.T) {
	api := fake.New(nil)
	ensure(t, api, access.Bootstrap{Authentication: &access.Authentication{ClientCA: []byte("CA"), FrontProxyCA: []byte("FP"), FrontProxyNames: []string{"front-proxy-client"}}})
	for _, name := range access.Namespaces() {
		read[*corev1.Namespace](t, api, resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Name: name})
	}
	for who, role := range map[string]string{"ed": "edit", "vi": "view", "ad": "admin"} {
		ref := rbacRef("rolebindings", "team", "")
		if _, err := api.Create(context.Background(), ref, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: who},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: who}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a := index(t, api)
	person := func(name string) user.DefaultInfo {
		return user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
	}
	stranger := user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	for _, test := range []struct {
		who                              user.DefaultInfo
		verb, group, resource, namespace string
		want                             bool
	}{
		{stranger, "get", "", "/healthz", "", true},
		{stranger, "get", "", "/version", "", true},
		{stranger, "get", "", "/metrics", "", false},
		{stranger, "get", "", "/api", "", false},
		{stranger, "get", "", "pods", "team", false},
		{stranger, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", false},
		{person("p"), "get", "", "/apis/apps/v1", "", true},
		{person("p"), "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", true},
		{person("p"), "get", "", "pods", "team", false},
		{person("vi"), "list", "", "pods", "team", true},
		{person("vi"), "list", "apps", "deployments", "team", true},
		{person("vi"), "list", "", "secrets", "team", false},
		{person("vi"), "create", "", "pods", "team", false},
		{person("vi"), "list", "", "pods", "other", false},
		{person("ed"), "create", "apps", "deployments", "team", true},
		{person("ed"), "get", "", "secrets", "team", true},
		{person("ed"), "list", "", "pods", "team", true},
		{person("ed"), "create", "rbac.authorization.k8s.io", "rolebindings", "team", false},
		{person("ad"), "create", "rbac.authorization.k8s.io", "rolebindings", "team", true},
		{person("ad"), "delete", "apps", "deployments", "team", true},
		{person("ad"), "create", "", "namespaces", "", false},
		{person("ad"), "get", "", "nodes", "", false},
		{person(user.KubeProxy), "watch", "discovery.k8s.io", "endpointslices", "", true},
		{person(user.KubeProxy), "list", "", "secrets", "", false},
		{person(user.KubeScheduler), "watch", "", "pods", "", true},
		{user.DefaultInfo{Name: "m", Groups: []string{"system:masters"}}, "delete", "", "nodes", "", true},
		{user.DefaultInfo{Name: "system:serviceaccount:x:y", Groups: []string{"system:serviceaccounts", user.AllAuthenticated}}, "get", "", "/openid/v1/jwks", "", true},
	} {
		if got := may(t, a, test.who, test.verb, test.group, test.resource, test.namespace); got != test.want {
			t.Errorf("%s %s %s/%s in %q: %v", test.who.Name, test.verb, test.group, test.resource, test.namespace, got)
		}
	}
	facts := read[*corev1.ConfigMap](t, api, resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: "kube-system", Name: "extension-apiserver-authentication"})
	if facts.Data["client-ca-file"] != "CA" || facts.Data["requestheader-allowed-names"] != `["front-proxy-client"]` {
		t.Errorf("%v", facts.Data)
	}
}

func TestASecondRunWritesNothing(t *testing.T) {
	api := fake.New(nil)
	b := access.Bootstrap{Authentication: &access.Authentication{ClientCA: []byte("CA")}}
	ensure(t, api, b)
	api.ClearActions()
	ensure(t, api, b)
	if writes := api.Actions(false); len(writes) > 0 {
		t.Errorf("wrote %v", writes)
	}
}

func TestWhatAnAdministratorChanged(t *testing.T) {
	api := fake.New(nil)
	ensure(t, api, access.Bootstrap{})
	update := func(plural, name string, change func(runtime.Object)) {
		t.Helper()
		ref := rbacRef(plural, "", name)
		obj := read[runtime.Object](t, api, ref).DeepCopyObject()
		change(obj)
		if _, err := api.Update(context.Background(), ref, obj, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	extra := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"x"}, Resources: []string{"y"}}
	update("clusterroles", "system:kube-dns", func(o runtime.Object) {
		o.(*rbacv1.ClusterRole).Rules = []rbacv1.PolicyRule{extra}
		o.(*rbacv1.ClusterRole).Labels["mine"] = "yes"
	})
	update("clusterroles", "system:discovery", func(o runtime.Object) {
		o.(*rbacv1.ClusterRole).Rules = nil
		o.(*rbacv1.ClusterRole).Annotations["rbac.authorization.kubernetes.io/autoupdate"] = "false"
	})
	update("clusterrolebindings", "system:basic-user", func(o runtime.Object) { o.(*rbacv1.ClusterRoleBinding).Subjects = nil })
	ensure(t, api, access.Bootstrap{})

	dns := read[*rbacv1.ClusterRole](t, api, rbacRef("clusterroles", "", "system:kube-dns"))
	if len(dns.Rules) != 2 || dns.Labels["mine"] != "yes" {
		t.Errorf("an addition was lost, or what was taken away did not come back: %v %v", dns.Rules, dns.Labels)
	}
	if d := read[*rbacv1.ClusterRole](t, api, rbacRef("clusterroles", "", "system:discovery")); len(d.Rules) != 0 {
		t.Error("a role that is not to be updated was updated")
	}
	if b := read[*rbacv1.ClusterRoleBinding](t, api, rbacRef("clusterrolebindings", "", "system:basic-user")); len(b.Subjects) != 1 {
		t.Errorf("a default subject did not come back: %v", b.Subjects)
	}
}

func TestABindingToAnotherRoleIsReplaced(t *testing.T) {
	api := fake.New(nil, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "system:basic-user"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}})
	ensure(t, api, access.Bootstrap{})
	b := read[*rbacv1.ClusterRoleBinding](t, api, rbacRef("clusterrolebindings", "", "system:basic-user"))
	if b.RoleRef.Name != "system:basic-user" || len(b.Subjects) != 1 {
		t.Errorf("%v", b)
	}
}

func TestSeveralServersStartAtOnce(t *testing.T) {
	api := fake.New(nil)
	done := make(chan error)
	for range 3 {
		go func() { done <- access.Ensure(context.Background(), api, access.Bootstrap{Log: quiet}) }()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAFailureIsTold(t *testing.T) {
	api := fake.New(nil)
	api.FailWith(func(verb string, ref resource.Ref, _ runtime.Object) error {
		if verb == "create" && ref.Resource == "clusterroles" {
			return apierrors.NewInternalError(errors.New("disk full"))
		}
		return nil
	})
	if err := access.Ensure(context.Background(), api, access.Bootstrap{Log: quiet}); err == nil || !apierrors.IsInternalError(err) {
		t.Errorf("got %v", err)
	}
}

func TestAggregateWritesTheRules(t *testing.T) {
	api := fake.New(nil)
	ensure(t, api, access.Bootstrap{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	done := make(chan error)
	go func() { done <- access.Aggregate(ctx, api, clock.RealClock{}, quiet) }()
	has := func(plural string) func() bool {
		return func() bool {
			obj, err := api.Get(ctx, rbacRef("clusterroles", "", "admin"), metav1.GetOptions{})
			return err == nil && slices.ContainsFunc(obj.(*rbacv1.ClusterRole).Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, plural) })
		}
	}
	for _, plural := range []string{"deployments", "rolebindings", "pods/log"} {
		if err := api.Wait(ctx, has(plural)); err != nil {
			t.Fatalf("admin never got %s: %v", plural, err)
		}
	}
	part := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "crontabs", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"stable.example.com"}, Resources: []string{"crontabs"}}}}
	if _, err := api.Create(ctx, rbacRef("clusterroles", "", ""), part, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := api.Wait(ctx, has("crontabs")); err != nil {
		t.Fatal("a new part was not taken up:", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDefaultRoleNames(t *testing.T) {
	api := fake.New(nil)
	ensure(t, api, access.Bootstrap{})
	items, _, err := api.List(context.Background(), rbacRef("clusterroles", "", ""), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range items {
		r := o.(*rbacv1.ClusterRole)
		got = append(got, r.Name)
		if r.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" || r.Annotations["rbac.authorization.kubernetes.io/autoupdate"] != "true" {
			t.Errorf("%s is not marked as a default: %v %v", r.Name, r.Labels, r.Annotations)
		}
	}
	want := []string{"admin", "cluster-admin", "edit", "system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view", "system:auth-delegator",
		"system:basic-user", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
		"system:certificates.k8s.io:kube-apiserver-client-approver", "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
		"system:certificates.k8s.io:kubelet-serving-approver", "system:certificates.k8s.io:legacy-unknown-approver", "system:discovery", "system:heapster",
		"system:kube-aggregator", "system:kube-controller-manager", "system:kube-dns", "system:kube-scheduler", "system:kubelet-api-admin", "system:monitoring",
		"system:node", "system:node-bootstrapper", "system:node-problem-detector", "system:node-proxier", "system:persistent-volume-provisioner",
		"system:public-info-viewer", "system:service-account-issuer-discovery", "system:volume-scheduler", "view"}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
