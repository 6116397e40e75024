package discovery_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	apidiscovery "github.com/yare-project/yare/apiserver/discovery"
	"github.com/yare-project/yare/kind"
)

func scheme(add ...func(*runtime.Scheme) error) []func(*runtime.Scheme) error { return add }

// groups are kinds of every shape: subresources with foreign bodies, several versions, a second group, scale, a virtual kind.
func groups() []*kind.Kind {
	core := kind.Group{Versions: []string{"v1"}, AddToScheme: scheme(corev1.AddToScheme)}
	kind.Add(&core, kind.Def[corev1.Pod]{
		Names: kind.Names{Plural: "pods", Short: []string{"po"}, Categories: []string{"all"}},
		Subs: []kind.Sub[corev1.Pod]{
			{Name: "eviction", Body: policyv1.SchemeGroupVersion.WithKind("Eviction"),
				Create: func(context.Context, kind.Env, *corev1.Pod, runtime.Object, metav1.CreateOptions) (runtime.Object, error) {
					return nil, nil
				}},
			{Name: "exec", Body: corev1.SchemeGroupVersion.WithKind("PodExecOptions"), Methods: []string{"POST", "GET"},
				Connect: func(context.Context, kind.Env, *corev1.Pod, string, url.Values) (kind.Target, error) {
					return kind.Target{}, nil
				}},
		},
	})
	kind.Add(&core, kind.Def[corev1.Event]{
		Names: kind.Names{Plural: "events", Short: []string{"ev"}},
		Served: []kind.Served[corev1.Event]{{GroupVersion: eventsv1.SchemeGroupVersion,
			New: func() runtime.Object { return &eventsv1.Event{} }, NewList: func() runtime.Object { return &eventsv1.EventList{} }}},
	})
	kind.Add(&core, kind.Def[corev1.Node]{Names: kind.Names{Plural: "nodes"}, Scope: kind.Cluster})
	apps := kind.Group{Name: "apps", Versions: []string{"v1"}, AddToScheme: scheme(appsv1.AddToScheme)}
	kind.Add(&apps, kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}, Scale: &kind.Scale[appsv1.Deployment]{}})
	autoscaling := kind.Group{Name: "autoscaling", Versions: []string{"v2", "v1"}, AddToScheme: scheme(autoscalingv2.AddToScheme)}
	kind.Add(&autoscaling, kind.Def[autoscalingv2.HorizontalPodAutoscaler]{
		Names: kind.Names{Plural: "horizontalpodautoscalers"},
		Served: []kind.Served[autoscalingv2.HorizontalPodAutoscaler]{{GroupVersion: autoscalingv1.SchemeGroupVersion,
			New: func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscaler{} }}},
	})
	return append(append(core.Kinds, apps.Kinds...), autoscaling.Kinds...)
}

type source struct {
	kinds    []*kind.Kind
	revision uint64
}

func (s *source) get() ([]*kind.Kind, uint64) { return s.kinds, s.revision }

func serve(t *testing.T) (*source, *httptest.Server) {
	t.Helper()
	s := &source{kinds: groups(), revision: 1}
	server := httptest.NewServer(apidiscovery.New(apidiscovery.Config{Kinds: s.get}))
	t.Cleanup(server.Close)
	return s, server
}

func get(t *testing.T, server *httptest.Server, path string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

// client learns what is served through client-go, in the aggregated or the legacy form.
func client(t *testing.T, server *httptest.Server, legacy bool, accept string) *discovery.DiscoveryClient {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{AcceptContentTypes: accept}})
	if err != nil {
		t.Fatal(err)
	}
	c.UseLegacyDiscovery = legacy
	return c
}

