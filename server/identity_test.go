package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/server"
)

// gate is an API server alone, its state in memory, and how its administrator reaches it.
type gate struct {
	*testing.T
	admin *rest.Config
	kubernetes.Interface
}

func startGate(t *testing.T, change func(*server.Config)) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &server.Config{Backend: server.Memory, Listener: listener, APIOnly: true, NodeName: "dinghy", NodeIP: netip.MustParseAddr("127.0.0.1"),
		Log: slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelError}))}
	change(c)
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cluster, err := server.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	stop, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Wait(stop) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfig.Write(path, cluster.Admin("gate")); err != nil {
		t.Fatal(err)
	}
	g := &gate{T: t}
	if g.admin, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		t.Fatal(err)
	}
	g.Interface = g.client(g.admin)
	return g
}

func (g *gate) client(config *rest.Config) kubernetes.Interface {
	g.Helper()
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		g.Fatal(err)
	}
	return api
}

// bearer is a client with a token and nothing else.
func (g *gate) bearer(token string) kubernetes.Interface {
	config := rest.AnonymousClientConfig(g.admin)
	config.BearerToken = token
	return g.client(config)
}

func (g *gate) until(what string, f func() error) {
	g.Helper()
	deadline := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			g.Fatalf("%s: %v", what, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// kubeconfigFor is a file that says where a service is.
func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: url}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// answers serves whatever f makes of a review.
func answers[T any](t *testing.T, f func(*T)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		review := new(T)
		if err := json.NewDecoder(req.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f(review)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(s.Close)
	return kubeconfigFor(t, s.URL)
}

// TestServicesSayWhoSomebodyIsAndWhatTheyMayDo has both webhooks: tokens "<name>-token" are that user's, and ann may read ConfigMaps.
func TestServicesSayWhoSomebodyIsAndWhatTheyMayDo(t *testing.T) {
	who := answers(t, func(r *authenticationv1.TokenReview) {
		if name, ok := strings.CutSuffix(r.Spec.Token, "-token"); ok {
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}}
		}
	})
	what := answers(t, func(r *authorizationv1.SubjectAccessReview) {
		a := r.Spec.ResourceAttributes
		r.Status.Allowed = r.Spec.User == "ann" && a != nil && a.Resource == "configmaps" && a.Verb == "list"
		r.Status.Denied = r.Spec.User == "eve"
		r.Status.Reason = "the service says so"
	})
	g := startGate(t, func(c *server.Config) {
		c.Identity.TokenWebhook.ConfigFile, c.Identity.TokenWebhook.Version = who, "v1"
		a := &c.Identity.Authorization
		a.Modes, a.WebhookConfigFile, a.WebhookVersion = []string{"Webhook", "RBAC"}, what, "v1"
	})
	list := func(token string) error {
		_, err := g.bearer(token).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list("ann-token"); err != nil {
		t.Error(err)
	}
	for token, is := range map[string]func(error) bool{"bob-token": apierrors.IsForbidden, "eve-token": apierrors.IsForbidden, "nonsense": apierrors.IsUnauthorized} {
		if err := list(token); !is(err) {
			t.Errorf("%s: %v", token, err)
		}
	}
	if err := list("eve-token"); err == nil || !strings.Contains(err.Error(), "the service says so") {
		t.Errorf("the reason is not told: %v", err)
	}
	review, err := g.bearer("ann-token").AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "ann" {
		t.Errorf("%+v %v", review, err)
	}
}

// TestAnonymousRequests go where the flag, or the file, lets them.
func TestAnonymousRequests(t *testing.T) {
	yes, no := true, false
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	if err := os.WriteFile(file, []byte(head+"anonymous: {enabled: true, conditions: [{path: /livez}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*server.Identity)
		want   string // status of /livez, /readyz and /api/v1/namespaces
	}{
		"by default": {func(*server.Identity) {}, "200 200 401"},
		"everywhere": {func(i *server.Identity) { i.Anonymous = &yes }, "200 200 403"},
		"nowhere":    {func(i *server.Identity) { i.Anonymous = &no }, "401 401 401"},
		"by a file":  {func(i *server.Identity) { i.AuthenticationConfig = file }, "200 401 401"},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGate(t, func(c *server.Config) { test.change(&c.Identity) })
			transport, err := rest.TransportFor(rest.AnonymousClientConfig(g.admin))
			if err != nil {
				t.Fatal(err)
			}
			status := func() string {
				var out []string
				for _, path := range []string{"/livez", "/readyz", "/api/v1/namespaces"} {
					answer, err := (&http.Client{Transport: transport}).Get(g.admin.Host + path)
					if err != nil {
						t.Fatal(err)
					}
					answer.Body.Close()
					out = append(out, fmt.Sprint(answer.StatusCode))
				}
				return strings.Join(out, " ")
			}
			g.until("the server is ready", func() error {
				if got := status(); got != test.want {
					return fmt.Errorf("%s, want %s", got, test.want)
				}
				return nil
			})
			if name != "by a file" {
				return
			}
			if err := os.WriteFile(file, []byte(head+"anonymous: {enabled: false}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			g.until("the changed file is in force", func() error {
				if got := status(); got != "401 401 401" {
					return fmt.Errorf("%s", got)
				}
				return nil
			})
			if err := os.WriteFile(file, []byte(head), 0o600); err != nil {
				t.Fatal(err)
			}
			g.until("without the field it is as by default", func() error {
				if got := status(); got != "200 200 401" {
					return fmt.Errorf("%s", got)
				}
				return nil
			})
		})
	}
}

