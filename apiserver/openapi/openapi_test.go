package openapi_test

import (
	"bytes"
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
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
	openapiclient "k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	explain "k8s.io/kubectl/pkg/explain/v2"
	openapiutil "k8s.io/kubectl/pkg/util/openapi"

	"github.com/yare-project/yare/apiserver/openapi"
	"github.com/yare-project/yare/kind"
)

func scheme(add ...func(*runtime.Scheme) error) []func(*runtime.Scheme) error { return add }

func builtIn() []*kind.Kind {
	core := kind.Group{Versions: []string{"v1"}, AddToScheme: scheme(corev1.AddToScheme)}
	kind.Add(&core, kind.Def[corev1.Pod]{
		Names: kind.Names{Plural: "pods"},
		Subs: []kind.Sub[corev1.Pod]{{Name: "eviction", Body: policyv1.SchemeGroupVersion.WithKind("Eviction"),
			New: func() runtime.Object { return &policyv1.Eviction{} },
			Create: func(context.Context, kind.Env, *corev1.Pod, runtime.Object, metav1.CreateOptions) (runtime.Object, error) {
				return nil, nil
			}}},
	})
	kind.Add(&core, kind.Def[corev1.Node]{Names: kind.Names{Plural: "nodes"}, Scope: kind.Cluster})
	apps := kind.Group{Name: "apps", Versions: []string{"v1"}, AddToScheme: scheme(appsv1.AddToScheme)}
	kind.Add(&apps, kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}, Scale: &kind.Scale[appsv1.Deployment]{}})
	return append(core.Kinds, apps.Kinds...)
}

// widget is a kind without a Go type, as a user defines one.
func widget() *kind.Kind {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	names := kind.Names{Plural: "widgets", Singular: "widget", Kind: "Widget"}
	return &kind.Kind{Group: gvk.Group, Hub: gvk, Names: names, Verbs: kind.AllVerbs,
		New: func() kind.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		Versions: []kind.Version{{GroupVersionKind: gvk, Names: names,
			New:     func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
			NewList: func() runtime.Object { return &unstructured.UnstructuredList{} }}}}
}

type source struct {
	kinds    []*kind.Kind
	revision uint64
}

func serve(t *testing.T) (*source, *httptest.Server) {
	t.Helper()
	s := &source{kinds: builtIn(), revision: 1}
	server := httptest.NewServer(openapi.New(openapi.Config{
		Kinds: func() ([]*kind.Kind, uint64) { return s.kinds, s.revision },
		Title: "Test", Version: "v1",
		Schema: func(v *kind.Version) *spec.Schema {
			if v.Kind != "Widget" {
				return nil
			}
			text := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Description: "What it is painted."}}
			return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{"color": text}}}
		},
	}))
	t.Cleanup(server.Close)
	return s, server
}

func client(t *testing.T, server *httptest.Server) *discovery.DiscoveryClient {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, server *httptest.Server, path string, header ...string) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, body
}

