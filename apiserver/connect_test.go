package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/kind"
)

// backend is a node agent: it echoes after an upgrade, streams a log, and shows what it was asked.
func backend(release chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		line, err := rw.ReadString('\n')
		if err == nil {
			fmt.Fprintf(conn, "echo %s", line)
		}
	})
	mux.HandleFunc("/log", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "first")
		w.(http.Flusher).Flush()
		<-release
		fmt.Fprintln(w, "second")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s auth=%q", r.Method, r.URL, r.Header.Get("Authorization"))
	})
	return mux
}

// connecting serves pods whose streams go to target.
func connecting(t *testing.T, to *url.URL, node string, conf *tls.Config, adjust ...func(*apiserverConfig)) *harness {
	group := &kind.Group{Versions: []string{"v1"}, AddToScheme: groups()[0].AddToScheme}
	connect := func(ctx context.Context, _ kind.Env, p *corev1.Pod, path string, query url.Values) (kind.Target, error) {
		u := *to
		u.Path, u.RawQuery = path, query.Encode()
		if via := kind.ViaOf(ctx); via != (kind.Via{}) {
			u.RawQuery = url.Values{"via": {fmt.Sprint(via)}}.Encode()
		}
		return kind.Target{URL: &u, Node: node, Stream: true}, nil
	}
	named := func(name string) func(context.Context, kind.Env, *corev1.Pod, string, url.Values) (kind.Target, error) {
		return func(ctx context.Context, env kind.Env, p *corev1.Pod, _ string, q url.Values) (kind.Target, error) {
			return connect(ctx, env, p, "/"+name, q)
		}
	}
	kind.Add(group, kind.Def[corev1.Pod]{Names: kind.Names{Plural: "pods"}, Subs: []kind.Sub[corev1.Pod]{
		{Name: "exec", Connect: named("exec"), Methods: []string{"GET", "POST"}, Also: "create"},
		{Name: "attach", Connect: named("attach"), Methods: []string{"GET", "POST"}},
		{Name: "portforward", Connect: named("portforward"), Methods: []string{"GET", "POST"}},
		{Name: "log", Connect: named("log"), Methods: []string{"GET"}, Verb: "get"},
		{Name: "proxy", Connect: connect, Methods: []string{"GET", "PUT"}, Named: true},
		{Name: "nothing", Methods: []string{"GET"}, Verb: "get",
			Connect: func(context.Context, kind.Env, *corev1.Pod, string, url.Values) (kind.Target, error) {
				return kind.Target{}, nil
			}},
	}})
	h := start(t, append(adjust, func(c *apiserverConfig) { c.Groups, c.NodeTLS = []*kind.Group{group}, conf })...)
	must(h.local().Create(within(t), podRef(""), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}, metav1.CreateOptions{}))
	return h
}

func TestConnectUpgrades(t *testing.T) {
	back := httptest.NewServer(backend(nil))
	defer back.Close()
	h := connecting(t, must(url.Parse(back.URL)), "", nil)
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		conn := must(net.Dial("tcp", h.http.Listener.Addr().String()))
		defer conn.Close()
		fmt.Fprintf(conn, "POST /api/v1/namespaces/ns/pods/p/exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n", protocol)
		r := bufio.NewReader(conn)
		resp := must(http.ReadResponse(r, nil))
		if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != protocol {
			t.Fatalf("%s: %+v", protocol, resp)
		}
		fmt.Fprintln(conn, "hello")
		if line, err := r.ReadString('\n'); line != "echo hello\n" {
			t.Fatalf("%s: %q %v", protocol, line, err)
		}
	}
}

