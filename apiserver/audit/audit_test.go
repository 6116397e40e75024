package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	testclock "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/apiserver/audit"
)

var morning = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// memory is a Sink that keeps what it is given; it fails while broken.
type memory struct {
	mu      sync.Mutex
	batches [][]*auditv1.Event
	broken  error
	came    chan struct{}
}

func newMemory() *memory { return &memory{came: make(chan struct{}, 1000)} }

func (m *memory) Name() string { return "memory" }
func (m *memory) Close() error { return nil }
func (m *memory) Write(_ context.Context, events []*auditv1.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches = append(m.batches, events)
	m.came <- struct{}{}
	return m.broken
}

func (m *memory) events() []*auditv1.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*auditv1.Event
	for _, b := range m.batches {
		out = append(out, b...)
	}
	return out
}

func policyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, rules string, outputs ...audit.Output) (*audit.Auditor, *prometheus.Registry) {
	t.Helper()
	evaluator, warnings, err := audit.LoadPolicy(policyFile(t, "apiVersion: audit.k8s.io/v1\nkind: Policy\n"+rules))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	metrics := prometheus.NewRegistry()
	return audit.New(audit.Config{Policy: evaluator, Outputs: outputs, Clock: testclock.NewFakeClock(morning), Metrics: metrics}), metrics
}

func get(who, namespace, resource, sub, name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who, Groups: []string{"people"}}, Verb: "get", Namespace: namespace, Resource: resource, Subresource: sub,
		APIVersion: "v1", Name: name, ResourceRequest: true, Path: "/x"}
}

func from(id string) audit.Origin {
	return audit.Origin{ID: id, URI: "/x?y=z", UserAgent: "test", IPs: []string{"192.0.2.1"}, Received: morning}
}

// count reads a metric's value, summed over the labels that are not given.
func count(t *testing.T, from *prometheus.Registry, name string, label ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fits := f.GetName() == name
			for _, l := range m.GetLabel() {
				fits = fits && (len(label) == 0 || l.GetValue() == label[0])
			}
			if fits {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestThePolicyDecides(t *testing.T) {
	a, metrics := start(t, `
rules:
- {level: None, users: ["quiet"]}
- {level: None, nonResourceURLs: ["/healthz*", "/version"]}
- {level: Metadata, resources: [{group: "", resources: ["secrets", "pods/log"]}]}
- {level: Request, resources: [{group: "", resources: ["configmaps"], resourceNames: ["one"]}]}
- {level: Request, namespaces: ["dark"], verbs: ["get"]}
- {level: RequestResponse, resources: [{group: "apps"}, {group: "batch", resources: ["*/status"]}]}
- {level: RequestResponse, userGroups: ["people"], resources: [{group: "", resources: ["services/*"]}]}
- {level: Metadata, nonResourceURLs: ["*"]}
`)
	apps := func(r authorizer.AttributesRecord, group string) authorizer.AttributesRecord {
		r.APIGroup = group
		return r
	}
	path := func(p string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}, Verb: "get", Path: p}
	}
	for name, c := range map[string]struct {
		of   authorizer.AttributesRecord
		want string
	}{
		"user":                    {get("quiet", "ns", "secrets", "", "a"), ""},
		"resource":                {get("ann", "ns", "secrets", "", "a"), "Metadata"},
		"subresource":             {get("ann", "ns", "pods", "log", "a"), "Metadata"},
		"its parent is another":   {get("ann", "ns", "pods", "", "a"), ""},
		"name":                    {get("ann", "ns", "configmaps", "", "one"), "Request"},
		"another name":            {get("ann", "ns", "configmaps", "", "two"), ""},
		"namespace and verb":      {get("ann", "dark", "configmaps", "", "two"), "Request"},
		"whole group":             {apps(get("ann", "ns", "deployments", "", "a"), "apps"), "RequestResponse"},
		"status of any":           {apps(get("ann", "ns", "jobs", "status", "a"), "batch"), "RequestResponse"},
		"not the thing itself":    {apps(get("ann", "ns", "jobs", "", "a"), "batch"), ""},
		"any subresource":         {get("ann", "ns", "services", "proxy", "a"), "RequestResponse"},
		"nothing matches":         {get("ann", "ns", "endpoints", "", "a"), ""},
		"path with wildcard":      {path("/healthz/etcd"), ""},
		"exact path":              {path("/version"), ""},
		"any other path":          {path("/metrics"), "Metadata"},
		"paths are not resources": {get("ann", "", "nodes", "", ""), ""},
	} {
		record := a.Begin(from("1"), c.of)
		got := ""
		if record != nil {
			got = map[[2]bool]string{{false, false}: "Metadata", {true, false}: "Request", {true, true}: "RequestResponse"}[[2]bool{record.WantsRequest(), record.WantsResponse()}]
		}
		if got != c.want {
			t.Errorf("%s: level %q, want %q", name, got, c.want)
		}
	}
	if n := count(t, metrics, "apiserver_audit_level_total", "None"); n != 8 {
		t.Errorf("%v requests counted at level None", n)
	}
}

