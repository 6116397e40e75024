package crd_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// hosts keeps one text in v1, hostPort, and two in v2.
const hosts = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hosts.example.com}
spec:
  group: example.com
  names: {plural: hosts, kind: Host, listKind: HostCollection}
  scope: Namespaced
  conversion: CONVERSION
  versions:
  - name: v1
    served: true
    storage: STORE1
    deprecated: true
    additionalPrinterColumns: [{name: HostPort, type: string, jsonPath: .hostPort}]
    schema: {openAPIV3Schema: {type: object, properties: {hostPort: {type: string, maxLength: 20}}}}
  - name: v2
    served: true
    storage: STORE2
    additionalPrinterColumns: [{name: Port, type: string, jsonPath: .port}]
    selectableFields: [{jsonPath: .port}]
    schema: {openAPIV3Schema: {type: object, properties: {host: {type: string}, port: {type: string}}}}
`

func hostsWith(conversion string, stored string) string {
	one, two := "true", "false"
	if stored == "v2" {
		one, two = two, one
	}
	return strings.NewReplacer("CONVERSION", conversion, "STORE1", one, "STORE2", two).Replace(hosts)
}

// webhook converts hosts and counts its calls.
type webhook struct {
	calls, objects atomic.Int32
	broken         atomic.Bool
	conversion     string
}

func startWebhook(t *testing.T) *webhook {
	h := &webhook{}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.broken.Load() {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		review := &apiextensionsv1.ConversionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.calls.Add(1)
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			h.objects.Add(1)
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			convertHost(u, review.Request.DesiredAPIVersion)
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: u})
		}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(srv.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	h.conversion = `{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "` + srv.URL + `", caBundle: ` + ca + `}}}`
	return h
}

func convertHost(u *unstructured.Unstructured, to string) {
	if u.GetAPIVersion() == to {
		return
	}
	if to == "example.com/v2" {
		host, port, _ := strings.Cut(u.Object["hostPort"].(string), ":")
		u.Object["host"], u.Object["port"] = host, port
		delete(u.Object, "hostPort")
	} else {
		u.Object["hostPort"] = u.Object["host"].(string) + ":" + u.Object["port"].(string)
		delete(u.Object, "host")
		delete(u.Object, "port")
	}
	u.SetAPIVersion(to)
}

func host(t *testing.T, name string) *unstructured.Unstructured {
	u := parse(t, `{apiVersion: example.com/v1, kind: Host, hostPort: "h:80"}`)
	u.SetName(name)
	return u
}

func TestVersionsWithoutConversion(t *testing.T) {
	c := start(t)
	c.define(hostsWith("{strategy: None}", "v1"))
	must(c.in("v1", "hosts").Create(ctxOf(t), host(t, "a"), metav1.CreateOptions{}))(t)
	u := must(c.in("v2", "hosts").Get(ctxOf(t), "a", metav1.GetOptions{}))(t)
	if u.GetAPIVersion() != "example.com/v2" || u.Object["hostPort"] != nil {
		t.Fatalf("in v2, whose schema has no hostPort: %v", u.Object)
	}
	l := must(c.in("v2", "hosts").List(ctxOf(t), metav1.ListOptions{}))(t)
	if l.GetKind() != "HostCollection" || l.Items[0].GetAPIVersion() != "example.com/v2" {
		t.Fatalf("listed in v2: %v", l)
	}
	resp := must(http.Get(c.url + "/apis/example.com/v1/namespaces/default/hosts/a"))(t)
	defer resp.Body.Close()
	if got := resp.Header.Get("Warning"); got != `299 - "example.com/v1 Host is deprecated; use example.com/v2 Host"` {
		t.Fatalf("the warning of a deprecated version: %s", got)
	}
	// The stored version changes; what is stored stays as it is and is shown in both.
	d := c.define(hostsWith("{strategy: None}", "v2"))
	if diff := cmp.Diff([]string{"v1", "v2"}, d.Status.StoredVersions); diff != "" {
		t.Fatal(diff)
	}
	u = must(c.in("v1", "hosts").Get(ctxOf(t), "a", metav1.GetOptions{}))(t)
	if u.GetAPIVersion() != "example.com/v1" || u.Object["hostPort"] != "h:80" {
		t.Fatalf("in v1: %v", u.Object)
	}
}

func TestConversionWebhook(t *testing.T) {
	c := start(t)
	h := startWebhook(t)
	c.define(hostsWith(h.conversion, "v1"))
	for _, name := range []string{"a", "b", "c"} {
		must(c.in("v1", "hosts").Create(ctxOf(t), host(t, name), metav1.CreateOptions{}))(t)
	}
	if n := h.calls.Load(); n != 0 {
		t.Fatalf("%d calls where nothing had to be converted", n)
	}
	l := must(c.in("v2", "hosts").List(ctxOf(t), metav1.ListOptions{}))(t)
	if len(l.Items) != 3 || l.Items[0].Object["port"] != "80" || h.calls.Load() != 1 || h.objects.Load() != 3 {
		t.Fatalf("a list took %d calls for %d objects: %v", h.calls.Load(), h.objects.Load(), l.Items)
	}
	u := must(c.in("v2", "hosts").Patch(ctxOf(t), "a", types.MergePatchType, []byte(`{"port":"81"}`), metav1.PatchOptions{}))(t)
	if u.GetAPIVersion() != "example.com/v2" || u.Object["port"] != "81" || u.GetGeneration() != 2 {
		t.Fatalf("written in v2: %v", u.Object)
	}
	if u := must(c.in("v1", "hosts").Get(ctxOf(t), "a", metav1.GetOptions{}))(t); u.Object["hostPort"] != "h:81" {
		t.Fatalf("read in v1: %v", u.Object)
	}
	if l := must(c.in("v2", "hosts").List(ctxOf(t), metav1.ListOptions{FieldSelector: "port=81"}))(t); len(l.Items) != 1 {
		t.Fatalf("selected %d", len(l.Items))
	}
	// What is asked for in one version is checked by its schema.
	if _, err := c.in("v1", "hosts").Patch(ctxOf(t), "a", types.MergePatchType, []byte(`{"hostPort":"a-very-long-name-indeed:80"}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("too long for v1: %v", err)
	}
	h.broken.Store(true)
	if _, err := c.in("v2", "hosts").Get(ctxOf(t), "b", metav1.GetOptions{}); err != nil {
		t.Fatalf("b was converted before: %v", err)
	}
	must(c.in("v1", "hosts").Create(ctxOf(t), host(t, "d"), metav1.CreateOptions{}))(t)
	if _, err := c.in("v2", "hosts").Get(ctxOf(t), "d", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "conversion webhook") {
		t.Fatalf("with a broken webhook: %v", err)
	}
}

