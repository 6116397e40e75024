package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/store/mem"
)

func benchmarked(b *testing.B) *harness {
	b.ReportAllocs()
	return start(b, func(c *apiserverConfig) { c.Store = mem.New(mem.Config{}) })
}

func bigPod(i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i), Namespace: "ns", Labels: map[string]string{"app": "shop", "tier": "front"}}}
	for c := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", c), Image: "registry.example.com/shop/front:1.2.3",
			Env:   []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
			Ports: []corev1.ContainerPort{{ContainerPort: 80}}})
	}
	return p
}

// send runs a request through the whole chain but the network.
func send(b testing.TB, h http.Handler, method, path string, body []byte, accept string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	req.RemoteAddr = "127.0.0.1:1"
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	if rec.Code >= 300 {
		b.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
	return rec
}

func BenchmarkGet(b *testing.B) {
	h := benchmarked(b)
	must(h.local().Create(b.Context(), podRef(""), bigPod(1), metav1.CreateOptions{}))
	handler := h.server.Handler()
	for b.Loop() {
		send(b, handler, "GET", "/api/v1/namespaces/ns/pods/pod-00001", nil, "application/json")
	}
}

func BenchmarkList5000(b *testing.B) {
	for name, accept := range map[string]string{"json": "application/json", "protobuf": "application/vnd.kubernetes.protobuf", "table": table} {
		b.Run(name, func(b *testing.B) {
			h := benchmarked(b)
			l := h.local()
			for i := range 5000 {
				must(l.Create(b.Context(), podRef(""), bigPod(i), metav1.CreateOptions{}))
			}
			handler := h.server.Handler()
			send(b, handler, "GET", "/api/v1/pods", nil, accept)
			n := 0
			for b.Loop() {
				n = send(b, handler, "GET", "/api/v1/pods", nil, accept).Body.Len()
			}
			b.ReportMetric(float64(n), "bytes")
		})
	}
}

func BenchmarkCreateConfigMap(b *testing.B) {
	h := benchmarked(b)
	handler := h.server.Handler()
	i := 0
	for b.Loop() {
		i++
		body := must(json.Marshal(configMap(fmt.Sprint("c", i), map[string]string{"key": "value"})))
		send(b, handler, "POST", "/api/v1/namespaces/ns/configmaps", body, "application/json")
	}
}

func BenchmarkCreatePod(b *testing.B) {
	h := benchmarked(b)
	handler := h.server.Handler()
	i := 0
	for b.Loop() {
		i++
		send(b, handler, "POST", "/api/v1/namespaces/ns/pods", must(json.Marshal(bigPod(i))), "application/json")
	}
}

func BenchmarkLocalUpdateStatus(b *testing.B) {
	h := benchmarked(b)
	l := h.local()
	p := must(l.Create(b.Context(), podRef(""), bigPod(1), metav1.CreateOptions{})).(*corev1.Pod)
	ref := podRef("pod-00001")
	ref.Subresource = "status"
	i := 0
	for b.Loop() {
		i++
		next := p.DeepCopy()
		next.Status.Message = fmt.Sprint(i)
		p = must(l.Update(b.Context(), ref, next, metav1.UpdateOptions{})).(*corev1.Pod)
	}
}

func BenchmarkPatchConfigMap(b *testing.B) {
	h := benchmarked(b)
	l := h.local()
	must(l.Create(b.Context(), configMaps(), configMap("a", nil), metav1.CreateOptions{}))
	ref := configMaps()
	ref.Name = "a"
	i := 0
	for b.Loop() {
		i++
		must(l.Patch(b.Context(), ref, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i), metav1.PatchOptions{}))
	}
}

// BenchmarkWatchFanout writes one object that 100 in-process and 100 HTTP watchers see.
func BenchmarkWatchFanout(b *testing.B) {
	h := benchmarked(b)
	l := h.local()
	must(l.Create(b.Context(), configMaps(), configMap("a", nil), metav1.CreateOptions{}))
	const each = 100
	var seen sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var watches []watch.Interface
	for range each {
		watches = append(watches, must(l.Watch(ctx, configMaps(), metav1.ListOptions{ResourceVersion: "1"})),
			must(h.jsonClient().CoreV1().ConfigMaps("ns").Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})))
	}
	for _, w := range watches {
		go func() {
			for e := range w.ResultChan() {
				if e.Type == watch.Modified { // client-go makes an error of the end
					seen.Done()
				}
			}
		}()
	}
	ref := configMaps()
	ref.Name = "a"
	i := 0
	for b.Loop() {
		i++
		seen.Add(len(watches))
		must(l.Update(ctx, ref, configMap("a", map[string]string{"n": fmt.Sprint(i)}), metav1.UpdateOptions{}))
		seen.Wait()
	}
}
