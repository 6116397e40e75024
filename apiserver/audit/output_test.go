package audit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/apiserver/audit"
)

// buffer is a file in memory.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

func event(id string, change ...func(*auditv1.Event)) *auditv1.Event {
	e := &auditv1.Event{TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"}, AuditID: types.UID(id), Level: auditv1.LevelRequest,
		Stage: auditv1.StageResponseComplete, Verb: "get", RequestURI: "/a", RequestReceivedTimestamp: metav1.NewMicroTime(morning)}
	for _, f := range change {
		f(e)
	}
	return e
}

func body(text string) func(*auditv1.Event) {
	return func(e *auditv1.Event) { e.RequestObject = &apiruntime.Unknown{Raw: []byte(text)} }
}

func TestJSONLines(t *testing.T) {
	for name, c := range map[string]struct {
		truncate audit.Truncate
		event    *auditv1.Event
		want     string // of the line, from the request object on; "" means no line
	}{
		"body on one line": {event: event("1", body("{\n \"a\": [1,\n2]\n}\n")), want: `"requestObject":{"a":[1,2]}`},
		"not JSON":         {event: event("1", body("a: \"b\"\nc")), want: `"requestObject":"a: \"b\"\nc"`},
		"no body":          {event: event("1"), want: `"verb":"get"`},
		"small enough":     {truncate: audit.Truncate{Event: 1000}, event: event("1", body(`{"a":1}`)), want: `"requestObject":{"a":1}`},
		"too large":        {truncate: audit.Truncate{Event: 500}, event: event("1", body(`"`+strings.Repeat("x", 600)+`"`)), want: `"annotations":{"audit.k8s.io/truncated":"true"}`},
		"still too large":  {truncate: audit.Truncate{Event: 100}, event: event("1", body(`"`+strings.Repeat("x", 600)+`"`))},
	} {
		t.Run(name, func(t *testing.T) {
			out := &buffer{}
			err := audit.NewLog(out, audit.JSON, c.truncate).Write(context.Background(), []*auditv1.Event{c.event})
			line := out.String()
			if c.want == "" {
				if err == nil || line != "" {
					t.Errorf("wrote %q, %v", line, err)
				}
				return
			}
			if err != nil || !strings.Contains(line, c.want) || strings.Count(line, "\n") != 1 || !json.Valid([]byte(line)) {
				t.Errorf("wrote %q (%v), want %q", line, err, c.want)
			}
			if c.truncate.Event == 500 && strings.Contains(line, "xxx") {
				t.Error("the body is still there")
			}
		})
	}
}

