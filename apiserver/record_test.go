package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/audit"
	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/kind"
)

// recorded is an audit.Sink that keeps events; it fails while broken.
type recorded struct {
	mu     sync.Mutex
	list   []*auditv1.Event
	broken bool
}

func (*recorded) Name() string { return "test" }
func (*recorded) Close() error { return nil }
func (r *recorded) Write(_ context.Context, events []*auditv1.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return errors.New("broken")
	}
	r.list = append(r.list, events...)
	return nil
}

// last is the newest event.
func (r *recorded) last(t *testing.T) *auditv1.Event {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		t.Fatal("nothing was recorded")
	}
	return r.list[len(r.list)-1]
}

func (r *recorded) stages() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.list {
		out = append(out, string(e.Stage))
	}
	r.list = nil
	return strings.Join(out, " ")
}

func audited(t *testing.T, rules string, mode audit.Mode, adjust ...func(*apiserverConfig)) (*harness, *recorded) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	policy, _, err := audit.LoadPolicy(path)
	if err != nil {
		t.Fatal(err)
	}
	sink := &recorded{}
	h := start(t, func(c *apiserverConfig) {
		c.Auditor = audit.New(audit.Config{Policy: policy, Outputs: []audit.Output{{Sink: sink, Mode: mode}}})
		c.Impersonate = func(_ context.Context, headers http.Header, who user.Info, _ authorizer.Authorizer, _ authn.Question) (user.Info, bool, error) {
			as := headers.Get("Impersonate-User")
			return &user.DefaultInfo{Name: as}, as != "", nil
		}
		for _, f := range adjust {
			f(c)
		}
	})
	return h, sink
}

const everything = "rules: [{level: RequestResponse}]"