// The documents describe what Kubernetes' describe beside the kinds: where discovery is, the old paths of watches, the parameters of streams.
func TestRootsWatchesAndStreams(t *testing.T) {
	s, server := serve(t)
	core := kind.Group{Versions: []string{"v1"}, AddToScheme: scheme(corev1.AddToScheme)}
	kind.Add(&core, kind.Def[corev1.Service]{Names: kind.Names{Plural: "services"}, Subs: []kind.Sub[corev1.Service]{{Name: "proxy",
		Body: corev1.SchemeGroupVersion.WithKind("ServiceProxyOptions"), New: func() runtime.Object { return &corev1.ServiceProxyOptions{} }, Methods: []string{"GET"},
		Connect: func(context.Context, kind.Env, *corev1.Service, string, url.Values) (kind.Target, error) {
			return kind.Target{}, nil
		}}}})
	s.kinds, s.revision = append(s.kinds, core.Kinds...), 2
	type operation struct {
		OperationID string                       `json:"operationId"`
		Action      string                       `json:"x-kubernetes-action"`
		Kind        metav1.GroupVersionKind      `json:"x-kubernetes-group-version-kind"`
		Tags        []string                     `json:"tags"`
		Parameters  []struct{ Name, Ref string } `json:"parameters"`
		Responses   map[string]map[string]any    `json:"responses"`
	}
	var doc struct {
		Paths map[string]struct{ Get operation }
	}
	read := func(path string) {
		code, _, body := get(t, server, path)
		doc.Paths = nil
		if err := json.Unmarshal(body, &doc); code != 200 || err != nil {
			t.Fatalf("%s: %d %v", path, code, err)
		}
	}
	for path, want := range map[string]string{
		"/openapi/v3/api": "/api/ getCoreAPIVersions core", "/openapi/v3/apis": "/apis/ getAPIVersions apis",
		"/openapi/v3/apis/apps": "/apis/apps/ getAppsAPIGroup apps", "/openapi/v3/version": "/version/ getCodeVersion version",
		"/openapi/v3/openid/v1/jwks":                   "/openid/v1/jwks/ getServiceAccountIssuerOpenIDKeyset openid",
		"/openapi/v3/.well-known/openid-configuration": "/.well-known/openid-configuration/ getServiceAccountIssuerOpenIDConfiguration WellKnown",
	} {
		read(path)
		for at, p := range doc.Paths {
			if got := at + " " + p.Get.OperationID + " " + strings.Join(p.Get.Tags, ","); got != want || len(doc.Paths) != 1 {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	}
	read("/openapi/v3/api/v1")
	for path, want := range map[string]string{
		"/api/v1/watch/pods":                                          "watchCoreV1PodListForAllNamespaces watchlist Pod",
		"/api/v1/watch/namespaces/{namespace}/pods":                   "watchCoreV1NamespacedPodList watchlist Pod",
		"/api/v1/watch/namespaces/{namespace}/pods/{name}":            "watchCoreV1NamespacedPod watch Pod",
		"/api/v1/watch/nodes/{name}":                                  "watchCoreV1Node watch Node",
		"/api/v1/namespaces/{namespace}/services/{name}/proxy/{path}": "connectCoreV1GetNamespacedServiceProxyWithPath connect ServiceProxyOptions",
	} {
		got := doc.Paths[path].Get
		if line := got.OperationID + " " + got.Action + " " + got.Kind.Kind; line != want {
			t.Errorf("%s: %s, want %s", path, line, want)
		}
	}
	if got := doc.Paths["/api/v1/namespaces/{namespace}/services/{name}/proxy"].Get.Parameters; len(got) != 1 || got[0].Name != "path" {
		t.Errorf("the parameters of a proxy: %v", got)
	}
	read("/openapi/v2")
	for _, path := range []string{"/api/", "/apis/", "/apis/apps/", "/version/", "/api/v1/watch/pods"} {
		if _, ok := doc.Paths[path]; !ok {
			t.Errorf("version 2 does not have %s", path)
		}
	}
}

func TestKubectlExplain(t *testing.T) {
	s, server := serve(t)
	s.kinds, s.revision = append(s.kinds, widget()), 2
	for _, c := range []struct {
		gvr  schema.GroupVersionResource
		path []string
		want []string
	}{
		{appsv1.SchemeGroupVersion.WithResource("deployments"), nil, []string{"GROUP:      apps", "KIND:       Deployment", "spec\t<DeploymentSpec>"}},
		{appsv1.SchemeGroupVersion.WithResource("deployments"), []string{"spec", "template", "spec", "containers", "image"}, []string{"FIELD: image <string>", "Container image name"}},
		{corev1.SchemeGroupVersion.WithResource("pods"), []string{"spec", "containers"}, []string{"FIELD: containers <[]Container>", "name\t<string> -required-"}},
		{corev1.SchemeGroupVersion.WithResource("pods"), []string{"spec", "containers", "ports", "hostPort"}, []string{"FIELD: hostPort <integer>"}},
		{schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, []string{"color"}, []string{"FIELD: color <string>", "What it is painted."}},
	} {
		var out bytes.Buffer
		if err := explain.PrintModelDescription(c.path, &out, client(t, server).OpenAPIV3(), c.gvr, false, "plaintext"); err != nil {
			t.Errorf("explain %s %v: %v", c.gvr, c.path, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("explain %s %v lacks %q:\n%s", c.gvr, c.path, want, out.String())
			}
		}
	}
}

func TestFieldValidationIsAdvertised(t *testing.T) {
	_, server := serve(t)
	root := openapi3.NewRoot(client(t, server).OpenAPIV3())
	v3 := resource.NewQueryParamVerifierV3(nil, client(t, server).OpenAPIV3(), resource.QueryParamFieldValidation)
	v2 := resource.NewQueryParamVerifier(nil, client(t, server), resource.QueryParamFieldValidation)
	for _, gvk := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Pod"), appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Node")} {
		if err := v3.HasSupport(gvk); err != nil {
			t.Errorf("v3, %s: %v", gvk, err)
		}
		if err := v2.HasSupport(gvk); err != nil {
			t.Errorf("v2, %s: %v", gvk, err)
		}
	}
	doc, err := root.GVSpec(appsv1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	scale := doc.Paths.Paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]
	if scale == nil || scale.Patch == nil || scale.Patch.OperationId != "patchAppsV1NamespacedDeploymentScale" {
		t.Errorf("scale of deployments: %+v", scale)
	}
}

