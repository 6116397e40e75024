package apiserver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/kind"
)

func TestWhoMayDoWhat(t *testing.T) {
	h := start(t)
	if a := h.do("GET", "/api/v1/configmaps", "", userHeader, "nobody"); a.code != 401 || !strings.Contains(a.body, `"reason":"Unauthorized"`) {
		t.Errorf("nobody: %+v", a)
	}
	a := h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"a"}}`, userHeader, "reader")
	want := `configmaps is forbidden: User \"reader\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"ns\"`
	if a.code != 403 || !strings.Contains(a.body, want) {
		t.Errorf("reader creates: %+v", a)
	}
	if a := h.do("DELETE", "/apis/apps/v1/namespaces/ns/deployments/d", "", userHeader, "reader"); a.code != 403 || !strings.Contains(a.body, `deployments.apps \"d\" is forbidden: User`) {
		t.Errorf("reader deletes: %+v", a)
	}
	if a := h.do("POST", "/version", "", userHeader, "reader"); a.code != 403 || !strings.Contains(a.body, `forbidden: User \"reader\" cannot post path \"/version\"`) {
		t.Errorf("reader posts: %+v", a)
	}
	reader := h.server.Local(&user.DefaultInfo{Name: "reader"})
	if _, err := reader.Create(within(t), configMaps(), configMap("a", nil), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("in process: %v", err)
	}
	if _, _, err := reader.List(within(t), configMaps(), metav1.ListOptions{}); err != nil {
		t.Errorf("in process, reading: %v", err)
	}
}

// noResource is what a path says that is none, in a group and version that is served.
const noResource = `"message":"the server could not find the requested resource","reason":"NotFound"`

func TestUnknownPaths(t *testing.T) {
	h := start(t)
	for path, want := range map[string]string{
		"/api/v1/namespaces/ns/nosuch": noResource, "/apis/none/v1/things": "404 page not found\n", "/nosuch": "404 page not found\n",
		"/apis/apps/v1/namespaces/ns/deployments/d/nosuch": noResource, "/api/v1/namespaces/ns/namespaces/x": noResource, "/api/v1/configmaps/a": noResource,
	} {
		if a := h.do("GET", path, ""); a.code != 404 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps/a", "{}"); a.code != 405 || !strings.Contains(a.body, "MethodNotAllowed") {
		t.Errorf("POST to a name: %+v", a)
	}
	if a := h.do("TRACE", "/api/v1/namespaces/ns/configmaps/a", ""); a.code != 405 {
		t.Errorf("TRACE: %+v", a)
	}
	_, err := h.client().CoreV1().Secrets("ns").Get(within(t), "s", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || err.Error() != "the server could not find the requested resource (get secrets s)" && err.Error() != "the server could not find the requested resource" {
		t.Errorf("client-go about a kind that is not served: %v", err)
	}
}

func TestBodyLimit(t *testing.T) {
	h := start(t, func(c *apiserverConfig) { c.Limits.Body = 1000 })
	body := `{"metadata":{"name":"a"},"data":{"x":"` + strings.Repeat("x", 2000) + `"}}`
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps", body); a.code != 413 || !strings.Contains(a.body, "RequestEntityTooLarge") {
		t.Errorf("with a length: %+v", a)
	}
	req := must(http.NewRequest("POST", h.http.URL+"/api/v1/namespaces/ns/configmaps", struct{ *strings.Reader }{strings.NewReader(body)}))
	resp := must(http.DefaultClient.Do(req))
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("without a length: %d", resp.StatusCode)
	}
}

// plugin is an admission plugin made of functions.
type plugin struct {
	mutate   func(*kind.AdmissionRequest) error
	validate func(*kind.AdmissionRequest) error
}

func (plugin) Name() string { return "Test" }
func (p plugin) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	return p.mutate(r)
}
func (p plugin) Validate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	return p.validate(r)
}