func TestClientSeesTheSameThroughBothForms(t *testing.T) {
	_, server := serve(t)
	want := map[string]string{
		"v1 pods":                                 "Pod true create,delete,deletecollection,get,list,patch,update,watch",
		"v1 pods/status":                          "Pod true get,patch,update",
		"v1 pods/eviction":                        "policy/v1 Eviction true create",
		"v1 pods/exec":                            "PodExecOptions true create,get",
		"v1 events":                               "Event true create,delete,deletecollection,get,list,patch,update,watch",
		"v1 nodes":                                "Node false create,delete,deletecollection,get,list,patch,update,watch",
		"v1 nodes/status":                         "Node false get,patch,update",
		"events.k8s.io/v1 events":                 "Event true create,delete,deletecollection,get,list,patch,update,watch",
		"apps/v1 deployments":                     "Deployment true create,delete,deletecollection,get,list,patch,update,watch",
		"apps/v1 deployments/status":              "Deployment true get,patch,update",
		"apps/v1 deployments/scale":               "autoscaling/v1 Scale true get,patch,update",
		"autoscaling/v2 horizontalpodautoscalers": "HorizontalPodAutoscaler true create,delete,deletecollection,get,list,patch,update,watch",
		"autoscaling/v2 horizontalpodautoscalers/status": "HorizontalPodAutoscaler true get,patch,update",
		"autoscaling/v1 horizontalpodautoscalers":        "HorizontalPodAutoscaler true create,delete,deletecollection,get,list,patch,update,watch",
		"autoscaling/v1 horizontalpodautoscalers/status": "HorizontalPodAutoscaler true get,patch,update",
	}
	for _, legacy := range []bool{false, true} {
		_, lists, err := client(t, server, legacy, "").ServerGroupsAndResources()
		if err != nil {
			t.Fatalf("legacy=%v: %v", legacy, err)
		}
		got := map[string]string{}
		for _, list := range lists {
			for _, r := range list.APIResources {
				line := r.Kind + map[bool]string{true: " true ", false: " false "}[r.Namespaced] + strings.Join(r.Verbs, ",")
				// The aggregated form always names the group and version of what a resource answers with.
				if gv := (metav1.GroupVersion{Group: r.Group, Version: r.Version}).String(); r.Version != "" && gv != list.GroupVersion {
					line = gv + " " + line
				}
				got[list.GroupVersion+" "+r.Name] = line
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("legacy=%v: resources (-want +got):\n%s", legacy, diff)
		}
	}
}

func TestShortNamesAndPreferredVersion(t *testing.T) {
	_, server := serve(t)
	groups, err := restmapper.GetAPIGroupResources(client(t, server, false, ""))
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), client(t, server, false, ""), nil)
	for short, want := range map[string]string{"po": "/v1, Resource=pods",
		"horizontalpodautoscaler": "autoscaling/v2, Resource=horizontalpodautoscalers"} {
		got, err := mapper.ResourceFor(anyVersion(short))
		if err != nil || got.String() != want {
			t.Errorf("%s means %q (%v), want %q", short, got.String(), err, want)
		}
	}
}

func TestAggregatedHasETag(t *testing.T) {
	s, server := serve(t)
	accept := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	status, header, _ := get(t, server, "/apis", "Accept", accept)
	if status != 200 || header.Get("Content-Type") != accept || header.Get("ETag") == "" || header.Get("Vary") != "Accept" {
		t.Fatalf("status %d, header %v", status, header)
	}
	old := header.Get("ETag")
	if status, _, body := get(t, server, "/apis", "Accept", accept, "If-None-Match", old); status != 304 || body != "" {
		t.Errorf("unchanged: status %d, body %q; want 304 and none", status, body)
	}
	s.kinds, s.revision = s.kinds[:4], 2 // the autoscaling group goes
	status, header, body := get(t, server, "/apis", "Accept", accept, "If-None-Match", old)
	if status != 200 || header.Get("ETag") == old || strings.Contains(body, `"autoscaling"},"versions"`) {
		t.Errorf("changed: status %d, ETag %s, body %s", status, header.Get("ETag"), body)
	}
	if status, _, _ := get(t, server, "/apis/autoscaling"); status != 404 {
		t.Errorf("a group that went is answered with %d", status)
	}
}

