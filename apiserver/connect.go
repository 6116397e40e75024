package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/yare-project/yare/kind"
)

// serveConnect passes the request on to a backend (a node agent, a pod, a service) and streams both ways, through upgrades too.
func (x *exchange) serveConnect() error {
	sub, r := x.route.connect, &x.route
	if r.ref.Name == "" || len(sub.Methods) > 0 && !slices.Contains(sub.Methods, x.req.Method) {
		return errNoMethod
	}
	if sub.Also != "" && sub.Also != r.verb {
		a := x.Attributes()
		a.Verb = sub.Also
		if err := x.server.allow(x.ctx, a); err != nil {
			return err
		}
	}
	parent, err := r.served.Get(x.ctx, x.request(), nil)
	if err != nil {
		return err
	}
	if err := x.admitConnect(parent.Hub()); err != nil {
		return err
	}
	target, err := sub.Connect(kind.WithVia(x.ctx, r.via), x.server.env, parent.Hub(), r.rest, r.query)
	if err != nil {
		return err
	}
	if target.URL == nil {
		x.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	transport, err := x.server.backends.to(target)
	if err != nil {
		return err
	}
	switch {
	case x.wantsSlash(target):
		x.redirect()
	case sub.Verb == "get" && x.wantsSocket():
		return x.socketCopy(target, transport)
	default:
		x.proxy(target, transport)
	}
	return nil
}

// wantsSlash tells the root of a proxied site asked for without its final slash: its relative links would lead elsewhere.
func (x *exchange) wantsSlash(target kind.Target) bool {
	read := x.req.Method == http.MethodGet || x.req.Method == http.MethodHead
	return read && strings.Trim(target.URL.Path, "/") == "" && !strings.HasSuffix(x.req.URL.Path, "/") && x.req.Header.Get("Upgrade") == ""
}

func (x *exchange) redirect() {
	to := x.req.URL.Path + "/"
	if x.req.URL.RawQuery != "" {
		to += "?" + x.req.URL.RawQuery
	}
	x.w.Header().Set("Location", to)
	x.w.WriteHeader(http.StatusMovedPermanently)
}

// socketCopy sends what a backend answers as the messages of a WebSocket, for clients such as browsers that read a log so.
func (x *exchange) socketCopy(target kind.Target, transport http.RoundTripper) error {
	req, err := http.NewRequestWithContext(x.ctx, http.MethodGet, target.URL.String(), nil)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("error dialing backend: %w", err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return apierrors.NewGenericServerResponse(answer.StatusCode, x.route.verb, x.route.ref.GroupResource(), x.route.ref.Name, strings.TrimSpace(string(text)), 0, true)
	}
	// The buffer parts the last bytes from the end of the stream: the copier drops bytes that come together with io.EOF.
	return wsstream.NewReader(bufio.NewReader(answer.Body), true, wsstream.NewDefaultReaderProtocols()).Copy(x.w, x.req.WithContext(x.ctx))
}

func (x *exchange) admitConnect(parent kind.Object) error {
	r := &x.route
	if r.connect.Verb == "get" { // reading, as of logs, is not admitted
		return nil
	}
	options, err := connectOptions(r.connect, r.query, r.rest)
	if err != nil {
		return err
	}
	a := &kind.AdmissionRequest{Operation: admissionv1.Connect, Kind: r.served.Kind, Ref: r.ref, User: x.user, Old: parent, Body: options, Warn: x.warn,
		Annotate: x.annotate}
	return r.served.AdmitConnect(x.ctx, x.request(), a)
}

func (x *exchange) proxy(target kind.Target, transport http.RoundTripper) {
	if x.route.connect.Named && x.req.Header.Get("Upgrade") == "" {
		transport = x.site(transport)
	}
	p := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL = target.URL
			if !x.route.connect.Named { // a site is told the name by which its reader knows it, as in Kubernetes
				pr.Out.Host = target.URL.Host
			}
			for name := range pr.Out.Header { // who asks is this server's business, not the backend's
				if strings.HasPrefix(name, "Impersonate-") || name == "Authorization" || strings.HasPrefix(name, "X-Remote-") {
					pr.Out.Header.Del(name)
				}
			}
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			var status apierrors.APIStatus
			if x.ctx.Err() == nil && errors.As(err, &status) {
				x.fail(err)
			} else if x.ctx.Err() == nil {
				x.fail(apierrors.NewInternalError(fmt.Errorf("error dialing backend: %w", err)))
			}
		},
	}
	p.ServeHTTP(x.w, x.req.WithContext(x.ctx))
}

// site turns a web site's links and redirects into ones that lead through the proxy again, and does not let the site say who may call this server.
func (x *exchange) site(transport http.RoundTripper) http.RoundTripper {
	prefix := strings.TrimSuffix(x.req.URL.Path, x.route.rest)
	return withoutCORS{&proxy.Transport{PathPrepend: prefix, RoundTripper: transport}}
}

type withoutCORS struct{ http.RoundTripper }

func (t withoutCORS) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		for _, name := range []string{"Credentials", "Headers", "Methods", "Origin"} {
			answer.Header.Del("Access-Control-Allow-" + name)
		}
	}
	return answer, err
}

// backends are the connections to what a Connect goes to.
type backends struct {
	nodeTLS *tls.Config
	plain   *http.Transport
	loose   *http.Transport // does not check certificates, where the user asked for that

	mu    sync.Mutex
	nodes map[string]*http.Transport
}

func newBackends(nodeTLS *tls.Config) *backends {
	return &backends{nodeTLS: nodeTLS, plain: newTransport(nil), loose: newTransport(&tls.Config{InsecureSkipVerify: true}), nodes: map[string]*http.Transport{}}
}

// newTransport speaks HTTP/1.1 only: upgrades do not exist in HTTP/2.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig:     config,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// to picks the transport for a target. A node's certificate is checked under the node's own name, so each name has its own connections.
func (b *backends) to(t kind.Target) (http.RoundTripper, error) {
	switch {
	case t.URL == nil:
		return nil, apierrors.NewInternalError(errors.New("the subresource named no backend"))
	case t.Node == "" && t.InsecureTLS:
		return b.loose, nil
	case t.Node == "" || t.URL.Scheme == "http":
		return b.plain, nil
	case b.nodeTLS == nil:
		return nil, apierrors.NewServiceUnavailable("this server has no client certificate to call node agents with")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if transport := b.nodes[t.Node]; transport != nil {
		return transport, nil
	}
	config := b.nodeTLS.Clone()
	config.ServerName = t.Node
	config.NextProtos = nil
	transport := newTransport(config)
	b.nodes[t.Node] = transport
	return transport, nil
}

func (b *backends) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.nodes {
		t.CloseIdleConnections()
	}
	b.plain.CloseIdleConnections()
	b.loose.CloseIdleConnections()
}

// withUser keeps the user in the context, for kinds that ask who makes the request.
func withUser(ctx context.Context, who userInfo) context.Context {
	return context.WithValue(ctx, userKey{}, who)
}

type userKey struct{}