// byRight is a user as whom somebody acts by a constrained right.
type byRight struct{ *user.DefaultInfo }

func (byRight) ImpersonationConstraint() string { return "impersonate:user-info" }

func TestAnEventTellsTheWholeStory(t *testing.T) {
	sink := newMemory()
	a, metrics := start(t, "rules: [{level: RequestResponse}]", audit.Output{Sink: sink, Mode: audit.Blocking})
	r := a.Begin(from("id-1"), get("ann", "ns", "configmaps", "", ""))
	r.Received()
	r.Impersonated(byRight{&user.DefaultInfo{Name: "bob", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}})
	r.Annotate("authorization.k8s.io/decision", "allow")
	r.Annotate("authorization.k8s.io/decision", "forbid") // too late
	r.Object(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "c", UID: "u", ResourceVersion: "9"}})
	r.Request([]byte("{\n  \"a\": 1}"))
	r.Response([]byte(`{"b":2}`))
	r.Complete(201)
	got := sink.events()
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	type story = map[string]any
	want := []story{
		{"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "id-1", "stage": "RequestReceived", "requestURI": "/x?y=z", "verb": "get",
			"user": story{"username": "ann", "groups": []any{"people"}}, "sourceIPs": []any{"192.0.2.1"}, "userAgent": "test",
			"objectRef":                story{"resource": "configmaps", "namespace": "ns", "apiVersion": "v1"},
			"requestReceivedTimestamp": "2026-03-04T05:06:07.000000Z", "stageTimestamp": "2026-03-04T05:06:07.000000Z"},
		{"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "id-1", "stage": "ResponseComplete", "requestURI": "/x?y=z", "verb": "get",
			"user": story{"username": "ann", "groups": []any{"people"}}, "sourceIPs": []any{"192.0.2.1"}, "userAgent": "test",
			"impersonatedUser":       story{"username": "bob", "uid": "7", "groups": []any{"g"}, "extra": story{"k": []any{"v"}}},
			"authenticationMetadata": story{"impersonationConstraint": "impersonate:user-info"},
			"objectRef":              story{"resource": "configmaps", "namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "9", "apiVersion": "v1"},
			"responseStatus":         story{"metadata": story{}, "code": 201.0}, "requestObject": story{"a": 1.0}, "responseObject": story{"b": 2.0},
			"annotations":              story{"authorization.k8s.io/decision": "allow"},
			"requestReceivedTimestamp": "2026-03-04T05:06:07.000000Z", "stageTimestamp": "2026-03-04T05:06:07.000000Z"},
	}
	for i, e := range got {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var have story
		if err := json.Unmarshal(text, &have); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want[i], have); d != "" {
			t.Error(d)
		}
	}
	if n := count(t, metrics, "apiserver_audit_event_total"); n != 2 {
		t.Errorf("%v events counted", n)
	}
}