// TestImpersonationForChosenRequests gives an account the right to list pods as bob, and no more; bob may do more than that.
func TestImpersonationForChosenRequests(t *testing.T) {
	g := startGate(t, func(*server.Config) {})
	ctx := t.Context()
	if _, err := g.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	issued, err := g.CoreV1().ServiceAccounts("default").CreateToken(ctx, "agent", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	grant := func(name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
		t.Helper()
		if _, err := g.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{to},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	core := []string{""}
	grant("bob", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "bob"}, rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: core, Resources: []string{"pods", "secrets"}})
	grant("agent", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: "agent"},
		rbacv1.PolicyRule{Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users"}, ResourceNames: []string{"bob", "joe"}},
		rbacv1.PolicyRule{Verbs: []string{"impersonate-on:user-info:list"}, APIGroups: core, Resources: []string{"pods"}})
	as := func(user string) kubernetes.Interface {
		config := rest.AnonymousClientConfig(g.admin)
		config.BearerToken, config.Impersonate.UserName = issued.Status.Token, user
		return g.client(config)
	}
	g.until("the agent lists pods as bob", func() error {
		_, err := as("bob").CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err
	})
	for what, do := range map[string]func() error{
		"gets a pod as bob": func() error {
			_, err := as("bob").CoreV1().Pods("default").Get(ctx, "x", metav1.GetOptions{})
			return err
		},
		"lists secrets as bob": func() error {
			_, err := as("bob").CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
			return err
		},
		"lists pods as ann":    func() error { _, err := as("ann").CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); return err },
		"lists pods as itself": func() error { _, err := as("").CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); return err },
		"lists pods as joe":    func() error { _, err := as("joe").CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); return err },
		"lists pods as a node": func() error {
			_, err := as("system:node:n").CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			return err
		},
		"lists pods as a manager": func() error {
			_, err := as("system:kube-controller-manager").CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		if err := do(); !apierrors.IsForbidden(err) {
			t.Errorf("the agent %s: %v", what, err)
		}
	}
}

// TestATokenInASecret is made by the loop, is good, tells of its use, and goes with its account.
func TestATokenInASecret(t *testing.T) {
	g := startGate(t, func(c *server.Config) { c.Controllers = []string{"serviceaccount-token-controller"} })
	ctx := t.Context()
	if _, err := g.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secrets := g.CoreV1().Secrets("default")
	if _, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept", Annotations: map[string]string{corev1.ServiceAccountNameKey: "web"}},
		Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var token string
	g.until("the secret is filled", func() error {
		s, err := secrets.Get(ctx, "kept", metav1.GetOptions{})
		if err == nil && (len(s.Data["token"]) == 0 || len(s.Data["ca.crt"]) == 0 || string(s.Data["namespace"]) != "default") {
			err = fmt.Errorf("%d keys", len(s.Data))
		}
		if err == nil {
			token = string(s.Data["token"])
		}
		return err
	})
	review, err := g.bearer(token).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:default:web" {
		t.Fatalf("%+v %v", review, err)
	}
	s, err := secrets.Get(ctx, "kept", metav1.GetOptions{})
	if err != nil || s.Labels["kubernetes.io/legacy-token-last-used"] == "" {
		t.Errorf("its use is not noted: %v %v", s.Labels, err)
	}
	if err := g.CoreV1().ServiceAccounts("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.bearer(token).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("after its account was deleted: %v", err)
	}
	g.until("the secret goes too", func() error {
		if _, err := secrets.Get(ctx, "kept", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %v", err)
		}
		return nil
	})
}

