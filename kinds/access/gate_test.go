package access_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/csv"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/kinds/access"
	"github.com/yare-project/yare/kinds/admission"
	"github.com/yare-project/yare/store/mem"
)

// lookup is set once the server is built.
type lookup struct{ kind.Env }

func (l *lookup) Get(ctx context.Context, r schema.GroupResource, namespace, name string) (kind.Object, error) {
	return l.Env.Get(ctx, r, namespace, name)
}

// gate is a whole API server with everything of this part in it.
type gate struct {
	*apiserver.Server
	url string
}

var masters = &user.DefaultInfo{Name: "system:admin", Groups: []string{user.SystemPrivilegedGroup}}

// users are those of a token file.
func users(t *testing.T) []authn.StaticToken {
	t.Helper()
	file, err := os.Open("testdata/users.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := csv.NewReader(file)
	lines.FieldsPerRecord = -1
	records, err := lines.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []authn.StaticToken
	for _, r := range records {
		who := &user.DefaultInfo{Name: r[1], UID: r[2]}
		if len(r) > 3 {
			who.Groups = strings.Split(r[3], ",")
		}
		out = append(out, authn.StaticToken{Token: r[0], User: who})
	}
	return out
}

func newGate(t *testing.T) *gate {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	objects := &lookup{}
	who, err := authn.New(authn.Config{TokenKey: key, Issuer: "https://yare", Audiences: []string{"https://yare"}, Lookup: objects, Anonymous: true, Log: quiet,
		StaticTokens: users(t)})
	if err != nil {
		t.Fatal(err)
	}
	rbac, nodes := authz.NewRBAC(), access.NewNode(nil)
	allow := authz.New(nodes, rbac)
	mutators, validators := admission.Default()
	store := mem.New(mem.Config{})
	server, err := apiserver.New(apiserver.Config{Store: store, Groups: kinds.Groups(), Authenticator: who, Authorizer: allow, Impersonate: authn.NewImpersonator().Impersonate,
		Rules: allow, Tokens: who, Issuer: who.Tokens, Mutators: mutators, Validators: validators, Settings: kind.Settings{ClusterDomain: "cluster.local"}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	objects.Env = server.Env()
	local := server.Local(masters)
	done := make(chan error, 3)
	go func() { done <- rbac.Run(ctx, local, clock.RealClock{}, quiet) }()
	go func() { done <- nodes.Run(ctx, local, quiet) }()
	go func() { done <- access.Aggregate(ctx, local, clock.RealClock{}, quiet) }()
	if err := access.Ensure(ctx, local, access.Bootstrap{Log: quiet}); err != nil {
		t.Fatal(err)
	}
	<-rbac.Synced()
	<-nodes.Synced()
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		cancel()
		for range 3 {
			<-done
		}
		web.CloseClientConnections()
		web.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &gate{server, web.URL}
}

// as is a client with a bearer token, perhaps impersonating somebody.
func (g *gate) as(t *testing.T, token, impersonate string) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: g.url, BearerToken: token, Impersonate: rest.ImpersonationConfig{UserName: impersonate}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually asks again until the answer is right: a binding takes effect when the authorizer has heard of it.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: never", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestUsersThroughTheGate(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	root, ann := g.as(t, "root", ""), g.as(t, "root", "ann")
	if _, err := root.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := ann.CoreV1().Pods("team").List(ctx, metav1.ListOptions{})
	if want := `pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "team"`; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ann"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "ann"}}}
	if _, err := root.RbacV1().RoleBindings("team").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ann lists pods", func() bool { _, err := ann.CoreV1().Pods("team").List(ctx, metav1.ListOptions{}); return err == nil })
	if _, err := ann.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("outside of the team: %v", err)
	}
	escalation := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"}, Subjects: binding.Subjects}
	if _, err := ann.RbacV1().ClusterRoleBindings().Create(ctx, escalation, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("ann made herself cluster admin: %v", err)
	}
	local := binding.DeepCopy()
	local.Name, local.RoleRef.Name = "y", "cluster-admin"
	if _, err := ann.RbacV1().RoleBindings("team").Create(ctx, local, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
		t.Errorf("ann made herself more than admin: %v", err)
	}
	local.Name, local.RoleRef.Name = "z", "view"
	if _, err := ann.RbacV1().RoleBindings("team").Create(ctx, local, metav1.CreateOptions{}); err != nil {
		t.Errorf("ann cannot give what she holds: %v", err)
	}
	review, err := ann.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "team"}}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		t.Errorf("%v %v", review, err)
	}
	me, err := ann.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || me.Status.UserInfo.Username != "ann" {
		t.Errorf("%v %v", me, err)
	}
	if err := root.CoreV1().Namespaces().Delete(ctx, "kube-system", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("kube-system: %v", err)
	}
	if _, err := root.CoreV1().ConfigMaps("nowhere").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("nowhere: %v", err)
	}
	bad, err := http.NewRequest("GET", g.url+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	bad.Header.Set("Authorization", "Bearer guess")
	answer, err := http.DefaultClient.Do(bad)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 401 {
		t.Errorf("a wrong token: %d", answer.StatusCode)
	}
}