func raw(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func TestARequestIsRecorded(t *testing.T) {
	h, sink := audited(t, everything, audit.Blocking)
	answer := h.do("POST", "/api/v1/namespaces/ns/configmaps?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"b"}}`,
		userHeader, "ann,people", "Impersonate-User", "bob", "User-Agent", "agent", "X-Forwarded-For", "203.0.113.5", "Authorization", "Bearer secret-token")
	e := sink.last(t)
	if id := answer.header.Get("Audit-Id"); answer.code != 201 || id != string(e.AuditID) || len(id) != 36 {
		t.Errorf("%d: id %q in the answer, %q recorded", answer.code, id, e.AuditID)
	}
	got := []any{e.Level, e.Stage, e.Verb, e.RequestURI, e.UserAgent, e.SourceIPs, e.User.Username, e.User.Groups, e.ImpersonatedUser.Username, *e.ObjectRef, e.ResponseStatus.Code, e.Annotations}
	want := []any{auditv1.LevelRequestResponse, auditv1.StageResponseComplete, "create", "/api/v1/namespaces/ns/configmaps?fieldManager=m", "agent", []string{"203.0.113.5", "127.0.0.1"},
		"ann", []string{"people"}, "bob", auditv1.ObjectReference{Resource: "configmaps", Namespace: "ns", Name: "c", APIVersion: "v1"}, int32(201),
		map[string]string{"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if body := raw(t, string(e.RequestObject.Raw)); body["data"].(map[string]any)["a"] != "b" {
		t.Errorf("request %s", e.RequestObject.Raw)
	}
	if d := cmp.Diff(raw(t, answer.body), raw(t, string(e.ResponseObject.Raw))); d != "" {
		t.Errorf("the answer and what was recorded of it: %s", d)
	}
	text, err := json.Marshal(e)
	if err != nil || strings.Contains(string(text), "secret-token") {
		t.Errorf("credentials in the event: %s %v", text, err)
	}
	if got := sink.stages(); got != "RequestReceived ResponseComplete" {
		t.Error(got)
	}
}

func TestBodiesInEveryForm(t *testing.T) {
	h, sink := audited(t, everything, audit.Blocking)
	ctx := within(t)
	read := func(doc []byte) map[string]any { t.Helper(); return raw(t, string(doc)) }
	name := func(doc map[string]any) any {
		m, _ := doc["metadata"].(map[string]any)
		return m["name"]
	}
	api := h.client().CoreV1().ConfigMaps("ns") // speaks protobuf
	if _, err := api.Create(ctx, configMap("c", map[string]string{"a": "b"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := sink.last(t); name(read(e.RequestObject.Raw)) != "c" || name(read(e.ResponseObject.Raw)) != "c" || read(e.RequestObject.Raw)["kind"] != "ConfigMap" {
		t.Errorf("protobuf: %s, %s", e.RequestObject.Raw, e.ResponseObject.Raw)
	}
	if _, err := api.List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if doc := read(sink.last(t).ResponseObject.Raw); doc["kind"] != "ConfigMapList" || len(doc["items"].([]any)) != 1 {
		t.Errorf("list: %v", doc)
	}
	h.do("GET", "/api/v1/namespaces/ns/configmaps", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if doc := read(sink.last(t).ResponseObject.Raw); doc["kind"] != "Table" {
		t.Errorf("table: %v", doc)
	}
	h.do("GET", "/api/v1/namespaces/ns/configmaps/c", "", "Accept", "application/yaml")
	if doc := read(sink.last(t).ResponseObject.Raw); name(doc) != "c" {
		t.Errorf("YAML answer: %v", doc)
	}
	h.do("POST", "/api/v1/namespaces/ns/configmaps", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yam}\n", "Content-Type", "application/yaml")
	if e := sink.last(t); name(read(e.RequestObject.Raw)) != "yam" {
		t.Errorf("YAML request: %s", e.RequestObject.Raw)
	}
	h.do("PATCH", "/api/v1/namespaces/ns/configmaps/c?fieldManager=m", "apiVersion: v1\nkind: ConfigMap\ndata: {z: z}\n", "Content-Type", "application/apply-patch+yaml")
	if e := sink.last(t); e.Verb != "patch" || read(e.RequestObject.Raw)["kind"] != "ConfigMap" {
		t.Errorf("apply: %s", e.RequestObject.Raw)
	}
	h.do("PATCH", "/api/v1/namespaces/ns/configmaps/c", `[{"op":"add","path":"/data/n","value":"1"}]`, "Content-Type", "application/json-patch+json")
	if e := sink.last(t); !strings.Contains(string(e.RequestObject.Raw), `"/data/n"`) {
		t.Errorf("patch: %s", e.RequestObject.Raw)
	}
	h.do("DELETE", "/api/v1/namespaces/ns/configmaps/c", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":3}`)
	if e := sink.last(t); read(e.RequestObject.Raw)["gracePeriodSeconds"] != 3.0 || e.ResponseStatus.Status != "Success" || read(e.ResponseObject.Raw)["kind"] != "Status" {
		t.Errorf("delete: %s, %+v", e.RequestObject.Raw, e.ResponseStatus)
	}
}

func TestManagedFieldsAreLeftOutIfThePolicySaysSo(t *testing.T) {
	h, sink := audited(t, "omitManagedFields: true\nrules: [{level: RequestResponse}]", audit.Blocking)
	answer := h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"b"}}`)
	e := sink.last(t)
	if !strings.Contains(answer.body, "managedFields") || strings.Contains(string(e.ResponseObject.Raw), "managedFields") || !strings.Contains(string(e.ResponseObject.Raw), `"a":"b"`) {
		t.Errorf("answer %s\nrecorded %s", answer.body, e.ResponseObject.Raw)
	}
}

func TestRefusalsAreRecorded(t *testing.T) {
	h, sink := audited(t, "omitStages: [RequestReceived]\nrules: [{level: Metadata}]", audit.Blocking)
	if code := h.do("DELETE", "/api/v1/namespaces/ns/configmaps/c", "", userHeader, "reader").code; code != 403 {
		t.Fatal(code)
	}
	if e := sink.last(t); e.Annotations["authorization.k8s.io/decision"] != "forbid" || e.ResponseStatus.Reason != metav1.StatusReasonForbidden || e.ResponseStatus.Code != 403 || e.ResponseObject != nil {
		t.Errorf("refused: %+v", e)
	}
	if code := h.do("GET", "/api/v1/namespaces/ns/configmaps/none", "").code; code != 404 {
		t.Fatal(code)
	}
	if e := sink.last(t); e.Annotations["authorization.k8s.io/decision"] != "allow" || e.ResponseStatus.Reason != metav1.StatusReasonNotFound {
		t.Errorf("missing: %+v", e)
	}
	h.do("GET", "/nowhere/to/be/found", "")
	if e := sink.last(t); e.ObjectRef != nil || e.RequestURI != "/nowhere/to/be/found" || e.ResponseStatus.Code != 404 {
		t.Errorf("path: %+v", e)
	}
	h.do("GET", "/api/v1/namespaces/ns/configmaps/c", "", userHeader, "nobody", "Authorization", "Bearer secret-token")
	if e := sink.last(t); e.Stage != auditv1.StageResponseStarted || e.ResponseStatus.Code != 401 || e.ResponseStatus.Message != "Authentication failed, attempted: bearer" || e.User.Username != "" {
		t.Errorf("a stranger: %+v", e)
	}
}

func TestStreamsAreRecordedWhenTheyBegin(t *testing.T) {
	h, sink := audited(t, everything, audit.Blocking)
	ctx, cancel := context.WithCancel(within(t))
	req, err := http.NewRequestWithContext(ctx, "GET", h.http.URL+"/api/v1/namespaces/ns/configmaps?watch=1&timeoutSeconds=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := sink.stages(); got != "RequestReceived ResponseStarted" {
		t.Errorf("while it streams: %s", got)
	}
	if _, err := io.Copy(io.Discard, bufio.NewReader(resp.Body)); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	h.http.Close() // waits for the handler
	if got := sink.stages(); got != "ResponseComplete" {
		t.Errorf("at the end: %s", got)
	}
}

func TestARequestThatCannotBeRecordedIsRefused(t *testing.T) {
	h, sink := audited(t, everything, audit.BlockingStrict)
	sink.broken = true
	const doc = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps", doc); a.code != 500 || !strings.Contains(a.body, "failed to store audit event") {
		t.Errorf("%d %s", a.code, a.body)
	}
	sink.broken = false
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps", doc); a.code != 201 {
		t.Errorf("%d %s", a.code, a.body)
	}
}

func TestLoopsAreRecordedToo(t *testing.T) {
	h, sink := audited(t, everything, audit.Blocking)
	ctx := within(t)
	local := h.local()
	if _, err := local.Create(ctx, configMaps(), configMap("c", map[string]string{"a": "b"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e := sink.last(t)
	got := []any{e.Verb, e.RequestURI, e.User.Username, e.UserAgent, e.SourceIPs, e.ObjectRef.Name, e.ResponseStatus.Code, e.Annotations["authorization.k8s.io/decision"]}
	want := []any{"create", "/api/v1/namespaces/ns/configmaps", "system:loop", "yare/loop", []string{"127.0.0.1"}, "c", int32(201), "allow"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !strings.Contains(string(e.RequestObject.Raw), `"a":"b"`) || !strings.Contains(string(e.ResponseObject.Raw), `"resourceVersion"`) {
		t.Errorf("%s, %s", e.RequestObject.Raw, e.ResponseObject.Raw)
	}
	ref := configMaps()
	ref.Name = "c"
	if _, err := local.Patch(ctx, ref, types.MergePatchType, []byte(`{"data":{"a":"z"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := sink.last(t); e.Verb != "patch" || string(e.RequestObject.Raw) != `{"data":{"a":"z"}}` {
		t.Errorf("patch: %+v", e)
	}
	ref.Name = "none"
	if _, err := local.Get(ctx, ref, metav1.GetOptions{}); err == nil {
		t.Fatal("no error")
	}
	if e := sink.last(t); e.ResponseStatus.Code != 404 || e.ResponseStatus.Reason != metav1.StatusReasonNotFound {
		t.Errorf("missing: %+v", e.ResponseStatus)
	}
	sink.stages()
	w, err := local.Watch(ctx, configMaps(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := sink.stages(); got != "RequestReceived ResponseStarted" {
		t.Errorf("while it watches: %s", got)
	}
	w.Stop()
	for range w.ResultChan() {
	}
	if got := sink.stages(); got != "ResponseComplete" {
		t.Errorf("at the end: %s", got)
	}
}

func TestAnAuditIDWithoutAudit(t *testing.T) {
	h := start(t)
	first, second := h.do("GET", "/version", ""), h.do("GET", "/api/v1/namespaces/ns/configmaps/none", "")
	a, b := first.header.Get("Audit-Id"), second.header.Get("Audit-Id")
	if len(a) != 36 || len(b) != 36 || a == b {
		t.Errorf("ids %q and %q", a, b)
	}
	if got := h.do("GET", "/version", "", "Audit-ID", "mine").header.Get("Audit-Id"); got != "mine" {
		t.Errorf("a client's own id came back as %q", got)
	}
}

func TestOldVersionsAndPanicsAreRecorded(t *testing.T) {
	h, sink := audited(t, everything, audit.Blocking, func(c *apiserverConfig) {
		g := twoVersions()
		for _, k := range g.Kinds {
			for i := range k.Versions {
				if v := &k.Versions[i]; v.Version == "v1" {
					v.Warning = "autoscaling/v1 HorizontalPodAutoscaler is deprecated in v1.90+, unavailable in v1.99+; use autoscaling/v2"
				}
			}
		}
		c.Groups = append(c.Groups, g)
		c.Mutators = append(c.Mutators, crash{})
	})
	h.do("GET", "/apis/autoscaling/v1/namespaces/ns/horizontalpodautoscalers", "")
	if e := sink.last(t); e.Annotations["k8s.io/deprecated"] != "true" || e.Annotations["k8s.io/removed-release"] != "1.99" {
		t.Errorf("annotations %v", e.Annotations)
	}
	h.do("GET", "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers", "")
	if e := sink.last(t); e.Annotations["k8s.io/deprecated"] != "" {
		t.Errorf("annotations %v", e.Annotations)
	}
	h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"crash"}}`)
	if e := sink.last(t); e.Stage != auditv1.StagePanic || e.ResponseStatus.Code != 500 || !strings.Contains(e.ResponseStatus.Message, "crashed") {
		t.Errorf("a panic: %+v", e)
	}
}

// crash is a plugin with a fault.
type crash struct{}

func (crash) Name() string { return "Crash" }
func (crash) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	if r.Object != nil && r.Object.GetName() == "crash" {
		panic("crashed")
	}
	return nil
}