func TestLevelsKeepBodiesOut(t *testing.T) {
	for level, want := range map[string][2]bool{"Metadata": {false, false}, "Request": {true, false}, "RequestResponse": {true, true}} {
		sink := newMemory()
		a, _ := start(t, "rules: [{level: "+level+"}]", audit.Output{Sink: sink, Mode: audit.Blocking})
		r := a.Begin(from("1"), get("ann", "ns", "secrets", "", "s"))
		r.Request([]byte(`{"secret":1}`))
		r.Response([]byte(`{"secret":2}`))
		r.Complete(200)
		e := sink.events()[0]
		if got := [2]bool{e.RequestObject != nil, e.ResponseObject != nil}; got != want {
			t.Errorf("%s: bodies %v, want %v", level, got, want)
		}
	}
}

func TestStages(t *testing.T) {
	stages := func(sink *memory) string {
		var out []string
		for _, e := range sink.events() {
			out = append(out, string(e.Stage))
		}
		return strings.Join(out, " ")
	}
	for name, c := range map[string]struct {
		rules string
		act   func(*audit.Record)
		want  string
	}{
		"plain":            {"rules: [{level: Metadata}]", func(r *audit.Record) { r.Received(); r.Complete(200) }, "RequestReceived ResponseComplete"},
		"stream":           {"rules: [{level: Metadata}]", func(r *audit.Record) { r.Received(); r.Started(200); r.Complete(200) }, "RequestReceived ResponseStarted ResponseComplete"},
		"panic":            {"rules: [{level: Metadata}]", func(r *audit.Record) { r.Received(); r.Panicked("oh") }, "RequestReceived Panic"},
		"omitted":          {"omitStages: [RequestReceived]\nrules: [{level: Metadata}]", func(r *audit.Record) { r.Received(); r.Started(200); r.Complete(200) }, "ResponseStarted ResponseComplete"},
		"omitted by rule":  {"rules: [{level: Metadata, omitStages: [ResponseComplete, ResponseStarted]}]", func(r *audit.Record) { r.Received(); r.Started(200); r.Complete(200) }, "RequestReceived"},
		"omitted by both":  {"omitStages: [RequestReceived]\nrules: [{level: Metadata, omitStages: [ResponseStarted]}]", func(r *audit.Record) { r.Received(); r.Started(200); r.Complete(200) }, "ResponseComplete"},
		"omitted in panic": {"rules: [{level: Metadata, omitStages: [Panic]}]", func(r *audit.Record) { r.Received(); r.Panicked("oh") }, "RequestReceived"},
	} {
		sink := newMemory()
		a, _ := start(t, c.rules, audit.Output{Sink: sink, Mode: audit.Blocking})
		c.act(a.Begin(from("1"), get("ann", "ns", "pods", "", "p")))
		if got := stages(sink); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWhatCannotBeRecorded(t *testing.T) {
	for mode, may := range map[audit.Mode]bool{audit.Blocking: true, audit.BlockingStrict: false} {
		sink := newMemory()
		sink.broken = errors.New("disk full")
		a, metrics := start(t, "rules: [{level: Metadata}]", audit.Output{Sink: sink, Mode: mode})
		r := a.Begin(from("1"), get("ann", "ns", "pods", "", "p"))
		if got := r.Received(); got != may {
			t.Errorf("%s: the request may go on: %v", mode, got)
		}
		if n := count(t, metrics, "apiserver_audit_error_total", "memory"); n != 1 {
			t.Errorf("%s: %v lost events counted", mode, n)
		}
		if n := count(t, metrics, "apiserver_audit_requests_rejected_total"); (n == 1) == may {
			t.Errorf("%s: %v refused requests counted", mode, n)
		}
	}
}

func TestPolicyFiles(t *testing.T) {
	head := "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for name, c := range map[string]struct{ text, want, warns string }{
		"minimal":            {text: head + "rules: [{level: None}]"},
		"json":               {text: `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}]}`},
		"all fields":         {text: head + "omitStages: [Panic]\nomitManagedFields: true\nrules: [{level: Request, omitManagedFields: false, users: [a], userGroups: [b], verbs: [c], namespaces: [''], resources: [{group: '*', resources: [x], resourceNames: [one]}]}]"},
		"unknown field":      {text: head + "rulez: []\nrules: [{level: None}]", warns: "rulez"},
		"no rules":           {text: head, want: "it has no rules"},
		"not YAML":           {text: "{{{", want: "it is no Policy"},
		"another kind":       {text: "apiVersion: v1\nkind: ConfigMap\nrules: [{level: None}]", want: "it is no Policy of audit.k8s.io/v1"},
		"another kind of it": {text: "apiVersion: audit.k8s.io/v1\nkind: Event\nrules: [{level: None}]", want: "it is no Policy"},
		"old version":        {text: "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", want: "it is no Policy of audit.k8s.io/v1"},
		"no level":           {text: head + "rules: [{users: [a]}]", want: "rules[0].level: Required"},
		"unknown level":      {text: head + "rules: [{level: Everything}]", want: `Unsupported value: "Everything"`},
		"unknown stage":      {text: head + "omitStages: [Never]\nrules: [{level: None}]", want: "omitStages[0]"},
		"path without slash": {text: head + "rules: [{level: None, nonResourceURLs: [healthz]}]", want: "must begin with a '/'"},
		"wildcard inside":    {text: head + "rules: [{level: None, nonResourceURLs: ['/a*b']}]", want: "must be the final character"},
		"both sorts":         {text: head + "rules: [{level: None, nonResourceURLs: ['/a'], namespaces: [b]}]", want: "cannot apply to both"},
		"group with version": {text: head + "rules: [{level: None, resources: [{group: 'Apps/v1'}]}]", want: "group: Invalid value"},
		"names without what": {text: head + "rules: [{level: None, resources: [{group: apps, resourceNames: [a]}]}]", want: "requires at least one resource"},
	} {
		_, warnings, err := audit.LoadPolicy(policyFile(t, c.text))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "--audit-policy-file ") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: got %q, want one line with %q", name, err, c.want)
		case !strings.Contains(strings.Join(warnings, "\n"), c.warns) || c.warns == "" && len(warnings) > 0:
			t.Errorf("%s: warnings %q", name, warnings)
		}
	}
	if _, _, err := audit.LoadPolicy("/does/not/exist"); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestIdentities(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := audit.NewID()
		if len(id) != 36 || id[14] != '4' || seen[id] {
			t.Fatalf("%q is no fresh UUID of version 4", id)
		}
		seen[id] = true
	}
	if got := audit.IDOf(http.Header{audit.Header: {"mine"}}); got != "mine" {
		t.Errorf("a client's own id became %q", got)
	}
	if got := audit.IDOf(http.Header{audit.Header: {strings.Repeat("x", 5000)}}); len(got) != 256 {
		t.Errorf("a very long id has %d bytes", len(got))
	}
	if got := audit.IDOf(http.Header{audit.Header: {""}}); len(got) != 36 {
		t.Errorf("an empty id became %q", got)
	}
}

