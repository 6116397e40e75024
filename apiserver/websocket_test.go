package apiserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// dial opens a watch as a browser does.
func (h *harness) dial(path string, protocols ...string) *websocket.Conn {
	h.t.Helper()
	config := must(websocket.NewConfig("ws"+strings.TrimPrefix(h.http.URL, "http")+path, "http://page.example.com"))
	config.Protocol = protocols
	ws, err := websocket.DialConfig(config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { ws.Close() })
	if err := ws.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		h.t.Fatal(err)
	}
	return ws
}

func TestWatchOverWebSocket(t *testing.T) {
	h := start(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	must(c.Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	ws := h.dial("/api/v1/namespaces/ns/configmaps?watch=1", "something", "else")
	read := func() (string, string) {
		var text string
		if err := websocket.Message.Receive(ws, &text); err != nil {
			t.Fatal(err)
		}
		var e metav1.WatchEvent
		var cm corev1.ConfigMap
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if err := json.Unmarshal(e.Object.Raw, &cm); err != nil || cm.Kind != "ConfigMap" {
			t.Fatalf("%v: %s", err, e.Object.Raw)
		}
		return e.Type, cm.Name
	}
	if typ, name := read(); typ != "ADDED" || name != "a" {
		t.Fatal(typ, name)
	}
	must(c.Create(within(t), configMap("b", nil), metav1.CreateOptions{}))
	if typ, name := read(); typ != "ADDED" || name != "b" {
		t.Fatal(typ, name)
	}
	if got := ws.Config().Protocol; len(got) != 1 || got[0] != "something" {
		t.Errorf("protocols %v", got)
	}
}

// A protobuf event is one binary message: a WatchEvent without the length that other streams put before it.
func TestWatchOverWebSocketInProtobuf(t *testing.T) {
	h := start(t)
	must(h.client().CoreV1().ConfigMaps("ns").Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	config := must(websocket.NewConfig("ws"+strings.TrimPrefix(h.http.URL, "http")+"/api/v1/configmaps?watch=1", "http://page.example.com"))
	config.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	ws := must(websocket.DialConfig(config))
	defer ws.Close()
	var data []byte
	if err := websocket.Message.Receive(ws, &data); err != nil {
		t.Fatal(err)
	}
	var e metav1.WatchEvent
	var u runtime.Unknown
	if err := e.Unmarshal(data); err != nil || e.Type != "ADDED" {
		t.Fatal(e.Type, err)
	}
	if err := u.Unmarshal(e.Object.Raw[4:]); err != nil || u.Kind != "ConfigMap" {
		t.Fatal(u.Kind, err)
	}
}

// A client that goes ends its watch, and the server's end ends the client's.
func TestWebSocketsEnd(t *testing.T) {
	h := start(t)
	ws := h.dial("/api/v1/configmaps?watch=1")
	h.server.Drain()
	var text string
	if err := websocket.Message.Receive(ws, &text); err == nil {
		t.Fatalf("after the end came %q", text)
	}
	other := start(t)
	ws = other.dial("/api/v1/configmaps?watch=1")
	ws.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for open := -1.0; open != 0; {
		if ctx.Err() != nil {
			t.Fatal("the watch outlives its client")
		}
		open = gauge(t, other, "apiserver_longrunning_requests")
	}
}

// gauge sums a metric's values.
func gauge(t *testing.T, h *harness, name string) float64 {
	t.Helper()
	sum := 0.0
	for _, f := range must(h.server.Metrics().Gather()) {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue()
		}
	}
	return sum
}
