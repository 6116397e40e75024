package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	translate "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	criportforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	criremote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	streaming "k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	"k8s.io/utils/exec"

	"github.com/yare-project/yare/kind"
)

// container runs what tests ask for: "upper" turns its input into capitals, "exit" fails with code 7, "size" tells the terminal's size.
type container struct{}

func (container) ExecInContainer(_ context.Context, _, _, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan criremote.TerminalSize, _ time.Duration) error {
	switch cmd[0] {
	case "upper":
		data, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		fmt.Fprint(out, strings.ToUpper(string(data)))
		fmt.Fprint(errOut, "end of input")
	case "exit":
		return exec.CodeExitError{Err: errors.New("it failed"), Code: 7}
	case "size":
		size := <-resize
		fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
	}
	return nil
}

func (c container) AttachContainer(ctx context.Context, pod, uid, name string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan criremote.TerminalSize) error {
	return c.ExecInContainer(ctx, pod, uid, name, []string{"upper"}, in, out, errOut, tty, resize, 0)
}

func (container) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(stream, buf); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stream, "%s on %d", buf, port)
	return err
}

// nodeAgent streams as a node's agent does. A modern one speaks the protocols of today's WebSocket clients too, an old one only those of the
// container runtimes.
func nodeAgent(t *testing.T, modern bool) *url.URL {
	const idle = time.Minute
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	base := must(url.Parse(srv.URL))
	command := func(serve func(w http.ResponseWriter, r *http.Request, o *criremote.Options)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			o, err := criremote.NewOptions(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			if modern && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
				at := *base
				at.Path, at.RawQuery = r.URL.Path, r.URL.RawQuery
				translate.NewStreamTranslatorHandler(&at, nil, 0, translate.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}).ServeHTTP(w, r)
				return
			}
			serve(w, r, o)
		}
	}
	mux.HandleFunc("/exec", command(func(w http.ResponseWriter, r *http.Request, o *criremote.Options) {
		criremote.ServeExec(w, r, container{}, "p", "", "c", r.URL.Query()["command"], o, idle, idle, criremote.SupportedStreamingProtocols)
	}))
	mux.HandleFunc("/attach", command(func(w http.ResponseWriter, r *http.Request, o *criremote.Options) {
		criremote.ServeAttach(w, r, container{}, "p", "", "c", o, idle, idle, criremote.SupportedStreamingProtocols)
	}))
	mux.HandleFunc("/runtime", func(w http.ResponseWriter, r *http.Request) {
		o, err := criportforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		criportforward.ServePortForward(w, r, container{}, "p", "", o, idle, idle, criportforward.SupportedProtocols)
	})
	runtime := *base
	runtime.Path = "/runtime"
	toRuntime := proxy.NewUpgradeAwareHandler(&runtime, nil, false, true, proxyErrors{})
	tunnel := translate.NewTunnelingHandler(toRuntime)
	mux.HandleFunc("/portforward", func(w http.ResponseWriter, r *http.Request) {
		if modern && wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
			tunnel.ServeHTTP(w, r)
			return
		}
		toRuntime.ServeHTTP(w, r)
	})
	return base
}

type proxyErrors struct{}

func (proxyErrors) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// executors are the ways in which clients run commands through the gate.
func (h *harness) executors(sub, query string) map[string]remotecommand.Executor {
	u := must(url.Parse(h.http.URL + "/api/v1/namespaces/ns/pods/p/" + sub + "?" + query))
	s := must(remotecommand.NewSPDYExecutor(h.rest(), "POST", u))
	w := must(remotecommand.NewWebSocketExecutor(h.rest(), "GET", u.String()))
	return map[string]remotecommand.Executor{"SPDY": s, "WebSocket": w, "fallback": must(remotecommand.NewFallbackExecutor(w, s, streaming.IsUpgradeFailure))}
}

func TestCommandsThroughTheGate(t *testing.T) {
	for _, modern := range []bool{true, false} {
		h := connecting(t, nodeAgent(t, modern), "", nil)
		for _, sub := range []string{"exec", "attach"} {
			for name, e := range h.executors(sub, "command=upper&input=1&output=1&error=1") {
				var out, errOut bytes.Buffer
				err := e.StreamWithContext(within(t), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errOut})
				if !modern && name == "WebSocket" {
					if !streaming.IsUpgradeFailure(err) {
						t.Errorf("%s by WebSocket from an old agent: %v, want a failure to upgrade, so that clients fall back", sub, err)
					}
					continue
				}
				if err != nil || out.String() != "HELLO" || errOut.String() != "end of input" {
					t.Errorf("%s by %s (modern %v): stdout %q, stderr %q, %v", sub, name, modern, out.String(), errOut.String(), err)
				}
			}
		}
	}
}

