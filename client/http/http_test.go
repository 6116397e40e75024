package http_test

import (
	"context"
	"encoding/json"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/http"
	"github.com/yare-project/yare/internal/resource"
)

// script is a server that answers each request by its method and URI, in JSON, and remembers what was asked.
type script struct {
	mu      sync.Mutex
	answers map[string]any
	asked   []string
	bodies  []string
	types   []string
}

func (s *script) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := r.Method + " " + r.URL.RequestURI()
	body, _ := io.ReadAll(r.Body)
	s.asked, s.bodies, s.types = append(s.asked, what), append(s.bodies, string(body)), append(s.types, r.Header.Get("Content-Type"))
	w.Header().Set("Content-Type", "application/json")
	answer, ok := s.answers[what]
	if !ok {
		w.WriteHeader(404)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 404, Reason: metav1.StatusReasonNotFound, Message: "no " + what}
	}
	if text, ok := answer.(string); ok {
		io.WriteString(w, text)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func serve(t *testing.T, answers map[string]any) (*script, *http.Transport) {
	t.Helper()
	s := &script{answers: answers}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	tr, err := http.New(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	return s, tr
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: "7"}}
}

var _ client.Transport = (*http.Transport)(nil)

func TestTypedRequests(t *testing.T) {
	ctx := context.Background()
	s, tr := serve(t, map[string]any{
		"GET /api/v1/namespaces/n/pods/a": pod("a"),
		"GET /api/v1/namespaces/n/pods?labelSelector=x%3Dy&limit=2": corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more"}, Items: []corev1.Pod{*pod("a"), *pod("b")}},
		"POST /api/v1/namespaces/n/pods":           pod("a"),
		"POST /api/v1/namespaces/n/pods/a/binding": metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"},
		"PUT /api/v1/namespaces/n/pods/a/status":   pod("a"),
		"PATCH /api/v1/namespaces/n/pods/a":        pod("a"),
		"DELETE /api/v1/namespaces/n/pods/a":       pod("a"),
		"GET /api/v1/nodes/x":                      corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}},
	})
	api := client.Of[*corev1.Pod](tr)
	if p, err := api.Get(ctx, "n", "a"); err != nil || p.Name != "a" {
		t.Fatalf("Get: %v, %v", p, err)
	}
	ref := resource.Ref{GroupVersionResource: client.ResourceOf[*corev1.Pod](), Namespace: "n"}
	objects, info, err := tr.List(ctx, ref, metav1.ListOptions{LabelSelector: "x=y", Limit: 2})
	if err != nil || len(objects) != 2 || info.ResourceVersion != "9" || info.Continue != "more" {
		t.Fatalf("List: %d objects, %+v, %v", len(objects), info, err)
	}
	if _, err := api.Create(ctx, pod("a")); err != nil {
		t.Error(err)
	}
	ref.Name, ref.Subresource = "a", "binding"
	if _, err := tr.Create(ctx, ref, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := api.UpdateStatus(ctx, pod("a")); err != nil {
		t.Error(err)
	}
	if _, err := api.Patch(ctx, "n", "a", types.MergePatchType, []byte(`{"x":1}`), ""); err != nil {
		t.Error(err)
	}
	if got := s.types[len(s.types)-1]; got != string(types.MergePatchType) {
		t.Errorf("patch went as %q", got)
	}
	if err := api.Delete(ctx, "n", "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Of[*corev1.Node](tr).Get(ctx, "", "x"); err != nil {
		t.Error(err)
	}
	if _, err := api.Get(ctx, "n", "missing"); !apierrors.IsNotFound(err) {
		t.Errorf("a missing object gave %v, want NotFound", err)
	}
	if !strings.HasPrefix(s.bodies[2], "k8s\x00") {
		t.Errorf("a built-in kind was not sent as protobuf: %q", s.bodies[2])
	}
}

func TestOtherKindsAreUnstructured(t *testing.T) {
	ctx := context.Background()
	widget := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "n"}, "spec": map[string]any{"size": "1"}}
	s, tr := serve(t, map[string]any{
		"GET /apis/example.com/v1/namespaces/n/widgets/w":        widget,
		"PUT /apis/example.com/v1/namespaces/n/widgets/w/status": widget,
		"GET /apis/example.com/v1/widgets":                       map[string]any{"apiVersion": "example.com/v1", "kind": "WidgetList", "metadata": map[string]any{"resourceVersion": "3"}, "items": []any{widget}},
	})
	api := client.OfResource[*unstructured.Unstructured](tr, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	w, err := api.Get(ctx, "n", "w")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(widget["spec"], w.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if _, err := api.UpdateStatus(ctx, w); err != nil {
		t.Error(err)
	}
	if all, err := api.List(ctx, "", metav1.ListOptions{}); err != nil || len(all) != 1 {
		t.Errorf("List: %v, %v; asked %v", all, err, s.asked)
	}
}

func TestWatch(t *testing.T) {
	event := func(kind string, o any) string {
		b, err := json.Marshal(map[string]any{"type": kind, "object": o})
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	_, tr := serve(t, map[string]any{"GET /api/v1/pods?allowWatchBookmarks=true&resourceVersion=5&watch=true": event("ADDED", pod("a")) + event("DELETED", pod("a"))})
	w, err := tr.Watch(context.Background(), resource.Ref{GroupVersionResource: client.ResourceOf[*corev1.Pod]()}, metav1.ListOptions{ResourceVersion: "5", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []string
	for done := false; !done; {
		select {
		case e, open := <-w.ResultChan():
			if done = !open; open {
				got = append(got, string(e.Type)+" "+e.Object.(*corev1.Pod).Name)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the watch did not end; got %v", got)
		}
	}
	if diff := cmp.Diff([]string{"ADDED a", "DELETED a"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
