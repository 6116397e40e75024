package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/kind"
)

const table = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"

func TestTables(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().Pods("ns")
	must(c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}, metav1.CreateOptions{}))
	get := func(path string) metav1.Table {
		t.Helper()
		a := h.do("GET", path, "", "Accept", table)
		var tbl metav1.Table
		if err := yaml.Unmarshal([]byte(a.body), &tbl); err != nil || tbl.Kind != "Table" || tbl.APIVersion != "meta.k8s.io/v1" {
			t.Fatalf("%v\n%s", err, a.body)
		}
		return tbl
	}
	list := get("/api/v1/namespaces/ns/pods")
	var cols []string
	for _, c := range list.ColumnDefinitions {
		cols = append(cols, fmt.Sprintf("%s:%d", c.Name, c.Priority))
	}
	if d := cmp.Diff([]string{"Name:0", "Status:0", "Age:0", "Node:1"}, cols); d != "" {
		t.Errorf("columns:\n%s", d)
	}
	if len(list.Rows) != 1 || fmt.Sprint(list.Rows[0].Cells[0], list.Rows[0].Cells[3]) != "pn1" || list.ResourceVersion == "" {
		t.Errorf("rows %+v", list)
	}
	if raw := string(list.Rows[0].Object.Raw); !strings.Contains(raw, "PartialObjectMetadata") || strings.Contains(raw, "nodeName\":\"n1") {
		t.Errorf("a row carries %s", raw)
	}
	if raw := string(get("/api/v1/namespaces/ns/pods/p?includeObject=Object").Rows[0].Object.Raw); !strings.Contains(raw, `"nodeName":"n1"`) {
		t.Errorf("a row with its object carries %s", raw)
	}
	if raw := string(get("/api/v1/namespaces/ns/pods?includeObject=None").Rows[0].Object.Raw); raw != "" && raw != "null" {
		t.Errorf("a bare row carries %s", raw)
	}
	w := h.do("GET", "/api/v1/namespaces/ns/pods?watch=1&timeoutSeconds=1", "", "Accept", table)
	if !strings.HasPrefix(w.body, `{"type":"ADDED","object":{"kind":"Table"`) {
		t.Errorf("a table watch: %s", w.body)
	}
}

func TestMetadataOnly(t *testing.T) {
	h := start(t)
	ctx := within(t)
	must(h.client().CoreV1().ConfigMaps("ns").Create(ctx, configMap("a", map[string]string{"secret": "x"}), metav1.CreateOptions{}))
	m := h.metadata().Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("ns")
	one, err := m.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || one.Name != "a" || one.UID == "" {
		t.Fatal(one, err)
	}
	list, err := m.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || cmp.Diff(one.ObjectMeta, list.Items[0].ObjectMeta) != "" || list.ResourceVersion == "" {
		t.Fatal(list, err)
	}
	w := must(m.Watch(ctx, metav1.ListOptions{}))
	defer w.Stop()
	if got := expect(t, w, "ADDED a"); got.GetUID() != one.UID {
		t.Fatal(got)
	}
	if a := h.do("GET", "/api/v1/namespaces/ns/configmaps", "", "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"); strings.Contains(a.body, `"data":{"secret`) ||
		!strings.Contains(a.body, `"kind":"PartialObjectMetadataList"`) {
		t.Errorf("answered %s", a.body)
	}
}

func TestYAML(t *testing.T) {
	h := start(t)
	a := h.do("POST", "/api/v1/namespaces/ns/configmaps", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yy\ndata:\n  k: v\n",
		"Content-Type", "application/yaml", "Accept", "application/yaml")
	var cm corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(a.body), &cm); err != nil || a.code != 201 || cm.Data["k"] != "v" || a.header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("%v %+v", err, a)
	}
	if l := h.do("GET", "/api/v1/namespaces/ns/configmaps", "", "Accept", "application/yaml"); !strings.Contains(l.body, "kind: ConfigMapList") {
		t.Fatal(l.body)
	}
}