// TestMachinesFindTheClusterByASignedKubeconfig makes a token for signing, in a cluster with its loops.
func TestMachinesFindTheClusterByASignedKubeconfig(t *testing.T) {
	q := startQuick(t)
	ctx := t.Context()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken, StringData: map[string]string{
		"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true", "expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
	if _, err := q.api.CoreV1().Secrets("kube-system").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the kubeconfig is signed", func(ctx context.Context) error {
		info, err := q.api.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
		if err != nil {
			return err
		}
		config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
		if err != nil || len(config.Clusters[""].CertificateAuthorityData) == 0 {
			t.Fatalf("kubeconfig %q: %v", info.Data["kubeconfig"], err)
		}
		if info.Data["jws-kubeconfig-abcdef"] == "" {
			return fmt.Errorf("keys %d", len(info.Data))
		}
		return nil
	})
	secret.StringData["expiration"] = time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
	if _, err := q.api.CoreV1().Secrets("kube-system").Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the expired token is gone, and its signature", func(ctx context.Context) error {
		if _, err := q.api.CoreV1().Secrets("kube-system").Get(ctx, secret.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the token: %v", err)
		}
		info, err := q.api.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
		if err == nil && info.Data["jws-kubeconfig-abcdef"] != "" {
			err = fmt.Errorf("still signed")
		}
		return err
	})
}

