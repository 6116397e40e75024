package apiserver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/fairness"
	"github.com/yare-project/yare/kinds/flowcontrol"
)

// served is a harness's server behind a real listener, as the composition root runs it.
type served struct {
	t    *testing.T
	addr string
	stop context.CancelFunc
	end  chan error
}

// serve starts it; with TLS it speaks HTTP/2 and HTTP/1.1.
func (h *harness) serve(t *testing.T, secure bool) *served {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(context.Background())
	s := &served{t: t, addr: ln.Addr().String(), stop: stop, end: make(chan error, 1)}
	var config *tls.Config
	if secure {
		config = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	}
	go func() { s.end <- h.server.Serve(ctx, ln, config) }()
	t.Cleanup(stop)
	return s
}

// client makes one with connections of its own.
func (s *served) client(http2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (s *served) url(path string) string { return "https://" + s.addr + path }

// fair has the server share itself by the objects of a fresh cluster.
func fair(seats int) (func(*apiserverConfig), *fairness.Controller) {
	m, suggested := flowcontrol.Mandatory(), flowcontrol.Suggested()
	reg := prometheus.NewRegistry()
	f := fairness.New(fairness.Config{Levels: m.Levels, Schemas: m.Schemas, Seats: seats, Clock: clock.RealClock{}, Metrics: reg})
	for _, o := range append(m.Levels, suggested.Levels...) {
		o.UID = types.UID("level-" + o.Name)
		f.Set(o)
	}
	for _, o := range append(m.Schemas, suggested.Schemas...) {
		o.UID = types.UID("schema-" + o.Name)
		f.Set(o)
	}
	return func(c *apiserverConfig) {
		c.Fairness, c.Metrics = f, reg
		c.Paths = map[string]http.Handler{fairness.DebugPath: f}
	}, f
}

// figures reads the numbers of one row of a table that the server shows, by column.
func figures(h *harness, level string) map[string]string {
	a := h.do("GET", fairness.DebugPath+"dump_priority_levels", "", userHeader, "admin,system:masters")
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	split := func(line string) (out []string) {
		for _, c := range strings.Split(line, ",") {
			out = append(out, strings.TrimSpace(c))
		}
		return out
	}
	head := split(lines[0])
	for _, line := range lines[1:] {
		if row := split(line); row[0] == level {
			out := map[string]string{}
			for i, name := range head {
				out[name] = row[i]
			}
			return out
		}
	}
	return nil
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within 20 s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// One user floods the server with 500 lists at once, none of which ends. A node's heartbeat and an administrator are answered meanwhile, and as
// the flood's requests end one by one, somebody else's turn comes long before the flood is through.
func TestAFloodHoldsUpNobodyElse(t *testing.T) {
	adjust, _ := fair(245)
	release := make(chan struct{})
	h := start(t, adjust, func(c *apiserverConfig) {
		c.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "flood" {
				select {
				case <-release:
				case <-ctx.Done():
					return authorizer.DecisionDeny, "", ctx.Err()
				}
			}
			return authorizer.DecisionAllow, "", nil
		})
	})
	s := h.serve(t, true)
	get := func(c *http.Client, method, path, body, who string) (int, http.Header) {
		req := must(http.NewRequest(method, s.url(path), strings.NewReader(body)))
		req.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == "PATCH"])
		req.Header.Set(userHeader, who+",system:authenticated")
		resp, err := c.Do(req)
		if err != nil {
			t.Errorf("%s: %v", who, err)
			return 0, nil
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header
	}
	if code, _ := get(s.client(true), "POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`, "admin,system:masters"); code != 201 {
		t.Fatal(code)
	}
	flood := s.client(true)
	answers := make(chan int, 500)
	for range 500 {
		go func() {
			code, header := get(flood, "GET", "/api/v1/pods", "", "flood")
			if code == 429 && header.Get("Retry-After") == "" {
				t.Error("refused without Retry-After")
			}
			answers <- code
		}()
	}
	waitFor(t, "the flood to be in", func() bool {
		row := figures(h, "global-default")
		return sum(row["WaitingRequests"], row["ExecutingRequests"], row["RejectedRequests"]) == 500
	})
	row := figures(h, "global-default")
	running := sum(row["ExecutingRequests"])
	if sum(row["WaitingRequests"]) < 200 || sum(row["RejectedRequests"]) < 50 {
		t.Fatalf("the flood is not what it should be: %v", row)
	}
	for i := range 20 {
		body := fmt.Sprintf(`{"status":{"phase":"beat-%d"}}`, i)
		code, header := get(s.client(true), "PATCH", "/api/v1/nodes/n/status", body, "system:node:n,system:nodes")
		if code != 200 || header.Get("X-Kubernetes-PF-PriorityLevel-UID") != "level-node-high" || header.Get("X-Kubernetes-PF-FlowSchema-UID") != "schema-system-node-high" {
			t.Fatalf("a heartbeat was answered %d as of %s", code, header.Get("X-Kubernetes-PF-FlowSchema-UID"))
		}
	}
	if code, header := get(s.client(false), "GET", "/api/v1/pods", "", "admin,system:masters"); code != 200 || header.Get("X-Kubernetes-PF-FlowSchema-UID") != "schema-exempt" {
		t.Errorf("an administrator was answered %d", code)
	}
	if now := figures(h, "global-default"); now["DispatchedRequests"] != row["DispatchedRequests"] {
		t.Errorf("the flood went on meanwhile: %v", now)
	}
	lone := make(chan int, 1)
	go func() {
		code, _ := get(s.client(true), "GET", "/api/v1/configmaps", "", "lone")
		lone <- code
	}()
	waitFor(t, "the other to wait", func() bool {
		return sum(figures(h, "global-default")["WaitingRequests"]) == sum(row["WaitingRequests"])+1
	})
	for ended, heard := 0, 0; ; ended++ {
		select {
		case code := <-lone:
			if code != 200 {
				t.Errorf("answered %d", code)
			}
			if flood := running + sum(row["WaitingRequests"]); ended > flood/2 {
				t.Errorf("its turn came after %d of the flood's %d", ended, flood)
			}
			close(release)
			for ; heard < 500; heard++ {
				select {
				case code := <-answers:
					if code != 200 && code != 429 {
						t.Fatalf("the flood was answered %d", code)
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("only %d of the flood were answered", heard)
				}
			}
			return
		case release <- struct{}{}:
			heard += nextAnswer(t, answers)
		}
	}
}