func TestLegacyLines(t *testing.T) {
	out := &buffer{}
	e := event("7", func(e *auditv1.Event) {
		e.SourceIPs, e.UserAgent = []string{"192.0.2.1", "192.0.2.2"}, `a"b`
		e.User.Username, e.User.Groups = "ann", []string{"g", "h"}
		e.ObjectRef = &auditv1.ObjectReference{Namespace: "ns"}
		e.ResponseStatus = &metav1.Status{Code: 404}
	})
	if err := audit.NewLog(out, audit.Legacy, audit.Truncate{}).Write(context.Background(), []*auditv1.Event{e, event("8")}); err != nil {
		t.Fatal(err)
	}
	want := `2026-03-04T05:06:07Z AUDIT: id="7" stage="ResponseComplete" ip="192.0.2.1" method="get" user="ann" groups="\"g\",\"h\"" as="<self>" asgroups="<lookup>" user-agent="a\"b" namespace="ns" uri="/a" response="404"
2026-03-04T05:06:07Z AUDIT: id="8" stage="ResponseComplete" ip="<unknown>" method="get" user="<none>" groups="<none>" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="/a" response="<deferred>"
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

func TestLogFilesAreSetAside(t *testing.T) {
	dir := t.TempDir()
	clock := testclock.NewFakeClock(morning)
	path := filepath.Join(dir, "logs", "audit.log")
	open := func(change func(*audit.FileConfig)) *audit.File {
		cfg := audit.FileConfig{Path: path, MaxSize: 10, MaxBackups: 2, Clock: clock}
		change(&cfg)
		f, err := audit.OpenFile(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write := func(f *audit.File, lines ...string) {
		for i, l := range lines {
			if i > 0 {
				clock.Step(time.Second)
			}
			if _, err := f.Write([]byte(l + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	content := func() map[string]string {
		out := map[string]string{}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(e.Name(), ".gz") {
				z, err := gzip.NewReader(bytes.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				if text, err = io.ReadAll(z); err != nil {
					t.Fatal(err)
				}
			}
			out[e.Name()] = string(text)
		}
		return out
	}
	write(open(func(*audit.FileConfig) {}), "first", "second", "third", "4", "much longer than the limit", "last")
	want := map[string]string{
		"audit.log": "last\n", "audit-2026-03-04T05-06-12.000.log": "much longer than the limit\n", "audit-2026-03-04T05-06-11.000.log": "third\n4\n",
	}
	if d := cmp.Diff(want, content()); d != "" {
		t.Errorf("with two old files kept: %s", d)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the log: %v %v", info.Mode(), err)
	}
	// A file that is there already goes on; old ones are packed; those of others are left alone.
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "audit-notes.log"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(morning.Add(100 * time.Hour))
	write(open(func(c *audit.FileConfig) {
		c.Compress, c.MaxBackups, c.MaxAge = true, 0, 99*time.Hour+59*time.Minute+56500*time.Millisecond
	}), "a", "bcdefghijkl")
	want = map[string]string{"audit.log": "bcdefghijkl\n", "audit-2026-03-08T09-06-08.000.log.gz": "last\na\n", "audit-notes.log": "mine",
		"audit-2026-03-04T05-06-12.000.log.gz": "much longer than the limit\n"}
	if d := cmp.Diff(want, content()); d != "" {
		t.Errorf("with old files packed and the oldest gone: %s", d)
	}
}

func TestARotationNeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := audit.OpenFile(audit.FileConfig{Path: path, MaxSize: 4, Clock: testclock.NewFakeClock(morning)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // all within the same millisecond
		if _, err := fmt.Fprintf(f, "%03d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.log"))
	if err != nil || len(files) != 20 {
		t.Errorf("%d files: %v", len(files), err)
	}
	if _, err := f.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed file was written: %v", err)
	}
}

func TestBatches(t *testing.T) {
	sink := newMemory()
	clock := testclock.NewFakeClock(morning)
	evaluator, _, err := audit.LoadPolicy(policyFile(t, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, omitStages: [RequestReceived]}]"))
	if err != nil {
		t.Fatal(err)
	}
	a := audit.New(audit.Config{Policy: evaluator, Clock: clock, Outputs: []audit.Output{{Sink: sink, Mode: audit.Batch, Batch: audit.BatchConfig{Buffer: 100, Size: 3, Wait: time.Minute}}}})
	for i := range 3 {
		a.Begin(from(fmt.Sprint(i)), get("ann", "ns", "pods", "", "p")).Complete(200)
	}
	<-sink.came // a full batch goes at once
	a.Begin(from("3"), get("ann", "ns", "pods", "", "p")).Complete(200)
	untilWaited(t, clock) // the batch waits for more
	clock.Step(time.Minute)
	<-sink.came
	a.Begin(from("4"), get("ann", "ns", "pods", "", "p")).Complete(200)
	if err := a.Close(context.Background()); err != nil { // what waits is written at the end
		t.Fatal(err)
	}
	var sizes []int
	for _, b := range sink.batches {
		sizes = append(sizes, len(b))
	}
	if d := cmp.Diff([]int{3, 1, 1}, sizes); d != "" {
		t.Error(d)
	}
}

// untilWaited returns when somebody waits for the clock.
func untilWaited(t *testing.T, clock *testclock.FakeClock) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !clock.HasWaiters(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the clock")
		}
	}
}

func TestAFullBufferDropsAndCounts(t *testing.T) {
	sink := newMemory()
	sink.mu.Lock() // the output hangs
	a, metrics := start(t, "rules: [{level: Metadata, omitStages: [RequestReceived]}]", audit.Output{Sink: sink, Mode: audit.Batch, Batch: audit.BatchConfig{Buffer: 10, Size: 1}})
	for range 100 {
		r := a.Begin(from("1"), get("ann", "ns", "pods", "", "p"))
		r.Complete(200)
	}
	dropped := count(t, metrics, "apiserver_audit_error_total", "buffered")
	sink.mu.Unlock()
	if err := a.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if kept := len(sink.events()); kept > 11 || kept+int(dropped) != 100 {
		t.Errorf("kept %d, dropped %v of 100 with room for 10", kept, dropped)
	}
}

// receiver is a webhook that answers with codes in order, then 200.
type receiver struct {
	mu    sync.Mutex
	codes []int
	calls int
	lists []*auditv1.EventList
	token string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.token = req.Header.Get("Authorization")
	if len(r.codes) > 0 {
		code := r.codes[0]
		r.codes = r.codes[1:]
		if code == http.StatusTemporaryRedirect {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(code)
		return
	}
	list := &auditv1.EventList{}
	if err := json.NewDecoder(req.Body).Decode(list); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.lists = append(r.lists, list)
}

func newWebhook(t *testing.T, r *receiver, truncate audit.Truncate) *audit.Webhook {
	t.Helper()
	srv := httptest.NewTLSServer(r)
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {insecure-skip-tls-verify: true, server: '" + srv.URL + "/audit'}}]\nusers: [{name: b, user: {token: sesame}}]\ncontexts: [{name: c, context: {cluster: a, user: b}}]\ncurrent-context: c\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := audit.NewWebhook(audit.WebhookConfig{Kubeconfig: path, Backoff: time.Microsecond, Truncate: truncate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestTheWebhookIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		codes []int
		calls int
		ok    bool
	}{
		"at once":            {nil, 1, true},
		"after a fault":      {[]int{500, 503}, 3, true},
		"too many requests":  {[]int{429}, 2, true},
		"refused for good":   {[]int{403}, 1, false},
		"never":              {[]int{500, 500, 500, 500, 500, 500}, 5, false},
		"redirects are none": {[]int{307}, 1, false},
	} {
		r := &receiver{codes: c.codes}
		err := newWebhook(t, r, audit.Truncate{}).Write(context.Background(), []*auditv1.Event{event("1"), event("2")})
		if (err == nil) != c.ok || r.calls != c.calls {
			t.Errorf("%s: %d calls, %v", name, r.calls, err)
		}
		if c.ok && (len(r.lists) != 1 || len(r.lists[0].Items) != 2 || r.lists[0].Kind != "EventList" || r.lists[0].APIVersion != "audit.k8s.io/v1" || r.lists[0].Items[1].AuditID != "2" || r.token != "Bearer sesame") {
			t.Errorf("%s: got %+v with %q", name, r.lists, r.token)
		}
	}
}

func TestLargeBatchesAreSplit(t *testing.T) {
	r := &receiver{}
	w := newWebhook(t, r, audit.Truncate{Event: 2000, Batch: 2500})
	large := body(`"` + strings.Repeat("x", 900) + `"`)
	huge := func(e *auditv1.Event) { e.RequestURI = strings.Repeat("u", 3000) }
	err := w.Write(context.Background(), []*auditv1.Event{event("1", large), event("2", large), event("3", huge), event("4", large), event("5")})
	if err == nil || !strings.Contains(err.Error(), "event 3") {
		t.Errorf("an event that can't be sent: %v", err)
	}
	var got []string
	for _, l := range r.lists {
		ids := ""
		for _, e := range l.Items {
			ids += string(e.AuditID)
		}
		got = append(got, ids)
	}
	if d := cmp.Diff([]string{"1", "2", "4", "5"}, strings.Split(strings.Join(got, ""), "")); d != "" || len(got) < 2 {
		t.Errorf("%v %s", got, d)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*audit.Options)
		want   string
	}{
		"defaults":        {func(*audit.Options) {}, ""},
		"unused output":   {func(o *audit.Options) { o.Webhook.Mode = "never" }, ""},
		"log mode":        {func(o *audit.Options) { o.Log.Mode = "sometimes" }, `--audit-log-mode "sometimes"`},
		"format":          {func(o *audit.Options) { o.Log.Format = "xml" }, `--audit-log-format "xml"`},
		"age":             {func(o *audit.Options) { o.Log.MaxAge = -1 }, "--audit-log-maxage -1"},
		"version":         {func(o *audit.Options) { o.Log.Version = "audit.k8s.io/v1beta1" }, "--audit-log-version"},
		"batch":           {func(o *audit.Options) { o.Log.Mode, o.Log.Batch.Buffer = "batch", 0 }, "--audit-log-batch-buffer-size 0"},
		"unused batch":    {func(o *audit.Options) { o.Log.Batch.Buffer = 0 }, ""},
		"truncation":      {func(o *audit.Options) { o.Log.Truncate.Batch = 1 }, "--audit-log-truncate-max-batch-size 1"},
		"throttle":        {func(o *audit.Options) { o.Webhook.ConfigFile, o.Webhook.Batch.QPS = "x", 0 }, "--audit-webhook-batch-throttle-qps 0"},
		"webhook backoff": {func(o *audit.Options) { o.Webhook.ConfigFile, o.Webhook.Backoff = "x", -1 }, "--audit-webhook-initial-backoff"},
	} {
		o := audit.DefaultOptions()
		o.Log.Path = "audit.log"
		c.change(&o)
		err := o.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	missing := audit.DefaultOptions()
	missing.PolicyFile, missing.Webhook.ConfigFile = policyFile(t, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]"), "/does/not/exist"
	if _, err := missing.Start(nil, nil, nil); err == nil || !strings.Contains(err.Error(), "--audit-webhook-config-file /does/not/exist") {
		t.Errorf("a missing kubeconfig: %v", err)
	}
}