func TestANodeThroughTheGate(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	root := g.as(t, "root", "")
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"used", "unused"} {
		must(root.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	must(root.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}))
	node := g.Local(&user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}})
	core := func(plural, namespace, name, sub string) resource.Ref {
		return resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource(plural), Namespace: namespace, Name: name, Subresource: sub}
	}
	must(node.Create(ctx, core("nodes", "", "", ""), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}))
	if _, err := node.Create(ctx, core("nodes", "", "", ""), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("registered another node: %v", err)
	}
	registered, err := root.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil || len(registered.Spec.Taints) != 1 {
		t.Errorf("%v %v", registered.Spec.Taints, err)
	}
	made, err := root.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "used"}}}},
	}}, metav1.CreateOptions{})
	must(made, err)
	// At once: the authorizer may not have heard of the pod yet, and must not refuse for that.
	must(node.Get(ctx, core("secrets", "default", "used", ""), metav1.GetOptions{}))
	must(node.Get(ctx, core("pods", "default", "p", ""), metav1.GetOptions{}))
	if _, err := node.Get(ctx, core("secrets", "default", "unused", ""), metav1.GetOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no relationship found between node 'n1' and this object") {
		t.Errorf("read a secret of nobody's: %v", err)
	}
	if _, _, err := node.List(ctx, core("secrets", "default", "", ""), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listed secrets: %v", err)
	}
	if _, _, err := node.List(ctx, core("pods", "", "", ""), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listed all pods: %v", err)
	}
	if items, _, err := node.List(ctx, core("pods", "", "", ""), metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}); err != nil || len(items) != 1 {
		t.Errorf("its pods: %v %v", items, err)
	}
	token := func(uid string) (runtime.Object, error) {
		return node.Create(ctx, core("serviceaccounts", "default", "default", "token"), &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: made.UID + types.UID(uid)}}}, metav1.CreateOptions{})
	}
	if _, err := token("x"); !apierrors.IsForbidden(err) {
		t.Errorf("a token for a pod that was not: %v", err)
	}
	answer, err := token("")
	must(answer, err)
	bearer := answer.(*authenticationv1.TokenRequest).Status.Token
	me, err := g.as(t, bearer, "").AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || me.Status.UserInfo.Username != "system:serviceaccount:default:default" || me.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"][0] != "n1" {
		t.Errorf("%v %v", me, err)
	}
	review, err := root.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: bearer}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		t.Errorf("%v %v", review, err)
	}
	grace := int64(0)
	if err := root.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.as(t, bearer, "").AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the token outlived its pod: %v", err)
	}
	eventually(t, "the secret is out of reach", func() bool {
		_, err := node.Get(ctx, core("secrets", "default", "used", ""), metav1.GetOptions{})
		return apierrors.IsForbidden(err)
	})
}
