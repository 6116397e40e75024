package apiserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/mem"
)

var _ client.Transport = (*apiserver.Local)(nil)

// groups are kinds of the real API with just enough behaviour to see each rule of the engine at work.
func groups() []*kind.Group {
	core := &kind.Group{Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{corev1.AddToScheme, autoscalingv1.AddToScheme}}
	kind.Add(core, kind.Def[corev1.ConfigMap]{Names: kind.Names{Plural: "configmaps"}})
	kind.Add(core, kind.Def[corev1.Namespace]{Names: kind.Names{Plural: "namespaces"}, Scope: kind.Cluster,
		KeepDeleted: func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
		OnDelete:    func(n *corev1.Namespace) { n.Status.Phase = corev1.NamespaceTerminating },
		Subs:        []kind.Sub[corev1.Namespace]{{Name: "finalize", Replace: func(n, from *corev1.Namespace) { n.Spec.Finalizers = from.Spec.Finalizers }}}})
	kind.Add(core, kind.Def[corev1.Node]{Names: kind.Names{Plural: "nodes"}, Scope: kind.Cluster, StatusOnCreate: true})
	kind.Add(core, kind.Def[corev1.Event]{Names: kind.Names{Plural: "events"}, Relaxed: true, TTL: func(s kind.Settings) time.Duration { return s.EventTTL }})
	kind.Add(core, kind.Def[corev1.Pod]{
		Names:         kind.Names{Plural: "pods"},
		ReturnDeleted: true,
		Default: func(p *corev1.Pod) {
			if p.Spec.RestartPolicy == "" {
				p.Spec.RestartPolicy = corev1.RestartPolicyAlways
			}
		},
		Grace: func(p *corev1.Pod, o *metav1.DeleteOptions) int64 {
			if p.Spec.NodeName == "" {
				return 0
			}
			if o.GracePeriodSeconds != nil {
				return *o.GracePeriodSeconds
			}
			return 30
		},
		Fields: map[string]func(*corev1.Pod) string{"spec.nodeName": func(p *corev1.Pod) string { return p.Spec.NodeName }},
		Columns: []kind.Column[corev1.Pod]{
			{Name: "Status", Value: func(p *corev1.Pod, _ time.Time) any { return string(p.Status.Phase) }},
			{Name: "Node", Priority: 1, Value: func(p *corev1.Pod, _ time.Time) any { return p.Spec.NodeName }},
		},
		Subs: []kind.Sub[corev1.Pod]{
			{Name: "binding", Body: corev1.SchemeGroupVersion.WithKind("Binding"), New: func() runtime.Object { return &corev1.Binding{} }, BodyNamed: true,
				Create: func(ctx context.Context, env kind.Env, p *corev1.Pod, body runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
					if got := body.(*corev1.Binding).Name; got != p.Name {
						return nil, apierrors.NewBadRequest(fmt.Sprintf("the binding names %q", got))
					}
					_, err := env.Change(ctx, schema.GroupResource{Resource: "pods"}, p.Namespace, p.Name, func(o kind.Object) error {
						o.(*corev1.Pod).Spec.NodeName = body.(*corev1.Binding).Target.Name
						return nil
					})
					return nil, err
				}},
			{Name: "ephemeralcontainers", Replace: func(p, from *corev1.Pod) { p.Spec.EphemeralContainers = from.Spec.EphemeralContainers }},
		},
	})
	kind.Add(core, kind.Def[corev1.Service]{
		Names: kind.Names{Plural: "services"},
		Assign: func(_ kind.Env, taken func(pool, value string) bool, s, old *corev1.Service) field.ErrorList {
			if old != nil {
				s.Spec.ClusterIP = old.Spec.ClusterIP
			}
			for i := 1; s.Spec.ClusterIP == "" && i < 4; i++ {
				if ip := fmt.Sprintf("10.0.0.%d", i); !taken("ip", ip) {
					s.Spec.ClusterIP = ip
				}
			}
			if s.Spec.ClusterIP == "" {
				return field.ErrorList{field.InternalError(field.NewPath("spec", "clusterIP"), fmt.Errorf("no address left"))}
			}
			return nil
		},
		Claims: func(s *corev1.Service) []kind.Claim { return []kind.Claim{{Pool: "ip", Value: s.Spec.ClusterIP}} },
	})
	apps := &kind.Group{Name: "apps", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{appsv1.AddToScheme}}
	kind.Add(apps, kind.Def[appsv1.Deployment]{
		Names: kind.Names{Plural: "deployments"},
		Default: func(d *appsv1.Deployment) {
			if d.Spec.Replicas == nil {
				one := int32(1)
				d.Spec.Replicas = &one
			}
		},
		Validate: func(d, _ *appsv1.Deployment) field.ErrorList {
			if *d.Spec.Replicas < 0 {
				return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), *d.Spec.Replicas, "must be greater than or equal to 0")}
			}
			return nil
		},
		Scale: &kind.Scale[appsv1.Deployment]{
			Replicas:       func(d *appsv1.Deployment) int32 { return *d.Spec.Replicas },
			SetReplicas:    func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n },
			StatusReplicas: func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
			Selector:       func(d *appsv1.Deployment) string { return metav1.FormatLabelSelector(d.Spec.Selector) },
		},
	})
	return []*kind.Group{core, apps}
}

