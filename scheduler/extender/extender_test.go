package extender

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
)

// serve answers each path with what answer returns, and tells of the bodies it got.
func serve(t *testing.T, answer func(path string, body map[string]any) (code int, out string)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler(t, answer))
	t.Cleanup(s.Close)
	return s
}

func handler(t *testing.T, answer func(path string, body map[string]any) (int, string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		body := map[string]any{}
		if err == nil {
			err = json.Unmarshal(raw, &body)
		}
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %s: %v", r.Method, r.URL, raw, err)
		}
		code, out := answer(r.URL.Path, body)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, out)
	})
}

func set(t *testing.T, list ...Config) *Set {
	t.Helper()
	s, err := New(list, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func question(names ...string) *Question {
	q := &Question{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "uid"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"example.com/x": resource.MustParse("1")}}}}}}}
	for _, name := range names {
		q.Nodes = append(q.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
	}
	return q
}

// left lists the nodes that an answer leaves, and the reasons of the others.
func left(q *Question, a *Answer) (names []string, why map[string]string) {
	why = map[string]string{}
	for _, n := range q.Nodes {
		if s := a.refused[n.Name]; s != nil {
			why[n.Name] = s.Message()
		} else {
			names = append(names, n.Name)
		}
	}
	return names, why
}

func TestFilterByNameAndByObject(t *testing.T) {
	for _, cached := range []bool{false, true} {
		s := serve(t, func(path string, body map[string]any) (int, string) {
			_, objects := body["Nodes"].(map[string]any)
			_, names := body["NodeNames"].([]any)
			if path != "/base/filter" || objects == cached || names != cached || body["Pod"].(map[string]any)["metadata"].(map[string]any)["name"] != "p" {
				t.Errorf("asked %s with %v", path, body)
			}
			why := `"FailedNodes": {"b": "too loud"}, "FailedAndUnresolvableNodes": {"b": "broken", "c": "too far"}`
			if cached {
				return 200, `{"NodeNames": ["a"], ` + why + `}`
			}
			return 200, `{"Nodes": {"items": [{"metadata": {"name": "a"}}]}, ` + why + `}`
		})
		q := question("a", "b", "c", "d")
		a := set(t, Config{URLPrefix: s.URL + "/base/", FilterVerb: "filter", NodeCacheCapable: cached}).Ask(context.Background(), q)
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		names, why := left(q, a)
		if diff := cmp.Diff([]string{"a"}, names); diff != "" {
			t.Errorf("nodes differ (-want +got): %s", diff)
		}
		if diff := cmp.Diff(map[string]string{"b": "broken", "c": "too far", "d": "node(s) were left out by extender " + s.URL + "/base/"}, why); diff != "" {
			t.Errorf("reasons differ (-want +got): %s", diff)
		}
	}
}

func TestExtendersFollowEachOther(t *testing.T) {
	seen := map[string][]any{}
	s := serve(t, func(path string, body map[string]any) (int, string) {
		names := body["NodeNames"].([]any)
		seen[path] = names
		out, _ := json.Marshal(map[string]any{"NodeNames": names[1:]})
		return 200, string(out)
	})
	ignorable := Config{URLPrefix: s.URL, FilterVerb: "ignorable", NodeCacheCapable: true, Ignorable: true}
	second := Config{URLPrefix: s.URL, FilterVerb: "second", NodeCacheCapable: true}
	other := Config{URLPrefix: s.URL, FilterVerb: "other", NodeCacheCapable: true, ManagedResources: []ManagedResource{{Name: "example.com/y"}}}
	q := question("a", "b", "c", "d")
	a := set(t, ignorable, other, Config{URLPrefix: s.URL, FilterVerb: "first", NodeCacheCapable: true}, second).Ask(context.Background(), q)
	if names, _ := left(q, a); !slices.Equal(names, []string{"d"}) {
		t.Errorf("left are %v, want d", names)
	}
	if diff := cmp.Diff(map[string][]any{"/first": {"a", "b", "c", "d"}, "/second": {"b", "c", "d"}, "/ignorable": {"c", "d"}}, seen); diff != "" {
		t.Errorf("questions differ (-want +got): %s", diff)
	}
}