// TestKubectlPatchesByVersion2 reads what kubectl's strategic merge patch needs from the protobuf form.
func TestKubectlPatchesByVersion2(t *testing.T) {
	_, server := serve(t)
	doc, err := client(t, server).OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	resources, err := openapiutil.NewOpenAPIData(doc)
	if err != nil {
		t.Fatal(err)
	}
	s := resources.LookupResource(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if s == nil {
		t.Fatal("no schema for Deployment")
	}
	if got := s.GetPath().String(); !strings.Contains(got, "io.k8s.api.apps.v1.Deployment") {
		t.Errorf("the schema of Deployment is at %s", got)
	}
}

// TestServerSideApplyTypes reads lists and maps as client-go's apply does, from the documents alone.
func TestServerSideApplyTypes(t *testing.T) {
	_, server := serve(t)
	converter, err := openapiclient.NewTypeConverter(client(t, server).OpenAPIV3(), false)
	if err != nil {
		t.Fatal(err)
	}
	pod := func(image string) *corev1.Pod {
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: image}, {Name: "b"}}}}
	}
	before, err := converter.ObjectToTyped(pod("old"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := converter.ObjectToTyped(pod("new"))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := before.Compare(after)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := changes.Modified.String(), `.spec.containers[name="a"].image`; got != want {
		t.Errorf("modified %s, want %s", got, want)
	}
}

func TestSchemaOfAPod(t *testing.T) {
	_, server := serve(t)
	_, _, body := get(t, server, "/openapi/v3/api/v1")
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Required   []string
				Properties map[string]map[string]any
				Kinds      []map[string]string `json:"x-kubernetes-group-version-kind"`
			}
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	pod, podSpec := doc.Components.Schemas["io.k8s.api.core.v1.Pod"], doc.Components.Schemas["io.k8s.api.core.v1.PodSpec"]
	if diff := cmp.Diff([]map[string]string{{"group": "", "version": "v1", "kind": "Pod"}}, pod.Kinds); diff != "" {
		t.Errorf("kind (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"containers"}, podSpec.Required); diff != "" {
		t.Errorf("required (-want +got):\n%s", diff)
	}
	containers := podSpec.Properties["containers"]
	delete(containers, "description")
	want := map[string]any{
		"type": "array", "items": map[string]any{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
		"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"name"},
		"x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge",
	}
	if diff := cmp.Diff(want, containers); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	if got := podSpec.Properties["nodeSelector"]["x-kubernetes-map-type"]; got != "atomic" {
		t.Errorf("nodeSelector is merged as %v", got)
	}
}

func TestReferencesAreDefined(t *testing.T) {
	s, server := serve(t)
	s.kinds, s.revision = append(s.kinds, widget()), 2
	for path, prefix := range map[string]string{
		"/openapi/v2": "#/definitions/", "/openapi/v3/api/v1": "#/components/schemas/",
		"/openapi/v3/apis/apps/v1": "#/components/schemas/", "/openapi/v3/apis/example.com/v1": "#/components/schemas/",
	} {
		_, _, body := get(t, server, path)
		var doc map[string]any
		if err := json.Unmarshal(body, &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		defined := doc["definitions"]
		if defined == nil {
			defined = doc["components"].(map[string]any)["schemas"]
		}
		walk(doc, func(ref string) {
			if name, ok := strings.CutPrefix(ref, prefix); ok {
				if _, ok := defined.(map[string]any)[name]; !ok {
					t.Errorf("%s refers to %s, which it doesn't define", path, name)
				}
			} else if name, ok := strings.CutPrefix(ref, "#/parameters/"); !ok || doc["parameters"].(map[string]any)[name] == nil {
				t.Errorf("%s refers to %s", path, ref)
			}
		})
	}
}

func walk(value any, visit func(ref string)) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if ref, ok := inner.(string); ok && key == "$ref" {
				visit(ref)
				continue
			}
			walk(inner, visit)
		}
	case []any:
		for _, inner := range v {
			walk(inner, visit)
		}
	}
}