func TestAdmission(t *testing.T) {
	var ops []string
	p := plugin{
		mutate: func(r *kind.AdmissionRequest) error {
			if pod, ok := r.Object.(*corev1.Pod); ok {
				if pod.Spec.RestartPolicy == "" {
					return errors.New("plugins must see defaulted objects")
				}
				pod.Spec.RestartPolicy = "" // defaulted again
				pod.Labels = map[string]string{"admitted": string(r.Operation)}
			}
			return nil
		},
		validate: func(r *kind.AdmissionRequest) error {
			ops = append(ops, string(r.Operation)+" "+r.Ref.Subresource+" "+r.User.GetName())
			if r.Operation == "DELETE" && r.Old.GetName() == "keep" {
				return errors.New("kept")
			}
			r.Warn("careful")
			return nil
		},
	}
	h := start(t, func(c *apiserverConfig) { c.Mutators, c.Validators = []kind.Mutator{p}, []kind.Validator{p} })
	ctx := within(t)
	c := h.client().CoreV1().Pods("ns")
	made := must(c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "keep"}}, metav1.CreateOptions{}))
	if made.Spec.RestartPolicy != "Always" || made.Labels["admitted"] != "CREATE" {
		t.Errorf("made %+v", made)
	}
	for _, m := range made.ManagedFields {
		if strings.Contains(m.FieldsV1.String(), "admitted") {
			t.Errorf("the client owns what a plugin set: %s", m.FieldsV1)
		}
	}
	if err := c.Delete(ctx, "keep", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "admission plugin Test: kept") {
		t.Errorf("delete: %v", err)
	}
	must(h.local().Update(ctx, podRef("keep"), made, metav1.UpdateOptions{}))
	if err := c.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "keep"}, Target: corev1.ObjectReference{Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	want := "CREATE  tester|DELETE  tester|UPDATE  system:loop|CREATE binding tester"
	if got := strings.Join(ops, "|"); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	if a := h.do("POST", "/api/v1/namespaces/ns/pods", `{"metadata":{"name":"w"}}`); a.header.Get("Warning") != `299 - "careful"` {
		t.Errorf("warning %q", a.header.Get("Warning"))
	}
}

func TestPanicsEndOneRequest(t *testing.T) {
	p := plugin{mutate: func(*kind.AdmissionRequest) error { panic("boom") }}
	h := start(t, func(c *apiserverConfig) { c.Mutators = []kind.Mutator{p} })
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"a"}}`); a.code != 500 || strings.Contains(a.body, "boom") {
		t.Errorf("answered %+v", a)
	}
	if a := h.do("GET", "/livez", ""); a.code != 200 {
		t.Errorf("then: %+v", a)
	}
}

func TestOverloadIsRefusedButNotToAdministrators(t *testing.T) {
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	p := plugin{mutate: func(r *kind.AdmissionRequest) error {
		if strings.HasPrefix(r.Ref.Name, "slow") {
			entered <- struct{}{}
			<-leave
		}
		return nil
	}}
	h := start(t, func(c *apiserverConfig) {
		c.Mutators = []kind.Mutator{p}
		c.Limits.MutatingInFlight = 1
	})
	go h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"slow"}}`)
	<-entered
	a := h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"b"}}`)
	if a.code != 429 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "TooManyRequests") {
		t.Errorf("answered %+v", a)
	}
	for who, path := range map[string]string{"admin,system:masters": "configmaps", "system:node:n,system:nodes": "nodes"} {
		body := `{"metadata":{"name":"c"}}`
		if a := h.do("POST", "/api/v1/namespaces/ns/"+path, body, userHeader, who); a.code == 429 {
			t.Errorf("%s was kept out: %+v", who, a)
		}
	}
	if a := h.do("GET", "/api/v1/configmaps", ""); a.code != 200 {
		t.Errorf("a read waits for writes: %+v", a)
	}
	close(leave)
}

func TestRequestsEndAtTheTimeout(t *testing.T) {
	slow := authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		<-ctx.Done()
		return authorizer.DecisionNoOpinion, "", ctx.Err()
	})
	h := start(t, func(c *apiserverConfig) { c.Authorizer, c.Limits.Timeout = slow, 10*time.Millisecond })
	if a := h.do("GET", "/api/v1/configmaps", ""); a.code != 504 || !strings.Contains(a.body, `"reason":"Timeout"`) {
		t.Errorf("answered %+v", a)
	}
}

func TestHealth(t *testing.T) {
	var sick atomic.Bool
	h := start(t, func(c *apiserverConfig) {
		c.Checks = []apiserver.Check{{Name: "disk", ReadyOnly: true, Run: func(context.Context) error {
			if sick.Load() {
				return errors.New("the password is hunter2")
			}
			return nil
		}}}
	})
	if a := h.do("GET", "/readyz", ""); a.code != 200 || a.body != "ok" {
		t.Errorf("%+v", a)
	}
	if a := h.do("GET", "/readyz?verbose", ""); !strings.Contains(a.body, "[+]disk ok\n") || !strings.HasSuffix(a.body, "readyz check passed\n") {
		t.Errorf("%+v", a)
	}
	sick.Store(true)
	if a := h.do("GET", "/readyz", ""); a.code != 500 || !strings.Contains(a.body, "[-]disk failed: reason withheld") || strings.Contains(a.body, "hunter2") {
		t.Errorf("%+v", a)
	}
	for path, code := range map[string]int{"/livez": 200, "/readyz/ping": 200, "/readyz/disk": 500, "/readyz/none": 404, "/readyz?exclude=disk": 200, "/livez/disk": 404} {
		if a := h.do("GET", path, ""); a.code != code {
			t.Errorf("%s: %+v", path, a)
		}
	}
	h.server.Drain()
	if a := h.do("GET", "/readyz?exclude=disk", ""); a.code != 500 || !strings.Contains(a.body, "[-]shutdown failed") {
		t.Errorf("while draining: %+v", a)
	}
}

func TestVersionAndMetrics(t *testing.T) {
	h := start(t)
	if v := h.do("GET", "/version", "").json(t); v["minor"] != "36" || !strings.HasPrefix(v["gitVersion"].(string), "v1.36.") {
		t.Errorf("version %v", v)
	}
	h.do("POST", "/api/v1/namespaces/ns/configmaps?dryRun=All", `{"metadata":{"name":"a"}}`)
	h.do("GET", "/api/v1/namespaces/ns/configmaps/none", "")
	got := h.do("GET", "/metrics", "").body
	for _, line := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="404",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="All"`,
		`authentication_attempts{result="success"} 4`,
		`authorization_attempts_total{result="allowed"} 4`,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no %s", line)
		}
	}
}

