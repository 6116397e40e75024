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

	"github.com/yare-project/yare/apiserver/audit"
	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/fairness"
	"github.com/yare-project/yare/apiserver/stages"
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
		{"audit", (*exchange).beginAudit},
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
	told   int               // bytes of warnings in the answer
	notes  map[string]string // for the audit hook
	record *audit.Record     // nil: not recorded
	trace  *stages.Trace     // nil: the client does not ask where the time goes
	done   []func()
	asked  authorizer.AttributesRecord // what the authorizer was asked

	ticket fairness.Ticket // its turn
	seated bool            // it has its turn now
}

// Handler serves the API.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.handle) }

func (s *Server) handle(w http.ResponseWriter, req *http.Request) {
	x := &exchange{server: s, w: &recorder{ResponseWriter: w}, req: req, ctx: req.Context(), start: s.cfg.Clock.Now(), trace: stages.Of(req)}
	defer x.finish()
	for _, st := range s.stages {
		if err := st.run(x); err != nil {
			x.fail(err)
			return
		}
		x.trace.Mark(st.name)
	}
}

// finish recovers a panic, releases what the stages took, and tells metrics and audit.
func (x *exchange) finish() {
	p := recover()
	if p != nil && p != http.ErrAbortHandler {
		x.server.cfg.Log.Error("a request panicked", "method", x.req.Method, "path", x.req.URL.Path, "user", x.userName(),
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		x.server.metrics.panics.Inc()
		if x.w.status == 0 {
			x.fail(apierrors.NewInternalError(errors.New("this request caused a fault in the server, which logged it")))
		}
	} else if p != nil {
		defer panic(p) // a proxied stream broke: net/http aborts the connection quietly
	}
	x.leave()
	for i := len(x.done) - 1; i >= 0; i-- {
		x.done[i]()
	}
	x.observe()
	x.audit()
	x.endAudit(p)
}

func (x *exchange) userName() string {
	if x.user == nil {
		return ""
	}
	return x.user.GetName()
}

// uncached is the value of Cache-Control in every answer.
var uncached = []string{"no-cache, private"}

func (x *exchange) findRoute() error {
	x.route = x.server.parse(x.req)
	x.verb = x.route.verb
	h := x.w.Header()
	h["Cache-Control"] = uncached
	h[audit.Header] = []string{audit.IDOf(x.req.Header)}
	if x.route.streams() {
		ctx, cancel := context.WithCancel(x.ctx)
		stop := context.AfterFunc(x.server.streams, cancel)
		x.ctx = ctx
		open := x.server.metrics.streams.WithLabelValues(strings.ToUpper(x.verb), x.route.knownResource(), x.route.streamSub())
		open.Inc()
		x.done = append(x.done, cancel, func() { stop() }, open.Dec)
		x.unbound()
		return nil
	}
	return x.bound()
}

func (x *exchange) authenticate() error {
	who, ok, err := x.server.cfg.Authenticator.AuthenticateRequest(x.req)
	if m := x.server.metrics; err != nil {
		m.erroneous.Inc()
	} else if !ok {
		m.unauthenticated.Inc()
	} else {
		m.authenticated.Inc()
	}
	if err != nil || !ok {
		x.auditStranger()
	}
	x.req.Header.Del("Authorization")
	if err != nil || !ok {
		if err != nil {
			x.server.cfg.Log.Warn("a request was not authenticated", "path", x.req.URL.Path, "from", x.req.RemoteAddr, "error", err)
		}
		if x.req.ProtoMajor == 2 {
			x.w.Header().Set("Connection", "close") // strangers don't get to send a thousand requests over one connection
		}
		return apierrors.NewUnauthorized("Unauthorized")
	}
	x.user = who.User
	return nil
}

func (x *exchange) impersonate() error {
	if x.server.cfg.Impersonate != nil {
		who, ok, err := x.server.cfg.Impersonate(x.ctx, x.req.Header, x.user, x.server.cfg.Authorizer, x)
		if err != nil {
			return err
		}
		if ok {
			x.user = who
			if x.record != nil {
				x.record.Impersonated(who)
			}
		}
	} else if x.req.Header.Get("Impersonate-User") != "" {
		return apierrors.NewForbidden(noResource, "", errors.New("this server does not impersonate users"))
	}
	x.ctx = withUser(x.ctx, x.user)
	return nil
}

// authorize asks for the object's name as the URL spells it: a right to p is none to https:p:443, as in Kubernetes.
func (x *exchange) authorize() error {
	x.asked = x.Attributes()
	return x.server.decide(x.ctx, &x.asked, x.record)
}

// Attributes are what the authorizer is asked about the request.
func (x *exchange) Attributes() authorizer.AttributesRecord {
	a := x.attributes()
	if x.route.spelled != "" {
		a.Name = x.route.spelled
	}
	return a
}

// allow asks the authorizer; a refusal is logged and explained.
func (s *Server) allow(ctx context.Context, a authorizer.AttributesRecord) error {
	return s.decide(ctx, a, nil)
}

// decide is allow for the request itself: its record, if there is one, is told of the decision.
func (s *Server) decide(ctx context.Context, a authorizer.Attributes, record *audit.Record) error {
	decision, reason, err := s.cfg.Authorizer.Authorize(ctx, a)
	if record != nil {
		annotateDecision(record, decision, reason, err)
	}
	switch m := s.metrics; {
	case decision == authorizer.DecisionAllow:
		m.allowed.Inc()
		return nil
	case err != nil:
		m.undecided.Inc()
	default:
		m.denied.Inc()
	}
	if err != nil {
		s.cfg.Log.Warn("authorization failed", "user", a.GetUser().GetName(), "verb", a.GetVerb(), "resource", a.GetResource(), "path", a.GetPath(), "error", err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	s.cfg.Log.Info("refused", "user", a.GetUser().GetName(), "verb", a.GetVerb(), "resource", a.GetResource(), "namespace", a.GetNamespace(), "name", a.GetName(), "path", a.GetPath(), "reason", reason)
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