// userHeader carries the user's name in these tests; users in group masters are named in it after a comma.
const userHeader = "X-Test-User"

func authenticate(req *http.Request) (*authenticator.Response, bool, error) {
	parts := strings.Split(req.Header.Get(userHeader), ",")
	if parts[0] == "nobody" {
		return nil, false, nil
	}
	if parts[0] == "" {
		parts[0] = "tester"
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: parts[0], Groups: parts[1:]}}, true, nil
}

// authorize lets everybody do all but the user "reader", who may only read.
func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "reader" && !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

type harness struct {
	t      testing.TB
	server *apiserver.Server
	http   *httptest.Server
	store  store.Store
}

func start(t testing.TB, adjust ...func(*apiserver.Config)) *harness {
	t.Helper()
	cfg := apiserver.Config{Store: mem.New(mem.Config{CheckImmutable: true}), Groups: groups(),
		Authenticator: authenticator.RequestFunc(authenticate), Authorizer: authorizer.AuthorizerFunc(authorize)}
	for _, f := range adjust {
		f(&cfg)
	}
	s, err := apiserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Drain()
		srv.Close()
		if err := cfg.Store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &harness{t: t, server: s, http: srv, store: cfg.Store}
}

func (h *harness) rest() *rest.Config { return &rest.Config{Host: h.http.URL, QPS: -1} }

func (h *harness) client() *kubernetes.Clientset {
	cfg := h.rest()
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	return must(kubernetes.NewForConfig(cfg))
}

func (h *harness) jsonClient() *kubernetes.Clientset { return must(kubernetes.NewForConfig(h.rest())) }

func (h *harness) dynamic() dynamic.Interface   { return must(dynamic.NewForConfig(h.rest())) }
func (h *harness) metadata() metadata.Interface { return must(metadata.NewForConfig(h.rest())) }
func (h *harness) local() *apiserver.Local {
	return h.server.Local(&user.DefaultInfo{Name: "system:loop"})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// answer is a response read to its end.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, a.body)
	}
	return out
}

// do sends a request; headers come in pairs.
func (h *harness) do(method, path, body string, headers ...string) answer {
	h.t.Helper()
	req, err := http.NewRequest(method, h.http.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.http.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

func configMaps() resource.Ref {
	return resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: "ns"}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Data: data}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type apiserverConfig = apiserver.Config

// shared is a store that another server closes.
type shared struct{ store.Store }

func (shared) Close() error { return nil }

// certificate borrows that of net/http/httptest.
func certificate(t testing.TB) tls.Certificate {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	return srv.TLS.Certificates[0]
}