// A WebSocket begins with a GET, and a shell takes the right to create all the same: both are asked for, whichever the method.
func TestAShellTakesTheRightToCreate(t *testing.T) {
	back := httptest.NewServer(backend(nil))
	defer back.Close()
	h := connecting(t, must(url.Parse(back.URL)), "", nil, func(c *apiserverConfig) {
		c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "both" || a.GetUser().GetName() == a.GetVerb() || a.GetUser().GetName() == "system:loop" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
	})
	for name, test := range map[string]struct {
		who, method, path string
		code              int
		refusal           string
	}{
		"both":                     {"both", "GET", "p/exec", 101, ""},
		"create, by SPDY":          {"create", "POST", "p/exec", 101, ""},
		"get only":                 {"get", "GET", "p/exec", 403, `cannot create resource \"pods/exec\"`},
		"get only, of none":        {"get", "GET", "none/exec", 403, `cannot create resource \"pods/exec\"`},
		"get only, by SPDY":        {"get", "POST", "p/exec", 403, `cannot create resource \"pods/exec\"`},
		"create, by WebSocket":     {"create", "GET", "p/exec", 403, `cannot get resource \"pods/exec\"`},
		"create, of a log":         {"create", "GET", "p/log", 403, `cannot get resource \"pods/log\"`},
		"list, which is no opener": {"list", "GET", "p/exec", 403, `cannot get resource \"pods/exec\"`},
	} {
		conn := must(net.Dial("tcp", h.http.Listener.Addr().String()))
		fmt.Fprintf(conn, "%s /api/v1/namespaces/ns/pods/%s?command=sh HTTP/1.1\r\nHost: x\r\n%s: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n", test.method, test.path, userHeader, test.who)
		resp := must(http.ReadResponse(bufio.NewReader(conn), nil))
		var body []byte
		if resp.StatusCode != 101 {
			body = must(io.ReadAll(resp.Body))
		}
		if resp.StatusCode != test.code || !strings.Contains(string(body), test.refusal) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
		conn.Close()
	}
}

func TestConnectStreamsAsItComes(t *testing.T) {
	release := make(chan struct{})
	back := httptest.NewServer(backend(release))
	defer back.Close()
	h := connecting(t, must(url.Parse(back.URL)), "", nil)
	stream := must(h.client().CoreV1().Pods("ns").GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(within(t)))
	defer stream.Close()
	r := bufio.NewReader(stream)
	if line := must(r.ReadString('\n')); line != "first\n" {
		t.Fatal(line)
	}
	close(release)
	if line := must(r.ReadString('\n')); line != "second\n" {
		t.Fatal(line)
	}
}

func TestConnectProxies(t *testing.T) {
	back := httptest.NewServer(backend(nil))
	h := connecting(t, must(url.Parse(back.URL)), "", nil)
	a := h.do("PUT", "/api/v1/namespaces/ns/pods/p/proxy/a/b/?q=1", "", "Authorization", "Bearer secret")
	if a.code != http.StatusTeapot || a.body != `PUT /a/b/?q=1 auth=""` {
		t.Errorf("%+v", a)
	}
	if a := h.do("DELETE", "/api/v1/namespaces/ns/pods/p/proxy/a", ""); a.code != 405 {
		t.Errorf("a method that is not served: %+v", a)
	}
	if a := h.do("GET", "/api/v1/namespaces/ns/pods/none/proxy/a", ""); a.code != 404 {
		t.Errorf("no such pod: %+v", a)
	}
	back.Close()
	if a := h.do("GET", "/api/v1/namespaces/ns/pods/p/proxy/a", ""); a.code != 503 || !strings.Contains(a.body, "error trying to reach service") {
		t.Errorf("the backend has gone: %+v", a)
	}
}

// A node agent must show a certificate for its own name.
func TestConnectChecksNodes(t *testing.T) {
	back := httptest.NewTLSServer(backend(nil))
	defer back.Close()
	roots := x509.NewCertPool()
	roots.AddCert(back.Certificate())
	for node, code := range map[string]int{"example.com": http.StatusTeapot, "impostor": 503} {
		h := connecting(t, must(url.Parse(back.URL)), node, &tls.Config{RootCAs: roots})
		if a := h.do("GET", "/api/v1/namespaces/ns/pods/p/proxy/", ""); a.code != code {
			t.Errorf("%s: %+v", node, a)
		}
	}
	h := connecting(t, must(url.Parse(back.URL)), "example.com", nil)
	if a := h.do("GET", "/api/v1/namespaces/ns/pods/p/proxy/", ""); a.code != 503 {
		t.Errorf("without a client certificate: %+v", a)
	}
}

// Where there is nothing to connect to, and no fault in it, the answer is empty: the log of a pod that no node has yet.
func TestNothingToConnectTo(t *testing.T) {
	h := connecting(t, &url.URL{}, "", nil)
	if a := h.do("GET", "/api/v1/namespaces/ns/pods/p/nothing", ""); a.code != http.StatusNoContent || a.body != "" {
		t.Errorf("%+v", a)
	}
}
