package dynamic_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	regv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/dynamic"
	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/apiserver/openapi"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/kinds/admission"
	"github.com/yare-project/yare/store/mem"
)

// gate is an API server with all built-in kinds and admission, reached over HTTP. A user "reader" may only read.
type gate struct {
	*kubernetes.Clientset
	t      *testing.T
	server *apiserver.Server
	own    user.Info // exempt
	mu     sync.Mutex
	audits []apiserver.AuditEvent
	warned []string

	metrics *prometheus.Registry
}

type late struct{ kind.Env }

func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "reader" && a.GetVerb() != "get" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// newGate starts a gate. off are plugins that are switched off.
func newGate(t *testing.T, off ...string) *gate {
	t.Helper()
	g := &gate{t: t}
	env := &late{}
	mutators, validators := admission.Default()
	served := func() ([]*kind.Kind, uint64) {
		return g.server.Registry().Kinds(), uint64(g.server.Registry().Revision())
	}
	own := &user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup}}
	g.metrics = prometheus.NewRegistry()
	counts := measure.New(g.metrics)
	plugin := dynamic.New(dynamic.Config{Env: env, Measure: counts, Off: func(plugin string) bool { return slices.Contains(off, plugin) }, Exempt: func(r *kind.AdmissionRequest) bool { return r.User == user.Info(own) }, Static: mutators, Log: slog.New(slog.DiscardHandler), Kinds: served,
		Types: func() managedfields.TypeConverter { return g.server.Types() }, OpenAPI: openapi.New(openapi.Config{Kinds: served, Definitions: kinds.Definitions()})})
	store := mem.New(mem.Config{CheckImmutable: true})
	server, err := apiserver.New(apiserver.Config{Store: store, Groups: kinds.Groups(),
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "tester", Groups: []string{"system:masters"}, Extra: map[string][]string{"k": {"v"}}}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(authorize), Settings: kind.Settings{ClusterDomain: "cluster.local"},
		Mutators: append(mutators, plugin), Validators: dynamic.Before(validators, "ResourceQuota", plugin), Metrics: g.metrics, Measure: counts,
		Audit: func(e apiserver.AuditEvent) { g.mu.Lock(); g.audits = append(g.audits, e); g.mu.Unlock() },
	})
	if err != nil {
		t.Fatal(err)
	}
	env.Env, g.server, g.own = server.Env(), server, own
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- plugin.Run(ctx, server.Local(own))
	}()
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		cancel()
		<-done
		server.Drain()
		web.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	g.Clientset, err = kubernetes.NewForConfig(&rest.Config{Host: web.URL, QPS: -1, WarningHandler: g})
	if err != nil {
		t.Fatal(err)
	}
	g.must(g.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"team": "red"}}}, metav1.CreateOptions{}))
	g.must(g.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}))
	g.must(g.CoreV1().ServiceAccounts("ns").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}))
	return g
}

// HandleWarningHeader implements rest.WarningHandler.
func (g *gate) HandleWarningHeader(_ int, _ string, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.warned = append(g.warned, text)
}

func (g *gate) warnings() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.warned, "\n")
}

// annotations are those of the last request that was audited with any.
func (g *gate) annotations() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.audits) - 1; i >= 0; i-- {
		if g.audits[i].Annotations != nil {
			return g.audits[i].Annotations
		}
	}
	return nil
}

func (g *gate) must(_ any, err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// eventually asks again until the answer is right: a configuration counts when the plugin has heard of it.
func (g *gate) eventually(what string, ok func() bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			g.t.Fatalf("%s: never", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func configMap(name string, change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range change {
		f(c)
	}
	return c
}

func (g *gate) create(namespace string, c *corev1.ConfigMap, dry ...string) (*corev1.ConfigMap, error) {
	return g.CoreV1().ConfigMaps(namespace).Create(context.Background(), c, metav1.CreateOptions{DryRun: dry})
}

// remote is a webhook over HTTPS. Answer decides; every request is kept.
type remote struct {
	t    *testing.T
	srv  *httptest.Server
	mu   sync.Mutex
	seen []*admissionv1.AdmissionReview
	// timeouts are what the webhook was told to take at most.
	timeouts []string
	answer   func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

func newRemote(t *testing.T, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *remote {
	r := &remote{t: t, answer: answer}
	r.srv = httptest.NewTLSServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.srv.Close)
	return r
}

func (r *remote) serve(w http.ResponseWriter, req *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(req.Body).Decode(review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.seen = append(r.seen, review)
	r.timeouts = append(r.timeouts, req.URL.Query().Get("timeout"))
	r.mu.Unlock()
	response := r.answer(review.Request)
	if response == nil {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	response.UID = review.Request.UID
	if err := json.NewEncoder(w).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}); err != nil {
		r.t.Error(err)
	}
}

func (r *remote) calls() []*admissionv1.AdmissionReview {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func (r *remote) client() regv1.WebhookClientConfig {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.srv.Certificate().Raw})
	return regv1.WebhookClientConfig{URL: ptr.To(r.srv.URL + "/hook"), CABundle: ca}
}

func yes() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

func patch(text string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(text), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
}

var anyConfigMap = []regv1.RuleWithOperations{{Operations: []regv1.OperationType{regv1.OperationAll},
	Rule: regv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}}

func validating(r *remote, change ...func(*regv1.ValidatingWebhook)) regv1.ValidatingWebhook {
	w := regv1.ValidatingWebhook{Name: "check.example.com", ClientConfig: r.client(), Rules: slices.Clone(anyConfigMap), AdmissionReviewVersions: []string{"v1"},
		SideEffects: ptr.To(regv1.SideEffectClassNone)}
	for _, f := range change {
		f(&w)
	}
	return w
}

func mutating(r *remote, change ...func(*regv1.MutatingWebhook)) regv1.MutatingWebhook {
	w := regv1.MutatingWebhook{Name: "change.example.com", ClientConfig: r.client(), Rules: slices.Clone(anyConfigMap), AdmissionReviewVersions: []string{"v1"},
		SideEffects: ptr.To(regv1.SideEffectClassNone)}
	for _, f := range change {
		f(&w)
	}
	return w
}

// register stores webhooks of one sort and waits until they count: a webhook of the test's own, which only sees marker objects, is among them.
func (g *gate) register(name string, webhooks any) {
	g.t.Helper()
	ctx := context.Background()
	marker := newRemote(g.t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "marker " + name}}
	})
	only := &metav1.LabelSelector{MatchLabels: map[string]string{"marker": name}}
	switch list := webhooks.(type) {
	case []regv1.ValidatingWebhook:
		list = append([]regv1.ValidatingWebhook{validating(marker, func(w *regv1.ValidatingWebhook) { w.Name, w.ObjectSelector = "marker.example.com", only })}, list...)
		g.must(g.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &regv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: list}, metav1.CreateOptions{}))
	case []regv1.MutatingWebhook:
		list = append([]regv1.MutatingWebhook{mutating(marker, func(w *regv1.MutatingWebhook) { w.Name, w.ObjectSelector = "marker.example.com", only })}, list...)
		g.must(g.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &regv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: list}, metav1.CreateOptions{}))
	default:
		g.t.Fatalf("%T are no webhooks", webhooks)
	}
	g.marked(name)
}

func (g *gate) marked(name string) {
	g.t.Helper()
	g.eventually("webhooks "+name+" count", func() bool {
		_, err := g.create("other", configMap("marker", func(c *corev1.ConfigMap) { c.Labels = map[string]string{"marker": name} }), metav1.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "marker "+name)
	})
}
