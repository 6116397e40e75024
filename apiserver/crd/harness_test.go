package crd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/crd"
	"github.com/yare-project/yare/apiserver/discovery"
	"github.com/yare-project/yare/apiserver/openapi"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/disk"
	"github.com/yare-project/yare/store/mem"
)

// cluster is an API server with custom resources.
type cluster struct {
	t    testing.TB
	gate *apiserver.Server
	url  string
	stop func()
}

func start(t testing.TB) *cluster { return startOn(t, mem.New(mem.Config{CheckImmutable: true})) }

// startFor is start without the checks that tests want and that cost time.
func startFor(t testing.TB) *cluster { return startOn(t, mem.New(mem.Config{})) }

func startOn(t testing.TB, s store.Store) *cluster {
	t.Helper()
	who := &user.DefaultInfo{Name: "tester", Groups: []string{user.SystemPrivilegedGroup}}
	var gate *apiserver.Server
	served := func() ([]*kind.Kind, uint64) { return gate.Registry().Kinds(), uint64(gate.Registry().Revision()) }
	var err error
	gate, err = apiserver.New(apiserver.Config{Store: s, Groups: kinds.Groups(),
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: who}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
		Discovery: discovery.New(discovery.Config{Kinds: served}), OpenAPI: openapi.New(openapi.Config{Kinds: served, Definitions: kinds.Definitions(), Version: "v1"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	custom, err := crd.New(crd.Config{Gate: gate.Local(who), Registry: gate.Registry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = custom.Run(ctx) }()
	<-custom.Synced()
	web := httptest.NewServer(gate.Handler())
	c := &cluster{t: t, gate: gate, url: web.URL}
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		gate.Drain()
		web.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(c.stop)
	return c
}

func onDisk(t *testing.T, dir string) store.Store {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (c *cluster) config() *rest.Config { return &rest.Config{Host: c.url, QPS: -1} }

func (c *cluster) definitions() clientset.Interface {
	return must(clientset.NewForConfig(c.config()))(c.t)
}

func (c *cluster) in(version, resource string) dynamic.ResourceInterface {
	c.t.Helper()
	d := must(dynamic.NewForConfig(c.config()))(c.t)
	return d.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: resource}).Namespace("default")
}

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until waits for something that another goroutine brings about.
func until(t testing.TB, what string, f func() (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(ctxOf(t), 2*time.Millisecond, 15*time.Second, true, func(context.Context) (bool, error) {
		ok, err := f()
		last = err
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (last error: %v)", what, err, last)
	}
}

// define creates or replaces a definition and waits until it is established with all of its names.
func (c *cluster) define(doc string) *apiextensionsv1.CustomResourceDefinition {
	c.t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(doc), d); err != nil {
		c.t.Fatal(err)
	}
	api := c.definitions().ApiextensionsV1().CustomResourceDefinitions()
	if old, err := api.Get(ctxOf(c.t), d.Name, metav1.GetOptions{}); err == nil {
		d.ResourceVersion = old.ResourceVersion
		must(api.Update(ctxOf(c.t), d, metav1.UpdateOptions{}))(c.t)
	} else {
		must(api.Create(ctxOf(c.t), d, metav1.CreateOptions{}))(c.t)
	}
	until(c.t, "established", func() (bool, error) {
		var err error
		d, err = api.Get(ctxOf(c.t), d.Name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(d.Status.Conditions, func(s apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return s.Type == apiextensionsv1.Established && s.Status == apiextensionsv1.ConditionTrue
		}), err
	})
	// A change of a definition that is established already reaches the registry by a watch.
	until(c.t, "served as defined", func() (bool, error) {
		r, ok := c.gate.Registry().Resource(schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural})
		return ok && len(r.Kind.Versions) > 0 && r.Kind.Versions[0].SchemaID == idOf(d), nil
	})
	return d
}

func idOf(d *apiextensionsv1.CustomResourceDefinition) string {
	return string(d.UID) + "/" + itoa(d.Generation)
}

func parse(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(doc))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}
