package aggregation

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
)

// lateAfter is how long an answer may not begin before its server is checked: the next to ask need not wait as long if it hangs.
const lateAfter = 5 * time.Second

// Proxy passes a request on to who serves gv, as the user who, and streams both ways, through upgrades too. An error means that nothing was answered yet.
func (a *Aggregator) Proxy(w http.ResponseWriter, req *http.Request, gv schema.GroupVersion, who user.Info) error {
	b := a.backend(gv)
	if b == nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("nobody serves %s any more", gv))
	}
	if err := b.ready(); err != nil {
		return err
	}
	l := b.link.Load()
	var to http.RoundTripper = l.requests
	if req.Header.Get("Upgrade") != "" {
		to = l.upgrades
	}
	begun := b.doubt()
	defer begun()
	var failed error
	p := &httputil.ReverseProxy{
		Transport: to, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite:        func(pr *httputil.ProxyRequest) { b.rewrite(pr, who, w.Header().Get(auditID)) },
		ModifyResponse: func(r *http.Response) error { begun(); tidy(w.Header(), r); return nil },
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	p.ServeHTTP(w, req)
	if failed == nil {
		return nil
	}
	if err := context.Cause(req.Context()); err != nil {
		return err
	}
	b.signal() // somebody who was there may be gone
	return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", failed))
}

// doubt has the server checked if begun is not called in time.
func (b *backend) doubt() (begun func()) {
	c, ok := b.a.cfg.Clock.(clock.WithDelayedExecution)
	if !ok {
		return func() {}
	}
	late := c.AfterFunc(lateAfter, b.signal)
	return func() { late.Stop() }
}

// auditID names a request in the audit logs of both servers.
const auditID = "Audit-Id"

// rewrite turns a client's request into this server's own on behalf of who.
func (b *backend) rewrite(pr *httputil.ProxyRequest, who user.Info, audit string) {
	in := pr.In.URL
	pr.Out.URL = &url.URL{Scheme: "https", Host: b.host(), Path: in.Path, RawPath: in.RawPath, RawQuery: in.RawQuery}
	pr.Out.Host = ""
	pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	pr.SetXForwarded()
	b.a.identify(pr.Out, who)
	if audit != "" {
		pr.Out.Header.Set(auditID, audit)
	}
}

// identify leaves nothing in a request's headers of who the client said to be, and puts who it is.
func (a *Aggregator) identify(req *http.Request, who user.Info) {
	for name := range req.Header {
		if a.tellsWho(strings.ToLower(name)) {
			delete(req.Header, name)
		}
	}
	transport.SetAuthProxyHeaders(req, who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra())
}

func (a *Aggregator) tellsWho(header string) bool {
	is := func(name string) bool { return strings.ToLower(name) == header }
	begins := func(prefix string) bool { return strings.HasPrefix(header, strings.ToLower(prefix)) }
	return header == "authorization" || begins("impersonate-") || begins("x-remote-") ||
		slices.ContainsFunc(a.cfg.Identity.Names, is) || slices.ContainsFunc(a.cfg.Identity.Prefixes, begins)
}

const noRedirects = "the backend attempted to redirect this request, which is not permitted"

// tidy keeps an answer from sending this server's client, with its credentials, elsewhere, and lets no header come twice: in what both servers set, the
// one that made the answer is right about caching and this one about the rest.
func tidy(own http.Header, r *http.Response) {
	if r.StatusCode >= 300 && r.StatusCode <= 399 && r.Header.Get("Location") != "" {
		r.Body.Close()
		r.StatusCode, r.Status = http.StatusBadGateway, ""
		r.Header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(noRedirects)), int64(len(noRedirects))
	}
	for name := range own {
		if _, both := r.Header[name]; both && name != "Cache-Control" {
			r.Header.Del(name)
		} else if both {
			own.Del(name)
		}
	}
}