func TestNegotiation(t *testing.T) {
	_, server := serve(t)
	const v2 = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	const beta = ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	for _, c := range []struct {
		path, accept, want string
		status             int
	}{
		{"/apis", "", "application/json", 200},
		{"/apis", "*/*", "application/json", 200},
		{"/apis", "application/json" + v2 + ",application/json" + beta + ",application/json", "application/json" + v2, 200},
		{"/apis", "application/json" + beta, "application/json" + beta, 200},
		{"/api", "application/vnd.kubernetes.protobuf" + v2, "application/vnd.kubernetes.protobuf" + v2, 200},
		{"/api", "application/yaml", "application/yaml", 200},
		{"/apis/apps/v1", "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf", 200},
		{"/apis/apps/v1", "application/cbor,application/json", "application/cbor", 200},
		{"/apis", "application/cbor" + v2, "application/cbor" + v2, 200},
		// What is not served in the aggregated form falls through to the next clause.
		{"/apis/apps", "application/json" + v2 + ",application/json", "application/json", 200},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,application/yaml;q=0.5", "application/yaml", 200},
		{"/apis", "application/json;q=0,application/yaml", "application/yaml", 200},
		{"/apis", "text/html", "application/json", 406},
		{"/apis/nope", "", "application/json", 404},
		{"/apis/apps/v2", "", "application/json", 404},
		{"/api/v2", "", "application/json", 404},
		{"/apis/apps/v1/deployments", "", "text/plain; charset=utf-8", 404},
	} {
		status, header, body := get(t, server, c.path, "Accept", c.accept)
		if status != c.status || header.Get("Content-Type") != c.want || body == "" {
			t.Errorf("%s, Accept %q: %d %q, want %d %q", c.path, c.accept, status, header.Get("Content-Type"), c.status, c.want)
		}
	}
}

func TestProtobufClient(t *testing.T) {
	_, server := serve(t)
	c := client(t, server, true, "application/vnd.kubernetes.protobuf")
	list, err := c.ServerResourcesForGroupVersion("apps/v1")
	if err != nil || len(list.APIResources) != 3 || list.APIResources[0].Name != "deployments" {
		t.Errorf("got %v, %v", list, err)
	}
}

// CBOR says what JSON says.
func TestCBOR(t *testing.T) {
	_, server := serve(t)
	for path, into := range map[string]func() runtime.Object{
		"/api":          func() runtime.Object { return &metav1.APIVersions{} },
		"/apis":         func() runtime.Object { return &metav1.APIGroupList{} },
		"/apis/apps":    func() runtime.Object { return &metav1.APIGroup{} },
		"/apis/apps/v1": func() runtime.Object { return &metav1.APIResourceList{} },
	} {
		want, got := into(), into()
		_, _, body := get(t, server, path)
		if err := json.Unmarshal([]byte(body), want); err != nil {
			t.Fatal(err)
		}
		_, _, body = get(t, server, path, "Accept", "application/cbor")
		if err := direct.Unmarshal([]byte(body), got); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-JSON +CBOR):\n%s", path, diff)
		}
	}
}

func TestLegacyDocuments(t *testing.T) {
	_, server := serve(t)
	_, _, body := get(t, server, "/api")
	want := `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"` +
		strings.TrimPrefix(server.URL, "http://") + `"}]}` + "\n"
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("/api (-want +got):\n%s", diff)
	}
	_, _, body = get(t, server, "/apis/apps")
	want = `{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],` +
		`"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}` + "\n"
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("/apis/apps (-want +got):\n%s", diff)
	}
	_, _, body = get(t, server, "/api/v1")
	if !strings.Contains(body, `"storageVersionHash":"xPOwRZ+Yhw8="`) { // the hash that Kubernetes gives /v1/Pod
		t.Errorf("/api/v1: %s", body)
	}
}

func anyVersion(name string) (r schema.GroupVersionResource) {
	r.Resource = name
	return r
}

// Discovery is only read; what is not there is not found by any method.
func TestOtherMethods(t *testing.T) {
	_, server := serve(t)
	for path, want := range map[string]int{"/apis": http.StatusMethodNotAllowed, "/api/v1": http.StatusMethodNotAllowed, "/api/v2": http.StatusNotFound, "/apis/none": http.StatusNotFound} {
		resp, err := http.Post(server.URL+path, "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("POST %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}
