package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/apiserver/codec"
)

// stage is one step of a request. An error answers the request and ends it.
type stage struct {
	name string
	run  func(*exchange) error
}

// chain is the way of every HTTP request, in order. The last stage goes on by verb (serve.go): decode, default, mutate-admit, default,
// validate, validate-admit, store, encode.
func (s *Server) chain() []stage {
	return []stage{
		{"route", (*exchange).findRoute},
		{"authenticate", (*exchange).authenticate},
		{"impersonate", (*exchange).impersonate},
		{"limit", (*exchange).limit},
		{"authorize", (*exchange).authorize},
		{"serve", (*exchange).serve},
	}
}

// exchange is one request on its way.
type exchange struct {
	server *Server
	w      *recorder
	req    *http.Request
	ctx    context.Context
	start  time.Time

	route  route
	user   user.Info
	accept codec.Accept
	verb   string // as metrics name it, once known
	dryRun bool
	warned map[string]bool
	notes  map[string]string // for the audit log
	done   []func()
}

// Handler serves the API.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.handle) }

func (s *Server) handle(w http.ResponseWriter, req *http.Request) {
	x := &exchange{server: s, w: &recorder{ResponseWriter: w}, req: req, ctx: req.Context(), start: s.cfg.Clock.Now()}
	defer x.finish()
	for _, st := range s.stages {
		if err := st.run(x); err != nil {
			x.fail(err)
			return
		}
	}
}

// finish recovers a panic, releases what the stages took, and tells metrics and audit.
func (x *exchange) finish() {
	if p := recover(); p != nil && p != http.ErrAbortHandler {
		x.server.cfg.Log.Error("a request panicked", "method", x.req.Method, "path", x.req.URL.Path, "user", x.userName(),
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		x.server.metrics.panics.Inc()
		if x.w.status == 0 {
			x.fail(apierrors.NewInternalError(errors.New("this request caused a fault in the server, which logged it")))
		}
	} else if p != nil {
		defer panic(p) // a proxied stream broke: net/http aborts the connection quietly
	}
	for i := len(x.done) - 1; i >= 0; i-- {
		x.done[i]()
	}
	x.observe()
	x.audit()
}

func (x *exchange) userName() string {
	if x.user == nil {
		return ""
	}
	return x.user.GetName()
}

func (x *exchange) findRoute() error {
	x.route = x.server.parse(x.req)
	x.verb = x.route.verb
	x.w.Header().Set("Cache-Control", "no-cache, private")
	if x.route.streams() {
		ctx, cancel := context.WithCancel(x.ctx)
		stop := context.AfterFunc(x.server.streams, cancel)
		x.ctx = ctx
		open := x.server.metrics.streams.WithLabelValues(strings.ToUpper(x.verb), x.route.knownResource(), x.route.streamSub())
		open.Inc()
		x.done = append(x.done, cancel, func() { stop() }, open.Dec)
		return nil
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.server.cfg.Limits.Timeout)
	x.ctx = ctx
	x.done = append(x.done, cancel)
	return nil
}

func (x *exchange) authenticate() error {
	who, ok, err := x.server.cfg.Authenticator.AuthenticateRequest(x.req)
	x.req.Header.Del("Authorization")
	if err != nil || !ok {
		if err != nil {
			x.server.cfg.Log.Warn("a request was not authenticated", "path", x.req.URL.Path, "from", x.req.RemoteAddr, "error", err)
		}
		return apierrors.NewUnauthorized("Unauthorized")
	}
	x.user = who.User
	return nil
}

func (x *exchange) impersonate() error {
	if x.server.cfg.Impersonate != nil {
		who, ok, err := x.server.cfg.Impersonate(x.ctx, x.req.Header, x.user, x.server.cfg.Authorizer)
		if err != nil {
			return err
		}
		if ok {
			x.user = who
		}
	} else if x.req.Header.Get("Impersonate-User") != "" {
		return apierrors.NewForbidden(noResource, "", errors.New("this server does not impersonate users"))
	}
	x.ctx = withUser(x.ctx, x.user)
	return nil
}

func (x *exchange) limit() error {
	release, err := x.server.limits.enter(x.ctx, x.user, &x.route)
	if err != nil {
		return err
	}
	x.done = append(x.done, release)
	return nil
}

// authorize asks for the object's name as the URL spells it: a right to p is none to https:p:443, as in Kubernetes.
func (x *exchange) authorize() error {
	a := x.attributes()
	if x.route.spelled != "" {
		a.Name = x.route.spelled
	}
	return x.server.allow(x.ctx, a)
}

// allow asks the authorizer; a refusal is logged and explained.
func (s *Server) allow(ctx context.Context, a authorizer.AttributesRecord) error {
	decision, reason, err := s.cfg.Authorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		s.cfg.Log.Warn("authorization failed", "user", a.User.GetName(), "verb", a.Verb, "resource", a.Resource, "path", a.Path, "error", err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	s.cfg.Log.Info("refused", "user", a.User.GetName(), "verb", a.Verb, "resource", a.Resource, "namespace", a.Namespace, "name", a.Name, "path", a.Path, "reason", reason)
	return authz.Forbidden(a, reason)
}

// attributes are what the authorizer judges.
func (x *exchange) attributes() authorizer.AttributesRecord {
	r := &x.route
	a := authorizer.AttributesRecord{User: x.user, Verb: r.verb, Path: x.req.URL.Path}
	if r.resource {
		a.ResourceRequest = true
		a.APIGroup, a.APIVersion, a.Resource, a.Subresource = r.ref.Group, r.ref.Version, r.ref.Resource, r.ref.Subresource
		a.Namespace, a.Name = r.authNamespace, r.ref.Name
		if a.Name == "" {
			a.Name = r.selectedName()
		}
		r.selectors(&a)
	}
	return a
}