func TestExitCodesAndTerminalSizes(t *testing.T) {
	h := connecting(t, nodeAgent(t, true), "", nil)
	for name, e := range h.executors("exec", "command=exit&output=1") {
		err := e.StreamWithContext(within(t), remotecommand.StreamOptions{Stdout: io.Discard})
		if code, ok := err.(utilexec.CodeExitError); !ok || code.Code != 7 {
			t.Errorf("%s: %v, want exit code 7", name, err)
		}
	}
	for name, e := range h.executors("exec", "command=size&output=1&tty=1") {
		var out bytes.Buffer
		sizes := make(sizes, 1)
		sizes <- remotecommand.TerminalSize{Width: 80, Height: 24}
		if err := e.StreamWithContext(within(t), remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: sizes}); err != nil || out.String() != "80x24" {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
		close(sizes)
	}
}

type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, open := <-s
	if !open {
		return nil
	}
	return &size
}

func TestPortForwardThroughTheGate(t *testing.T) {
	for _, modern := range []bool{true, false} {
		h := connecting(t, nodeAgent(t, modern), "", nil)
		u := must(url.Parse(h.http.URL + "/api/v1/namespaces/ns/pods/p/portforward"))
		transport, upgrader, err := spdy.RoundTripperFor(h.rest())
		if err != nil {
			t.Fatal(err)
		}
		direct := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u)
		tunnel := must(portforward.NewSPDYOverWebsocketDialer(u, h.rest()))
		dialers := map[string]httpstream.Dialer{"SPDY": direct, "fallback": portforward.NewFallbackDialer(tunnel, direct, streaming.IsUpgradeFailure)}
		if modern {
			dialers["WebSocket"] = tunnel
		}
		for name, d := range dialers {
			if got := forward(t, d); got != "hello on 8080" {
				t.Errorf("%s (modern %v): %q", name, modern, got)
			}
		}
	}
}

// forward says hello to port 8080 through a forwarded port.
func forward(t *testing.T, d httpstream.Dialer) string {
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f := must(portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard))
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	defer func() { close(stop); <-ended }()
	conn := must(net.Dial("tcp", fmt.Sprint("127.0.0.1:", must(f.GetPorts())[0].Local)))
	defer conn.Close()
	fmt.Fprint(conn, "hello")
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// A proxied name may say by which scheme and to which port.
func TestProxyNames(t *testing.T) {
	back := httptest.NewServer(backend(nil))
	defer back.Close()
	h := connecting(t, must(url.Parse(back.URL)), "", nil)
	for name, want := range map[string]kind.Via{"p": {}, "https:p:443": {Scheme: "https", Port: "443"}, "p:http": {Port: "http"}, "http:p:": {Scheme: "http"}} {
		a := h.do("GET", "/api/v1/namespaces/ns/pods/"+name+"/proxy/a", "")
		told := "GET /a?" + url.Values{"via": {fmt.Sprint(want)}}.Encode() + " "
		if want == (kind.Via{}) {
			told = "GET /a auth"
		}
		if a.code != http.StatusTeapot || !strings.HasPrefix(a.body, told) {
			t.Errorf("%s: %d %s, want %s", name, a.code, a.body, told)
		}
	}
	for _, name := range []string{"ftp:p:21", "a:b:c:d", "https::443"} {
		if a := h.do("GET", "/api/v1/namespaces/ns/pods/"+name+"/proxy/a", ""); a.code != http.StatusNotFound {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := h.do("GET", "/api/v1/namespaces/ns/pods/http:p:80/log", ""); a.code != http.StatusNotFound {
		t.Errorf("a log by such a name: %+v", a)
	}
}

// A right to a proxied object holds for every port of it; a role may also grant one way alone, by the name that its URL spells.
func TestProxyRights(t *testing.T) {
	back := httptest.NewServer(backend(nil))
	defer back.Close()
	for granted, want := range map[string][2]int{"p": {http.StatusForbidden, http.StatusForbidden}, "p:80": {http.StatusTeapot, http.StatusForbidden}, "https:p:443": {http.StatusForbidden, http.StatusTeapot}, "q": {http.StatusForbidden, http.StatusForbidden}} {
		h := connecting(t, must(url.Parse(back.URL)), "", nil, func(c *apiserverConfig) {
			c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetSubresource() != "proxy" || a.GetName() == granted {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
		})
		for i, name := range []string{"p:80", "https:p:443"} {
			if a := h.do("GET", "/api/v1/namespaces/ns/pods/"+name+"/proxy/a", ""); a.code != want[i] {
				t.Errorf("with a right to %s, %s: %d, want %d", granted, name, a.code, want[i])
			}
		}
	}
}