// nextAnswer takes answers until one is no refusal, and returns how many.
func nextAnswer(t *testing.T, answers <-chan int) int {
	t.Helper()
	for n := 1; ; n++ {
		select {
		case code := <-answers:
			if code != 429 {
				return n
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nobody was answered")
		}
	}
}

func sum(numbers ...string) (n int) {
	for _, text := range numbers {
		var v int
		_, _ = fmt.Sscan(text, &v)
		n += v
	}
	return n
}

// A watch holds its seat until it has begun, however long it lasts.
func TestAWatchLeavesItsSeatOnceItHasBegun(t *testing.T) {
	adjust, _ := fair(245)
	h := start(t, adjust)
	var open sync.WaitGroup
	defer open.Wait()
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	for i := range 100 {
		req := must(http.NewRequestWithContext(ctx, "GET", h.http.URL+"/api/v1/configmaps?watch=1&resourceVersion="+[]string{"", "1"}[i%2], nil))
		req.Header.Set(userHeader, "jane,system:authenticated")
		resp := must(h.http.Client().Do(req))
		if resp.StatusCode != 200 || resp.Header.Get("X-Kubernetes-PF-PriorityLevel-UID") != "level-global-default" {
			t.Fatalf("watch %d: %d", i, resp.StatusCode)
		}
		open.Go(func() { _, _ = io.Copy(io.Discard, resp.Body); resp.Body.Close() })
	}
	waitFor(t, "all seats to be free", func() bool {
		row := figures(h, "global-default")
		return row["ExecutingRequests"] == "0" && row["DispatchedRequests"] == "100"
	})
	if got := h.do("GET", "/metrics", "", userHeader, "admin,system:masters").body; !strings.Contains(got, `apiserver_flowcontrol_request_execution_seconds_count{flow_schema="global-default",priority_level="global-default",type="watch"} 100`) {
		t.Error("the watches are not counted as such")
	}
}

func TestTheTimeThatAClientGives(t *testing.T) {
	slow := authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "slow" {
			<-ctx.Done()
			return authorizer.DecisionNoOpinion, "", ctx.Err()
		}
		return authorizer.DecisionAllow, "", nil
	})
	h := start(t, func(c *apiserverConfig) { c.Authorizer = slow })
	a := h.do("GET", "/api/v1/configmaps?timeout=20ms", "", userHeader, "slow")
	if doc := a.json(t); a.code != 504 || doc["reason"] != "Timeout" || !strings.Contains(doc["message"].(string), "request did not complete within the allotted timeout") {
		t.Errorf("answered %+v", a)
	}
	if a := h.do("GET", "/api/v1/configmaps?timeout=soon", ""); a.code != 400 || !strings.Contains(a.body, "invalid timeout specified in the request URL") {
		t.Errorf("answered %+v", a)
	}
	for _, timeout := range []string{"0s", "1h", "30s"} {
		if a := h.do("GET", "/api/v1/configmaps?timeout="+timeout, ""); a.code != 200 {
			t.Errorf("timeout %s: %+v", timeout, a)
		}
	}
	short := start(t, func(c *apiserverConfig) { c.Authorizer, c.Limits.Timeout = slow, 20*time.Millisecond })
	if a := short.do("GET", "/api/v1/configmaps?timeout=1h", "", userHeader, "slow"); a.code != 504 {
		t.Errorf("more than the server allows: %+v", a)
	}
}

// A client that announces a body and does not send it is answered when its time is over.
func TestABodyThatDoesNotComeEndsInTime(t *testing.T) {
	h := start(t, func(c *apiserverConfig) { c.Limits.Timeout = 50 * time.Millisecond })
	s := h.serve(t, false)
	for _, query := range []string{"?timeout=20ms", ""} {
		conn := must(net.Dial("tcp", s.addr))
		defer conn.Close()
		fmt.Fprintf(conn, "POST /api/v1/namespaces/ns/configmaps%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", query)
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		head := make([]byte, 12)
		if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 504" {
			t.Errorf("%q: answered %q, %v", query, head, err)
		}
	}
}