func TestDocumentsAreKept(t *testing.T) {
	s, server := serve(t)
	paths := func() map[string]string {
		_, _, body := get(t, server, "/openapi/v3")
		var index struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		if err := json.Unmarshal(body, &index); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for path, entry := range index.Paths {
			out[path] = entry.ServerRelativeURL
		}
		return out
	}
	before := paths()
	status, header, _ := get(t, server, before["api/v1"])
	if status != 200 || !strings.Contains(header.Get("Cache-Control"), "immutable") || header.Get("ETag") == "" {
		t.Errorf("with its hash: %d, %v", status, header)
	}
	if status, _, body := get(t, server, "/openapi/v3/api/v1", "If-None-Match", header.Get("ETag")); status != 304 || len(body) > 0 {
		t.Errorf("unchanged: %d, %d bytes", status, len(body))
	}
	s.kinds, s.revision = append(s.kinds, widget()), 2
	after := paths()
	if after["apis/example.com/v1"] == "" || after["api/v1"] != before["api/v1"] {
		t.Errorf("a new kind changes %v to %v", before, after)
	}
	s.kinds, s.revision = s.kinds[1:], 3 // pods go
	if status, header, _ := get(t, server, before["api/v1"]); status != 301 || header.Get("Location") != paths()["api/v1"] {
		t.Errorf("an old hash: %d to %s, want 301 to %s", status, header.Get("Location"), paths()["api/v1"])
	}
}

func TestNegotiation(t *testing.T) {
	_, server := serve(t)
	for _, c := range []struct {
		path, accept, want string
		status             int
	}{
		{"/openapi/v2", "", "application/json", 200},
		{"/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", 200},
		{"/openapi/v2", "text/html", "text/plain; charset=utf-8", 406},
		{"/openapi/v3/apis/apps/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", 200},
		{"/openapi/v3/apis/apps/v1", "*/*", "application/json", 200},
		{"/openapi/v3/apis/apps/v2", "", "text/plain; charset=utf-8", 404},
		{"/openapi/v4", "", "text/plain; charset=utf-8", 404},
	} {
		status, header, _ := get(t, server, c.path, "Accept", c.accept)
		if status != c.status || header.Get("Content-Type") != c.want {
			t.Errorf("%s, Accept %q: %d %q, want %d %q", c.path, c.accept, status, header.Get("Content-Type"), c.status, c.want)
		}
	}
	_, plain, body := get(t, server, "/openapi/v2")
	_, packed, small := get(t, server, "/openapi/v2", "Accept-Encoding", "gzip")
	if plain.Get("Content-Encoding") != "" || packed.Get("Content-Encoding") != "gzip" || len(small) >= len(body)/4 {
		t.Errorf("%d bytes plain, %d packed as %q", len(body), len(small), packed.Get("Content-Encoding"))
	}
}