// Objects stored in two versions at once, as after an upgrade of an operator.
func TestStoredInTwoVersions(t *testing.T) {
	dir := t.TempDir()
	c := startOn(t, onDisk(t, dir))
	h := startWebhook(t)
	c.define(hostsWith(h.conversion, "v1"))
	must(c.in("v1", "hosts").Create(ctxOf(t), host(t, "old"), metav1.CreateOptions{}))(t)
	c.define(hostsWith(h.conversion, "v2"))
	must(c.in("v1", "hosts").Create(ctxOf(t), host(t, "new"), metav1.CreateOptions{}))(t)
	check := func() {
		t.Helper()
		for version, want := range map[string]map[string]any{"v1": {"hostPort": "h:80"}, "v2": {"host": "h", "port": "80"}} {
			l := must(c.in(version, "hosts").List(ctxOf(t), metav1.ListOptions{}))(t)
			for _, u := range l.Items {
				delete(u.Object, "metadata")
				want["apiVersion"], want["kind"] = "example.com/"+version, "Host"
				if d := cmp.Diff(want, u.Object); d != "" {
					t.Fatalf("in %s: %s", version, d)
				}
			}
			if len(l.Items) != 2 {
				t.Fatalf("%d in %s", len(l.Items), version)
			}
		}
	}
	check()
	c.stop()
	c = startOn(t, onDisk(t, dir))
	check()
	h.broken.Store(true) // what cannot be converted can be deleted
	if err := c.in("v1", "hosts").Delete(ctxOf(t), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.broken.Store(false)
	u := must(c.in("v1", "hosts").Patch(ctxOf(t), "new", types.MergePatchType, []byte(`{"hostPort":"h:82"}`), metav1.PatchOptions{}))(t)
	if u.Object["hostPort"] != "h:82" {
		t.Fatalf("%v", u.Object)
	}
	applied := must(c.in("v2", "hosts").Apply(ctxOf(t), "new", parse(t, `{apiVersion: example.com/v2, kind: Host, metadata: {name: new}, port: "83"}`), metav1.ApplyOptions{FieldManager: "me", Force: true}))(t)
	if applied.Object["port"] != "83" {
		t.Fatalf("%v", applied.Object)
	}
}