func TestOrigin(t *testing.T) {
	req := httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil)
	req.RemoteAddr = "192.0.2.9:1234"
	req.Header.Set("X-Forwarded-For", "203.0.113.5, 198.51.100.7")
	req.Header.Set("User-Agent", strings.Repeat("a", 2000))
	got := audit.OriginOf(req, "id", morning)
	if d := cmp.Diff([]string{"203.0.113.5", "198.51.100.7", "192.0.2.9"}, got.IPs); d != "" || got.URI != "/api/v1/pods?watch=1" {
		t.Errorf("%s %s", got.URI, d)
	}
	sink := newMemory()
	a, _ := start(t, "rules: [{level: Metadata}]", audit.Output{Sink: sink, Mode: audit.Blocking})
	a.Begin(got, get("ann", "", "pods", "", "")).Complete(200)
	if agent := sink.events()[0].UserAgent; agent != strings.Repeat("a", 1024)+"...TRUNCATED" {
		t.Errorf("a long User-Agent is kept as %d bytes", len(agent))
	}
}

func TestAttempts(t *testing.T) {
	for header, want := range map[string]string{
		"":                   "Authentication failed, no credentials provided",
		"Bearer secret":      "Authentication failed, attempted: bearer",
		"Basic YTpzZWNyZXQ=": "Authentication failed, attempted: basic",
		"Bearer":             "Authentication failed, no credentials provided",
	} {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("Authorization", header)
		if got := audit.Attempts(req); got != want {
			t.Errorf("%q: %q", header, got)
		}
	}
}
