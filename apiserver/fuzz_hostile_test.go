package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime/debug"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/cost"
)

type request struct {
	method, path, body string
	header             []string
}

func (r request) size() int64 {
	n := len(r.path) + len(r.body)
	for _, h := range r.header {
		n += len(h)
	}
	return int64(n)
}

func (r request) build() *http.Request {
	path, query, _ := strings.Cut(r.path, "?")
	req := httptest.NewRequest("POST", "/", strings.NewReader(r.body))
	req.Method = r.method
	req.URL = &url.URL{Path: path, RawQuery: query}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(r.header); i += 2 {
		req.Header.Set(r.header[i], r.header[i+1])
	}
	return req
}

func (r request) send(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	w.Body = nil
	h.ServeHTTP(w, r.build())
	return w
}

func typed(media string) []string { return []string{"Content-Type", media} }

// hostile are requests that make a careless server allocate far more than they are long.
func hostile() map[string]request {
	const maps, cm = "/api/v1/namespaces/ns/configmaps", "/api/v1/namespaces/ns/configmaps/victim"
	const jsonPatch, mergePatch, strategic, apply = "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"
	configMapOf := func(data string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"},"data":` + data + `}`
	}
	many := func(n int, sep string, f func(i int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = f(i)
		}
		return strings.Join(parts, sep)
	}
	laughs := "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, many(9, ",", func(int) string { return fmt.Sprintf("*a%d", i-1) }))
	}
	long := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: victim}\ndata:\n  k: &k " + strings.Repeat("x", 200<<10) + "\n" + many(20000, "\n", func(i int) string { return fmt.Sprintf("  k%d: *k", i) })
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	deep := strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20)
	return map[string]request{
		"nested arrays":           {"POST", maps, configMapOf(`{"k":` + deep + `}`), nil},
		"nested objects":          {"POST", maps, configMapOf(strings.Repeat(`{"a":`, 300<<10) + "1" + strings.Repeat("}", 300<<10)), nil},
		"nested YAML":             {"POST", maps, "a: " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000), typed("application/yaml")},
		"huge number":             {"POST", maps, configMapOf(`{"k":1` + strings.Repeat("0", 1<<20) + `}`), nil},
		"huge exponent":           {"POST", maps, configMapOf(`{"k":1e999999999}`), nil},
		"many small keys":         {"POST", maps, configMapOf("{" + many(20000, ",", func(i int) string { return fmt.Sprintf(`"%x":""`, i) }) + "}"), nil},
		"many unknown fields":     {"POST", maps + "?fieldValidation=Strict", "{" + many(200000, ",", func(i int) string { return fmt.Sprintf(`"%x":0`, i) }) + "}", nil},
		"many unknown, warned":    {"POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"},` + many(100000, ",", func(i int) string { return fmt.Sprintf(`"%x":0`, i) }) + "}", nil},
		"duplicate keys":          {"POST", maps, configMapOf("{" + many(100000, ",", func(int) string { return `"a":""` }) + "}"), nil},
		"YAML laughs":             {"POST", maps, laughs, typed("application/yaml")},
		"YAML laughs, applied":    {"PATCH", cm + "?fieldManager=m", laughs, typed(apply)},
		"YAML long alias":         {"POST", maps, long, typed("application/yaml")},
		"YAML long alias, apply":  {"PATCH", cm + "?fieldManager=m", long, typed(apply)},
		"YAML long alias, delete": {"DELETE", cm, long, typed("application/yaml")},
		"copies that double": {"PATCH", cm, `[{"op":"add","path":"/data/k","value":"` + strings.Repeat("x", 1000) + `"},` +
			many(60, ",", func(i int) string { return fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/c%d"}`, i) }) + `]`, typed(jsonPatch)},
		"ten thousand copies": {"PATCH", cm, `[{"op":"add","path":"/data/k","value":"` + strings.Repeat("x", 100<<10) + `"},` +
			many(9999, ",", func(i int) string { return fmt.Sprintf(`{"op":"copy","from":"/data/k","path":"/data/c%d"}`, i) }) + `]`, typed(jsonPatch)},
		"too many operations": {"PATCH", cm, "[" + many(60000, ",", func(int) string { return `{"op":"test","path":"/a","value":0}` }) + "]", typed(jsonPatch)},
		"far array index":     {"PATCH", cm, `[{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/999999999","value":"x"}]`, typed(jsonPatch)},
		"negative index":      {"PATCH", cm, `[{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"remove","path":"/metadata/finalizers/-9223372036854775808"}]`, typed(jsonPatch)},
		"long pointer":        {"PATCH", cm, `[{"op":"remove","path":"` + strings.Repeat("/a", 1<<20) + `"}]`, typed(jsonPatch)},
		"deep merge patch":    {"PATCH", cm, strings.Repeat(`{"a":`, 300<<10) + "1" + strings.Repeat("}", 300<<10), typed(mergePatch)},
		"strategic lists": {"PATCH", "/api/v1/namespaces/ns/pods/victim", `{"spec":{"containers":[` + many(3000, ",", func(i int) string { return fmt.Sprintf(`{"name":"c%d","$patch":"delete"}`, i) }) +
			`],"$setElementOrder/containers":[` + many(3000, ",", func(i int) string { return fmt.Sprintf(`{"name":"c%d"}`, i) }) + `]}}`, typed(strategic)},
		"strategic directive": {"PATCH", "/api/v1/namespaces/ns/pods/victim", `{"spec":{"$patch":"replace","containers":[{"$patch":"replace"},{"$patch":"merge"}],"$retainKeys":["a"]}}`, typed(strategic)},
		"label terms":         {"GET", maps + "?labelSelector=" + url.QueryEscape(many(20000, ",", func(i int) string { return fmt.Sprintf("k%d=v", i) })), "", nil},
		"label values":        {"GET", maps + "?labelSelector=" + url.QueryEscape("k in ("+many(30000, ",", func(i int) string { return fmt.Sprint(i) })+")"), "", nil},
		"field terms":         {"GET", maps + "?fieldSelector=" + url.QueryEscape(many(9000, ",", func(i int) string { return fmt.Sprintf("metadata.name!=v%d", i) })), "", nil},
		"watched field terms": {"GET", maps + "?watch=true&timeoutSeconds=1&resourceVersion=1&fieldSelector=" + url.QueryEscape(many(20000, ",", func(i int) string { return fmt.Sprintf("x%d=v", i) })), "", nil},
		"huge limit":          {"GET", maps + "?limit=1000000000", "", nil},
		"negative limit":      {"GET", maps + "?limit=-9223372036854775808", "", nil},
		"huge version":        {"GET", maps + "?resourceVersion=18446744073709551616", "", nil},
		"odd token":           {"GET", maps + "?limit=1&continue=" + strings.Repeat("AAAA", 50<<10), "", nil},
		"many parameters":     {"GET", maps + "?" + many(25000, "&", func(i int) string { return fmt.Sprintf("p%d=1", i) }), "", nil},
		"long path":           {"GET", "/apis/" + strings.Repeat("a/", 1<<17), "", nil},
		"accept clauses":      {"GET", maps, "", []string{"Accept", many(15000, ",", func(i int) string { return fmt.Sprintf("a/b%d;q=0.1", i) })}},
		"accept parameters":   {"GET", maps, "", []string{"Accept", "application/json" + strings.Repeat(";as=Table", 25000)}},
		"gzip bomb":           {"POST", maps, bomb.String(), []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}},
		"delete options":      {"DELETE", cm, `{"preconditions":` + deep + `}`, nil},
		"owner references": {"POST", maps, `{"metadata":{"name":"o","ownerReferences":[` + many(20000, ",", func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"P","name":"p","uid":"%d"}`, i%2)
		}) + `]}}`, nil},
		"protobuf lengths": {"POST", maps, "k8s\x00\x0a\x08\x0a\x02v1\x12\x02CM\x12\xff\xff\xff\xff\x07", typed("application/vnd.kubernetes.protobuf")},
	}
}

func victims(t testing.TB, h *harness) {
	t.Helper()
	pods := h.jsonClient().CoreV1().Pods("ns")
	must(h.jsonClient().CoreV1().ConfigMaps("ns").Create(within(t), configMap("victim", map[string]string{"k": "v"}), metav1.CreateOptions{}))
	must(pods.Create(within(t), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "victim"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}))
}

// No request may make the server hold or allocate much more than what was sent.
func TestHostileRequestsCostWhatTheySend(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates on its own")
	}
	h := start(t)
	victims(t, h)
	handler := h.server.Handler()
	request{method: "GET", path: "/api/v1/namespaces/ns/configmaps"}.send(handler) // what is made once
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30))
	for name, r := range hostile() {
		t.Run(name, func(t *testing.T) {
			w, spent := cost.Of(handler, r.build())
			cost.Check(t, r.size(), w, spent)
			for _, warning := range w.Header()["Warning"] {
				if len(warning) > 4096 {
					t.Errorf("a warning of %d bytes", len(warning))
				}
			}
			var head int
			for k, vs := range w.Header() {
				for _, v := range vs {
					head += len(k) + len(v)
				}
			}
			if head > 64<<10 {
				t.Errorf("headers of %d bytes: no client reads them", head)
			}
		})
	}
}

// Selectors of any length are refused before anything is made of them.
func TestEndlessSelectorIsRefused(t *testing.T) {
	h := start(t)
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.server.Serve(ctx, ln, nil) }()
	defer func() { cancel(); <-done }()
	resp, err := http.Get("http://" + ln.Addr().String() + "/api/v1/configmaps?labelSelector=" + strings.Repeat("k%3Dv,", 100000))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge && resp.StatusCode != http.StatusRequestURITooLong {
		t.Errorf("answered with %s", resp.Status)
	}
}