func TestFailures(t *testing.T) {
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(release) })
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	at := func(code int, out string) string {
		return serve(t, func(string, map[string]any) (int, string) { return code, out }).URL
	}
	for _, c := range []struct{ name, url, want string }{
		{"an error code", at(500, "no"), "code 500"},
		{"no JSON", at(200, "<html>"), "not understood"},
		{"another shape", at(200, `[1, 2]`), "not understood"},
		{"half an answer", at(200, `{"NodeNames": ["a"`), "not understood"},
		{"its own error", at(200, `{"Error": "out of memory"}`), "out of memory"},
		{"a node of its own", at(200, `{"NodeNames": ["a", "z"]}`), `claims a filtered node "z" which is not found in the input node list`},
		{"too slow", slow.URL, "Client.Timeout"},
		{"not there", gone.URL, "connection refused"},
	} {
		for _, ignorable := range []bool{false, true} {
			q := question("a", "b")
			a := set(t, Config{URLPrefix: c.url, FilterVerb: "filter", NodeCacheCapable: true, Ignorable: ignorable, HTTPTimeout: metav1.Duration{Duration: 100 * time.Millisecond}}).
				Ask(context.Background(), q)
			names, _ := left(q, a)
			switch {
			case ignorable && (a.Err != nil || len(names) != 2):
				t.Errorf("%s: an ignorable extender kept %v (%v)", c.name, names, a.Err)
			case !ignorable && (a.Err == nil || !strings.Contains(a.Err.Error(), c.want)):
				t.Errorf("%s: error is %v; want one with %q", c.name, a.Err, c.want)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if a := set(t, Config{URLPrefix: slow.URL, FilterVerb: "f", Ignorable: true}).Ask(ctx, question("a")); a.Err == nil {
		t.Error("an end of the scheduler was taken for a failure of the extender")
	}
}

func TestSilenceRefusesAll(t *testing.T) {
	s := serve(t, func(string, map[string]any) (int, string) { return 200, `{}` })
	q := question("a", "b")
	a := set(t, Config{URLPrefix: s.URL, FilterVerb: "filter", NodeCacheCapable: true}).Ask(context.Background(), q)
	if names, _ := left(q, a); a.Err != nil || len(names) > 0 {
		t.Errorf("left are %v (%v)", names, a.Err)
	}
}

func TestRatings(t *testing.T) {
	s := serve(t, func(path string, _ map[string]any) (int, string) {
		return map[string]int{"/broken": 500}[path] + 200*b2i(path != "/broken"), map[string]string{"/fast": `[{"Host": "a", "Score": 10}, {"Host": "b", "Score": 1}]`,
			"/cheap": `[{"Host": "b", "Score": 3}]`, "/mad": `[{"Host": "a", "Score": 9223372036854775807}]`}[path]
	})
	rater := func(verb string, weight int64) Config {
		return Config{URLPrefix: s.URL, PrioritizeVerb: verb, Weight: weight, NodeCacheCapable: true}
	}
	a := set(t, rater("fast", 1), rater("cheap", 5), rater("mad", 1), rater("broken", 1)).Ask(context.Background(), question("a", "b"))
	if diff := cmp.Diff(map[string]int64{"a": 100, "b": 10 + 150}, a.scores); diff != "" || a.Err != nil {
		t.Errorf("scores differ (-want +got): %s (%v)", diff, a.Err)
	}
	if a := set(t, rater("fast", 1)).Ask(context.Background(), question("a")); len(a.scores) > 0 {
		t.Errorf("a single node was rated: %v", a.scores)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestInterest(t *testing.T) {
	manages := func(name string) *Set {
		return set(t, Config{URLPrefix: "http://x", FilterVerb: "f", BindVerb: "b", PreemptVerb: "p", ManagedResources: []ManagedResource{{Name: name, IgnoredByScheduler: true}}})
	}
	pod := question().Pod
	if s := manages("example.com/x"); !s.Consults(pod) || !s.Preempts(pod) {
		t.Error("no interest in a pod with a limit of the managed resource")
	}
	if s := manages("example.com/y"); s.Consults(pod) || s.Preempts(pod) {
		t.Error("interest in a pod without the managed resource")
	}
	pod.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/y": resource.MustParse("1")}}}}
	if !manages("example.com/y").Consults(pod) {
		t.Error("no interest in a pod whose init container requests the managed resource")
	}
	if set(t, Config{URLPrefix: "http://x", BindVerb: "b"}).Consults(pod) {
		t.Error("an extender that only binds is asked about nodes")
	}
	if got := Ignored([]Config{{ManagedResources: []ManagedResource{{"a.b/c", true}, {"a.b/d", false}}}}); !slices.Equal(got, []string{"a.b/c"}) {
		t.Errorf("ignored are %v", got)
	}
}

func TestPreempt(t *testing.T) {
	named := func(uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + uid, UID: types.UID(uid)}}
	}
	choices := map[string]Victims{"n1": {Pods: []*corev1.Pod{named("1"), named("2")}, Violations: 1}, "n2": {Pods: []*corev1.Pod{named("3")}}}
	present := map[string]map[types.UID]*corev1.Pod{"n1": {"1": named("1"), "2": named("2"), "9": named("9")}, "n2": {"3": named("3")}}
	for _, c := range []struct {
		name, answer string
		ignorable    bool
		want         map[string][]string // uids by node; nil: an error
		err          string
	}{
		{"one node, another victim", `{"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "9"}], "NumPDBViolations": 0}}}`, false, map[string][]string{"n1": {"9"}}, ""},
		{"nobody", `{"NodeNameToMetaVictims": {}}`, false, map[string][]string{}, ""},
		{"a pod from elsewhere", `{"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "3"}]}}}`, false, nil, "the pod is not found on that node"},
		{"a node of its own", `{"NodeNameToMetaVictims": {"n3": {"Pods": [{"UID": "3"}]}}}`, false, nil, "was not asked about"},
		{"a node without victims", `{"NodeNameToMetaVictims": {"n1": {"Pods": []}, "n2": {"Pods": [{"UID": "3"}]}}}`, false, nil, "expected at least one victim"},
		{"the same, ignorable", `{"NodeNameToMetaVictims": {"n1": null, "n2": {"Pods": [{"UID": "3"}]}}}`, true, map[string][]string{"n2": {"3"}}, ""},
		{"garbage", `7`, false, nil, "not understood"},
		{"ignorable garbage", `7`, true, map[string][]string{"n1": {"1", "2"}, "n2": {"3"}}, ""},
		{"a nothing among victims", `{"NodeNameToMetaVictims": {"n1": {"Pods": [null]}}}`, false, nil, "the pod is not found on that node"},
	} {
		for _, cached := range []bool{false, true} {
			s := serve(t, func(_ string, body map[string]any) (int, string) {
				key, node := "NodeNameToVictims", map[string]any{}
				if cached {
					key = "NodeNameToMetaVictims"
				}
				if all, ok := body[key].(map[string]any); ok {
					node, _ = all["n1"].(map[string]any)
				}
				if pods, _ := node["Pods"].([]any); len(pods) != 2 || node["NumPDBViolations"] != 1.0 {
					t.Errorf("%s: asked with %v", c.name, body)
				}
				return 200, c.answer
			})
			got, err := set(t, Config{URLPrefix: s.URL, PreemptVerb: "preempt", NodeCacheCapable: cached, Ignorable: c.ignorable}).Preempt(context.Background(), question().Pod, choices, present)
			if c.want == nil {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: error is %v; want one with %q", c.name, err, c.err)
				}
				continue
			}
			uids := map[string][]string{}
			for node, v := range got {
				for _, p := range v.Pods {
					uids[node] = append(uids[node], string(p.UID))
				}
			}
			if diff := cmp.Diff(c.want, uids); diff != "" || err != nil {
				t.Errorf("%s: victims differ (-want +got): %s (%v)", c.name, diff, err)
			}
		}
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(handler(t, func(string, map[string]any) (int, string) { return 200, `{"NodeNames": ["a"]}` }))
	t.Cleanup(s.Close)
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelInfo)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for _, c := range []struct {
		name string
		tls  *TLS
		want string
	}{
		{"its authority", &TLS{CAData: ca}, ""},
		{"its authority under a name", &TLS{CAData: ca, ServerName: "example.com"}, ""},
		{"another name", &TLS{CAData: ca, ServerName: "other.org"}, "certificate is valid for"},
		{"nobody's authority", &TLS{}, "unknown authority"},
		{"anybody", &TLS{Insecure: true}, ""},
	} {
		a := set(t, Config{URLPrefix: s.URL, FilterVerb: "f", NodeCacheCapable: true, EnableHTTPS: true, TLSConfig: c.tls}).Ask(context.Background(), question("a", "b"))
		if c.want == "" && a.Err != nil || c.want != "" && (a.Err == nil || !strings.Contains(a.Err.Error(), c.want)) {
			t.Errorf("%s: error is %v; want one with %q", c.name, a.Err, c.want)
		}
	}
	if _, err := New([]Config{{URLPrefix: s.URL, TLSConfig: &TLS{CAFile: "/does/not/exist"}}}, slog.Default()); err == nil || !strings.Contains(err.Error(), "extenders[0]: tlsConfig") {
		t.Errorf("error is %v", err)
	}
}

func TestLaterAnswersCount(t *testing.T) {
	no := framework.Refuse(framework.Unschedulable, Name, "no")
	first := &Answer{asked: map[string]bool{"a": true, "b": true}, refused: map[string]*framework.Status{"a": no}, scores: map[string]int64{"b": 5}}
	later := &Answer{asked: map[string]bool{"a": true, "c": true}, refused: map[string]*framework.Status{"c": no}, scores: map[string]int64{"a": 7}}
	got := first.Join(later)
	if len(got.asked) != 3 || len(got.refused) != 1 || got.refused["c"] != no || len(got.scores) != 2 || got.scores["a"] != 7 || len(first.refused) != 1 || len(first.asked) != 2 {
		t.Errorf("joined: %+v; the first is now %+v", got, first)
	}
	if none := (*Answer)(nil); none.Join(later) != later || first.Join(nil) != first {
		t.Error("an answer that is nil says something")
	}
	q := (*Question)(nil).Join(&Question{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}})
	q = q.Join(&Question{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "a"}}}})
	if len(q.Nodes) != 2 || q.Nodes[1].Name != "b" {
		t.Errorf("joined question: %v", q.Nodes)
	}
}