func TestTokensOfTheOperatorsChoice(t *testing.T) {
	file := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "tokens.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	g := startGate(t, func(c *server.Config) {
		c.Identity.TokenAuthFile = file("t-ann,ann,7,\"dev,ops\"\nt-bob, bob,8\nt-root,root,9,system:masters\n")
	})
	for token, want := range map[string]string{
		"t-ann": "ann 7 [dev ops system:authenticated]", "t-bob": "bob 8 [system:authenticated]", "t-root": "root 9 [system:masters system:authenticated]", "t-eve": "", "ann": "",
	} {
		review, err := g.bearer(token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if want == "" {
			if !apierrors.IsUnauthorized(err) {
				t.Errorf("%s: %v", token, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		who := review.Status.UserInfo
		if got := fmt.Sprint(who.Username, " ", who.UID, " ", who.Groups); got != want {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
	for want, text := range map[string]string{"has 2 fields": "a,b\n", "is empty": "a,,1\n", "is another line's too": "a,b,1\na,c,2\n", "line 1": "a,\"b\n"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c := &server.Config{Backend: server.Memory, Listener: listener, APIOnly: true, NodeName: "dinghy", NodeIP: netip.MustParseAddr("127.0.0.1"), Log: slog.New(slog.DiscardHandler),
			Identity: server.Identity{TokenAuthFile: file(text)}}
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\"a\"") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		listener.Close()
	}
}

// TestNobodyGivesMoreThanTheyHold tries each way of writing a role or a binding, as somebody who may write them all but holds the reading of pods only.
func TestNobodyGivesMoreThanTheyHold(t *testing.T) {
	g := startGate(t, func(c *server.Config) {})
	ctx := t.Context()
	verbs := func(verbs ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"pods"}}}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	clusterRole := func(name string, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Rules: rules}
	}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	ann := rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}
	_, err := g.RbacV1().ClusterRoles().Create(ctx, clusterRole("writer", nil, append(verbs("get"), rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{rbacv1.GroupName},
		Resources: []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}})...), metav1.CreateOptions{})
	must(err)
	// "*" of the rule above would be "escalate" and "bind" too.
	role, err := g.RbacV1().ClusterRoles().Get(ctx, "writer", metav1.GetOptions{})
	must(err)
	role.Rules[1].Verbs = []string{"get", "list", "create", "update", "patch", "delete"}
	_, err = g.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	must(err)
	_, err = g.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Subjects: []rbacv1.Subject{ann}, RoleRef: ref("ClusterRole", "writer")}, metav1.CreateOptions{})
	must(err)
	_, err = g.RbacV1().ClusterRoles().Create(ctx, clusterRole("whole-part", map[string]string{"to": "whole"}, verbs("delete")...), metav1.CreateOptions{})
	must(err)
	whole := clusterRole("whole", nil)
	whole.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "whole"}}}}
	_, err = g.RbacV1().ClusterRoles().Create(ctx, whole, metav1.CreateOptions{})
	must(err)
	config := rest.CopyConfig(g.admin)
	config.Impersonate.UserName = "ann"
	as := g.client(config).RbacV1()
	roles, bindings := as.Roles("default"), as.RoleBindings("default")
	newRole := func(name string, rules []rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	binding := func(name string, r rbacv1.RoleRef) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: r, Subjects: []rbacv1.Subject{ann}}
	}
	const applied = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":%q},"rules":[{"verbs":[%q],"apiGroups":[""],"resources":["pods"]}]}`
	force := metav1.PatchOptions{FieldManager: "test", Force: new(bool)}
	*force.Force = true
	for _, step := range []struct {
		what    string
		do      func() error
		refused bool
	}{
		{"creates a role of what she holds", func() error {
			_, err := roles.Create(ctx, newRole("mine", verbs("get")), metav1.CreateOptions{})
			return err
		}, false},
		{"creates one of more", func() error {
			_, err := roles.Create(ctx, newRole("more", verbs("get", "delete")), metav1.CreateOptions{})
			return err
		}, true},
		{"updates it to more", func() error {
			_, err := roles.Update(ctx, newRole("mine", verbs("delete")), metav1.UpdateOptions{})
			return err
		}, true},
		{"patches it to more", func() error {
			_, err := roles.Patch(ctx, "mine", types.JSONPatchType, []byte(`[{"op":"replace","path":"/rules/0/verbs","value":["*"]}]`), metav1.PatchOptions{})
			return err
		}, true},
		{"merges more into it", func() error {
			_, err := roles.Patch(ctx, "mine", types.MergePatchType, []byte(`{"rules":[{"verbs":["delete"],"apiGroups":[""],"resources":["pods"]}]}`), metav1.PatchOptions{})
			return err
		}, true},
		{"applies more to it", func() error {
			_, err := roles.Patch(ctx, "mine", types.ApplyPatchType, []byte(fmt.Sprintf(applied, "mine", "delete")), force)
			return err
		}, true},
		{"applies a new one of more", func() error {
			_, err := roles.Patch(ctx, "fresh", types.ApplyPatchType, []byte(fmt.Sprintf(applied, "fresh", "delete")), force)
			return err
		}, true},
		{"applies a new one of what she holds", func() error {
			_, err := roles.Patch(ctx, "fresh", types.ApplyPatchType, []byte(fmt.Sprintf(applied, "fresh", "get")), force)
			return err
		}, false},
		{"tries it dry", func() error {
			_, err := roles.Create(ctx, newRole("dry", verbs("delete")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}, true},
		{"gives what she holds", func() error {
			_, err := bindings.Create(ctx, binding("mine", ref("Role", "mine")), metav1.CreateOptions{})
			return err
		}, false},
		{"gives a whole of parts that she does not hold", func() error {
			_, err := bindings.Create(ctx, binding("whole", ref("ClusterRole", "whole")), metav1.CreateOptions{})
			return err
		}, true},
		{"gives everything", func() error {
			_, err := bindings.Create(ctx, binding("all", ref("ClusterRole", "cluster-admin")), metav1.CreateOptions{})
			return err
		}, true},
		{"gives the role of editors", func() error {
			_, err := bindings.Create(ctx, binding("edit", ref("ClusterRole", "edit")), metav1.CreateOptions{})
			return err
		}, true},
		{"gives a role that is not there", func() error {
			_, err := bindings.Create(ctx, binding("none", ref("Role", "none")), metav1.CreateOptions{})
			return err
		}, true},
		{"adds a part to the role of administrators", func() error {
			_, err := as.ClusterRoles().Create(ctx, clusterRole("part", map[string]string{"rbac.authorization.k8s.io/aggregate-to-admin": "true"}, verbs("delete")...), metav1.CreateOptions{})
			return err
		}, true},
		{"makes a whole of everything", func() error {
			r := clusterRole("greedy", nil)
			r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
			_, err := as.ClusterRoles().Create(ctx, r, metav1.CreateOptions{})
			return err
		}, true},
		{"has a role select more", func() error {
			_, err := as.ClusterRoles().Patch(ctx, "writer", types.MergePatchType, []byte(`{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"to":"whole"}}]}}`), metav1.PatchOptions{})
			return err
		}, true},
		{"gives herself more of the cluster", func() error {
			_, err := as.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "up"}, Subjects: []rbacv1.Subject{ann}, RoleRef: ref("ClusterRole", "cluster-admin")}, metav1.CreateOptions{})
			return err
		}, true},
	} {
		err := step.do()
		if step.refused && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) || !step.refused && err != nil {
			t.Errorf("ann %s: %v", step.what, err)
		}
	}
	// What a binding gives stays what it is, for an administrator too.
	_, err = g.RbacV1().RoleBindings("default").Patch(ctx, "mine", types.MergePatchType, []byte(`{"roleRef":{"kind":"ClusterRole","name":"cluster-admin"}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "cannot change roleRef") {
		t.Errorf("another roleRef: %v", err)
	}
}

// TestOneClusterBelievesAnothersTokens has a cluster as the identity provider of a second: it publishes its keys, and the second maps its accounts to users.
func TestOneClusterBelievesAnothersTokens(t *testing.T) {
	var issuer string
	everybody := true
	first := startGate(t, func(c *server.Config) {
		issuer = "https://" + c.Listener.Addr().String()
		c.Keys.ServiceAccountIssuers, c.Identity.Anonymous = []string{issuer}, &everybody
	})
	ctx := t.Context()
	if _, err := first.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "public-keys"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:service-account-issuer-discovery"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:unauthenticated"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := func(audience string) string {
		t.Helper()
		issued, err := first.CoreV1().ServiceAccounts("default").CreateToken(ctx, "web", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return issued.Status.Token
	}
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	config, err := json.Marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": []any{map[string]any{
		"issuer": map[string]any{"url": issuer, "audiences": []string{"second"}, "certificateAuthority": string(first.admin.CAData)},
		"claimMappings": map[string]any{"username": map[string]any{"expression": "'first:' + claims.sub"},
			"groups": map[string]any{"expression": "['from:' + claims['kubernetes.io'].namespace]"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	second := startGate(t, func(c *server.Config) { c.Identity.AuthenticationConfig = file })
	who := func(token string) (authenticationv1.UserInfo, error) {
		review, err := second.bearer(token).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return review.Status.UserInfo, nil
	}
	good := token("second")
	second.until("the first cluster's token is believed", func() error {
		got, err := who(good)
		if err == nil && fmt.Sprint(got.Username, got.Groups) != "first:system:serviceaccount:default:web[from:default system:authenticated]" {
			t.Fatalf("%+v", got)
		}
		return err
	})
	if got, err := who(token("third")); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token for somebody else: %+v %v", got, err)
	}
	if got, err := who(good[:len(good)-6] + "AAAAAA"); !apierrors.IsUnauthorized(err) {
		t.Errorf("an altered token: %+v %v", got, err)
	}
}

// TestServiceAccountsKeysMayBeOfTheUsualKinds gives an RSA key as openssl writes it, and keys that cannot be used.
func TestServiceAccountsKeysMayBeOfTheUsualKinds(t *testing.T) {
	write := func(kind string, der []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private, public := write("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), nil), write("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey), nil)
	issue := func(g *gate) string {
		t.Helper()
		if _, err := g.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		issued, err := g.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "web", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return issued.Status.Token
	}
	g := startGate(t, func(c *server.Config) { c.Keys.ServiceAccountSigningKeyFile = private })
	token := issue(g)
	if _, err := g.bearer(token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	head, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	if err != nil || !strings.Contains(string(head), `"alg":"RS256"`) {
		t.Errorf("header %s %v", head, err)
	}
	keys, err := g.CoreV1().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(keys), `"kty":"RSA"`) {
		t.Errorf("keys %s %v", keys, err)
	}
	startGate(t, func(c *server.Config) { c.Keys.ServiceAccountKeyFiles = []string{public} })
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(edwards)
	unusable := write("PRIVATE KEY", der, err)
	for want, change := range map[string]func(*server.Keys){
		"cannot sign tokens":     func(k *server.Keys) { k.ServiceAccountSigningKeyFile = unusable },
		"--service-account-key-": func(k *server.Keys) { k.ServiceAccountKeyFiles = []string{unusable} },
		"no key in it":           func(k *server.Keys) { k.ServiceAccountKeyFiles = []string{write("X", nil, nil)} },
		"an hour or more":        func(k *server.Keys) { k.ServiceAccountMaxTokenExpiration = time.Minute },
		"https:// URL":           func(k *server.Keys) { k.ServiceAccountJWKSURI = "http://keys.example" },
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c := &server.Config{Backend: server.Memory, Listener: listener, APIOnly: true, NodeName: "dinghy", NodeIP: netip.MustParseAddr("127.0.0.1"), Log: slog.New(slog.DiscardHandler)}
		change(&c.Keys)
		err = c.Complete()
		if err == nil {
			_, err = server.Start(t.Context(), c)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		listener.Close()
	}
}