func TestAuditHearsOfEveryAnswer(t *testing.T) {
	heard := make(chan apiserver.AuditEvent, 4)
	h := start(t, func(c *apiserverConfig) { c.Audit = func(e apiserver.AuditEvent) { heard <- e } })
	h.do("GET", "/api/v1/namespaces/ns/configmaps/x", "", userHeader, "me")
	if e := <-heard; e.User.GetName() != "me" || e.Verb != "get" || e.Resource.Name != "x" || e.Code != 404 || e.From != "127.0.0.1" {
		t.Errorf("heard %+v", e)
	}
	h.do("GET", "/version", "", userHeader, "nobody")
	if e := <-heard; e.User != nil || e.Code != 401 {
		t.Errorf("heard %+v", e)
	}
}

func TestServeDrains(t *testing.T) {
	h := start(t)
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(ctx, ln, nil) }()
	resp := must(http.Get("http://" + ln.Addr().String() + "/api/v1/configmaps?watch=1"))
	defer resp.Body.Close()
	stop()
	buf := make([]byte, 1)
	if n, err := resp.Body.Read(buf); n != 0 || err == nil {
		t.Errorf("the watch went on: %d %v", n, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Permission can hang on what a list or watch is narrowed to, over HTTP and in process alike.
func TestSelectorsReachTheAuthorizer(t *testing.T) {
	own := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		selected, _ := a.GetFieldSelector()
		if a.GetName() == "mine" || len(selected) == 1 && selected[0].Field == "spec.nodeName" && selected[0].Value == "n1" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "not yours", nil
	})
	h := start(t, func(c *apiserverConfig) { c.Authorizer = own })
	for selector, allowed := range map[string]bool{"spec.nodeName=n1": true, "metadata.name=mine": true, "spec.nodeName=n2": false, "": false} {
		a := h.do("GET", "/api/v1/pods?fieldSelector="+selector, "")
		_, _, err := h.local().List(within(t), podRef(""), metav1.ListOptions{FieldSelector: selector})
		if (a.code == 200) != allowed || (err == nil) != allowed {
			t.Errorf("%q: %d over HTTP, %v in process", selector, a.code, err)
		}
		if !allowed && !strings.Contains(a.body, "not yours") {
			t.Errorf("%q: refused without a reason: %s", selector, a.body)
		}
	}
}