func TestNegotiation(t *testing.T) {
	h := start(t)
	h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"a"}}`)
	const one = "/api/v1/namespaces/ns/configmaps/a"
	if a := h.do("GET", one, "", "Accept", "text/html"); a.code != 406 || !strings.Contains(a.body, "only the following media types are accepted") {
		t.Errorf("text/html: %+v", a)
	}
	if a := h.do("GET", one, "", "Accept", "text/html, */*"); a.code != 200 || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("text/html or anything: %+v", a)
	}
	if a := h.do("GET", one, "", "Accept", "application/json;q=0.5, application/yaml"); a.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("a preference for YAML: %+v", a)
	}
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps", `<x/>`, "Content-Type", "text/xml"); a.code != 415 || !strings.Contains(a.body, "UnsupportedMediaType") {
		t.Errorf("XML: %+v", a)
	}
	if a := h.do("GET", one, "", "User-Agent", "curl/8"); !strings.Contains(a.body, "\n  \"kind\": \"ConfigMap\"") {
		t.Errorf("curl: %s", a.body)
	}
	if a := h.do("HEAD", one, ""); a.code != 200 || a.body != "" {
		t.Errorf("HEAD: %+v", a)
	}
	proto := h.do("GET", one, "", "Accept", "application/vnd.kubernetes.protobuf")
	if proto.header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" || !strings.HasPrefix(proto.body, "k8s\x00") {
		t.Errorf("protobuf: %+v", proto.header)
	}
	if a := h.do("GET", "/api/v1/namespaces/ns/configmaps/none", "", "Accept", "application/vnd.kubernetes.protobuf"); a.code != 404 || !strings.HasPrefix(a.body, "k8s\x00") {
		t.Errorf("an error in protobuf: %+v", a)
	}
}

// The bytes of a list are those of its items: every client must read the same from them in each form.
func TestListFormsAgree(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().AppsV1().Deployments("ns")
	for i := range 3 {
		must(c.Create(ctx, deployment(fmt.Sprint("d", i), int32(i)), metav1.CreateOptions{}))
	}
	proto := must(c.List(ctx, metav1.ListOptions{}))
	json := must(h.jsonClient().AppsV1().Deployments("ns").List(ctx, metav1.ListOptions{}))
	if d := cmp.Diff(json, proto); d != "" {
		t.Errorf("JSON and protobuf differ:\n%s", d)
	}
	dyn := must(h.dynamic().Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).List(ctx, metav1.ListOptions{}))
	if len(dyn.Items) != 3 || dyn.GetKind() != "DeploymentList" || dyn.Items[0].GetKind() != "Deployment" {
		t.Errorf("dynamic: %+v", dyn)
	}
	if empty := h.do("GET", "/apis/apps/v1/namespaces/none/deployments", ""); !strings.Contains(empty.body, `"items":[]`) {
		t.Errorf("an empty list: %s", empty.body)
	}
	if strings.Contains(h.do("GET", "/apis/apps/v1/deployments", "").body, `{"kind":"Deployment",`) {
		t.Error("the items of a typed list carry type information")
	}
}

func TestDynamicClientWrites(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.dynamic().Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace("ns")
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}}}
	made, err := c.Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(made.Object, "spec", "replicas"); n != 1 {
		t.Errorf("replicas %d", n)
	}
	if err := unstructured.SetNestedField(made.Object, int64(4), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	applied, err := c.Apply(ctx, "d", &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "d", "labels": map[string]any{"x": "y"}}}}, metav1.ApplyOptions{FieldManager: "m"})
	if err != nil || applied.GetLabels()["x"] != "y" {
		t.Fatal(applied, err)
	}
}

func TestBigAnswersAreCompressed(t *testing.T) {
	h := start(t)
	ctx := within(t)
	for i := range 3 {
		must(h.client().CoreV1().ConfigMaps("ns").Create(ctx, configMap(fmt.Sprint("c", i), map[string]string{"x": strings.Repeat("x", 100<<10)}), metav1.CreateOptions{}))
	}
	ask := func(from string) *http.Response {
		rec := &response{header: http.Header{}}
		req := must(http.NewRequest("GET", "/api/v1/configmaps", nil))
		req.RemoteAddr = from
		req.Header.Set("Accept-Encoding", "gzip")
		h.server.Handler().ServeHTTP(rec, req)
		return &http.Response{Header: rec.header, ContentLength: int64(rec.n)}
	}
	if r := ask("192.0.2.1:5"); r.Header.Get("Content-Encoding") != "gzip" || r.ContentLength > 100<<10 {
		t.Errorf("over a network: %q, %d bytes", r.Header.Get("Content-Encoding"), r.ContentLength)
	}
	if r := ask("127.0.0.1:5"); r.Header.Get("Content-Encoding") != "" {
		t.Error("over loopback the answer was compressed")
	}
}

// response counts what is written.
type response struct {
	header http.Header
	code   int
	n      int
}

func (r *response) Header() http.Header         { return r.header }
func (r *response) Write(p []byte) (int, error) { r.n += len(p); return len(p), nil }
func (r *response) WriteHeader(code int)        { r.code = code }

// A kind whose own columns show the name has no other one.
func TestTablesWithTheirOwnName(t *testing.T) {
	classes := &kind.Group{Name: "storage.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{storagev1.AddToScheme}}
	kind.Add(classes, kind.Def[storagev1.StorageClass]{Names: kind.Names{Plural: "storageclasses"}, Scope: kind.Cluster, NoName: true,
		Columns: []kind.Column[storagev1.StorageClass]{{Name: "Name", Format: "name", Value: func(c *storagev1.StorageClass, _ time.Time) any { return c.Name + ` <"default">` }}}})
	h := start(t, func(c *apiserverConfig) { c.Groups = append(c.Groups, classes) })
	must(h.client().StorageV1().StorageClasses().Create(within(t), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "p"}, metav1.CreateOptions{}))
	a := h.do("GET", "/apis/storage.k8s.io/v1/storageclasses", "", "Accept", table)
	var tbl metav1.Table
	if err := json.Unmarshal([]byte(a.body), &tbl); err != nil {
		t.Fatal(err)
	}
	if len(tbl.ColumnDefinitions) != 2 || tbl.ColumnDefinitions[0].Name != "Name" || len(tbl.Rows[0].Cells) != 2 || tbl.Rows[0].Cells[0] != `fast <"default">` {
		t.Fatalf("%+v %+v", tbl.ColumnDefinitions, tbl.Rows[0].Cells)
	}
}

// Tables are put together by hand: they must be what encoding/json makes of the type, whatever the cells hold.
func TestTablesAreEncodedTables(t *testing.T) {
	group := &kind.Group{Versions: []string{"v1"}, AddToScheme: groups()[0].AddToScheme}
	cell := func(name string, priority int32, value any) kind.Column[corev1.ConfigMap] {
		return kind.Column[corev1.ConfigMap]{Name: name, Priority: priority, Value: func(*corev1.ConfigMap, time.Time) any { return value }}
	}
	kind.Add(group, kind.Def[corev1.ConfigMap]{Names: kind.Names{Plural: "configmaps"}, Columns: []kind.Column[corev1.ConfigMap]{
		cell("wide", 1, int32(-3)), cell("a", 0, "é \x00\u2028\\ & <none>"), cell("b", 0, true), cell("c", 0, int64(1)<<40), cell("d", 0, nil), cell("e", 0, 1.5), cell("f", 1, 7)}})
	h := start(t, func(c *apiserverConfig) { c.Groups = []*kind.Group{group} })
	for i := range 3 {
		must(h.client().CoreV1().ConfigMaps("ns").Create(within(t), configMap(fmt.Sprint("c", i), map[string]string{"x": "y"}), metav1.CreateOptions{}))
	}
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/configmaps?limit=2", "/api/v1/configmaps?includeObject=None", "/api/v1/configmaps?includeObject=Object", "/api/v1/namespaces/none/configmaps"} {
		a := h.do("GET", path, "", "Accept", table)
		var tbl metav1.Table
		d := json.NewDecoder(strings.NewReader(a.body))
		d.UseNumber()
		d.DisallowUnknownFields()
		if err := d.Decode(&tbl); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, a.body)
		}
		if d := cmp.Diff(string(must(json.Marshal(tbl)))+"\n", a.body); d != "" {
			t.Errorf("%s:\n%s", path, d)
		}
		for _, r := range tbl.Rows {
			if len(r.Cells) != len(tbl.ColumnDefinitions) {
				t.Errorf("%s: %d cells for %d columns", path, len(r.Cells), len(tbl.ColumnDefinitions))
			}
		}
	}
	y := h.do("GET", "/api/v1/configmaps", "", "Accept", "application/yaml;as=Table;g=meta.k8s.io;v=v1")
	var tbl metav1.Table
	if err := yaml.Unmarshal([]byte(y.body), &tbl); err != nil || len(tbl.Rows) != 3 || y.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("YAML: %v %s", err, y.body)
	}
}

// What is asked for as v1beta1 says so, down to each item.
func TestMetadataInItsVersion(t *testing.T) {
	h := start(t, func(c *apiserverConfig) { c.Limits.Bookmarks = 5 * time.Millisecond })
	must(h.client().CoreV1().ConfigMaps("ns").Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	const all = "/api/v1/namespaces/ns/configmaps"
	for _, version := range []string{"v1beta1", "v1"} {
		other := map[string]string{"v1": "meta.k8s.io/v1beta1", "v1beta1": `meta.k8s.io/v1"`}[version]
		for path, as := range map[string]string{all: "PartialObjectMetadataList", all + "/a": "PartialObjectMetadata",
			all + "?watch=1&timeoutSeconds=1&allowWatchBookmarks=1": "PartialObjectMetadata", all + "?limit=1": "Table"} {
			a := h.do("GET", path, "", "Accept", "application/json;as="+as+";g=meta.k8s.io;v="+version)
			if !strings.Contains(a.body, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`+version+`"`) || strings.Contains(a.body, other) || strings.Contains(path, "watch") && !strings.Contains(a.body, "BOOKMARK") {
				t.Errorf("%s as %s in %s: %s", path, as, version, a.body)
			}
		}
		p := h.do("GET", all+"/a", "", "Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v="+version)
		var u runtime.Unknown
		if err := u.Unmarshal([]byte(p.body[4:])); err != nil || u.APIVersion != "meta.k8s.io/"+version {
			t.Errorf("protobuf in %s: %v %q", version, err, u.APIVersion)
		}
	}
}
