// Package apiserver is the gate: the only way to the store, for clients over HTTPS and for loops in the same process.
//
// A request passes named stages in one order, all in chain.go. In-process callers ([Server.Local]) skip HTTP and codecs, never
// authorization, admission or validation, and get the store's own objects.
//
// Guarantees: a request is answered within its timeout unless it streams; every body is bounded; a panic ends its request only; errors are
// metav1.Status documents as clients of the Kubernetes API know them. Which kinds are served may change while the server runs.
//
// The server is safe for concurrent use. It names no kind, decides nothing about who may do what (that is the Authorizer's and the admission
// plugins' work), and owns no listener: the composition root gives it one.
package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/apply"
	"github.com/yare-project/yare/apiserver/audit"
	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/apiserver/fairness"
	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// TokenIssuer signs tokens for service accounts.
type TokenIssuer interface {
	IssueToken(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Impersonator returns the user as whom a request shall act by its headers; false when nobody is impersonated. request is asked only if somebody is.
type Impersonator func(ctx context.Context, headers http.Header, who user.Info, a authorizer.Authorizer, request authn.Question) (user.Info, bool, error)

// Check is a named health check. It must be quick; nil means healthy.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
	// ReadyOnly leaves the check out of /livez: failing it means "do not send requests", not "restart me".
	ReadyOnly bool
}

// Limits bound what clients may ask for. Zero values take the defaults that are given.
type Limits struct {
	Body    int64         // bytes of a request's body: 3 MiB
	Timeout time.Duration // of a request that does not stream: 60 s
	// ReadOnlyInFlight and MutatingInFlight are how many reads and changes run at once where there is no Config.Fairness: 400 and 200; below 0: any
	// number.
	ReadOnlyInFlight, MutatingInFlight int
	// MinWatch is the least time that a watch without timeoutSeconds lasts: 30 min.
	MinWatch time.Duration
	// Stall is how long a watcher may leave unread what it was sent before its watch is ended: 30 s.
	Stall time.Duration
	// Bookmarks is the time between two bookmarks of a watch that allows them: 1 min.
	Bookmarks time.Duration
}

// Config is all that a Server needs. Fields without "optional" are required.
type Config struct {
	Store    store.Store
	Groups   []*kind.Group
	Settings kind.Settings

	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	// Impersonate, Rules, Tokens (checks a bearer token) and Issuer (signs one) are optional; without one, what needs it is refused.
	Impersonate Impersonator
	Rules       authorizer.RuleResolver
	Tokens      authenticator.Token
	Issuer      TokenIssuer

	// Mutators and Validators are the admission plugins, in the order in which they run. Optional.
	Mutators   []kind.Mutator
	Validators []kind.Validator
	// Measure counts what admission does. Optional.
	Measure *measure.Admission

	// Discovery answers below /api and /apis where no resource is meant, OpenAPI below /openapi. Optional. Paths are further handlers, by
	// exact path or, with a trailing slash, by prefix; they are authorized as non-resource URLs.
	Discovery http.Handler
	OpenAPI   http.Handler
	Paths     map[string]http.Handler

	// Fairness shares the server among its clients by FlowSchemas and PriorityLevelConfigurations. Nil: Limits bound how many requests run at once.
	Fairness *fairness.Controller

	// Aggregator knows who serves the group versions that this server does not. Optional.
	Aggregator Aggregator

	// Sealer says how a kind's objects are sealed on disk. Optional: else all are plain.
	Sealer func(*kind.Kind) stored.Sealer

	// Checks are further health checks. Optional.
	Checks []Check
	// NodeTLS is how node agents are called: this server's client certificate and the cluster's CA. Without it they are called by plain HTTP
	// if their URL says so, else refused.
	NodeTLS *tls.Config
	// Audit hears of every request that is answered. It must not block. Optional.
	Audit func(AuditEvent)
	// Auditor records requests by a policy, those from within the process too. Optional.
	Auditor *audit.Auditor

	// Hasty has Serve close connections as soon as no request is in flight, without the second that HTTP/2 clients are given to hear of the end:
	// for servers of tests, which take their clients with them.
	Hasty bool

	Limits  Limits
	Version version.Info         // zero: that of the Kubernetes release whose API is served
	Clock   clock.Clock          // nil: the real one
	Log     *slog.Logger         // nil: discards
	Metrics *prometheus.Registry // nil: a new one
}

// Server serves the API.
type Server struct {
	cfg      Config
	registry *verbs.Registry
	env      *environment
	metrics  *metrics
	turns    fairness.Turns
	watchers fairness.Watchers
	backends *backends
	stages   []stage
	types    *apply.Types
	busy     busy // counts only if Config.Hasty

	// streams ends when watches and other streams must; draining when new requests should go elsewhere.
	streams    context.Context
	endStreams context.CancelFunc
	draining   context.Context
	drain      context.CancelFunc
}

// New builds a server and reads what the store holds. The error names the configuration that lacks or the object that cannot be read.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("apiserver: Config.Store is nil")
	case cfg.Authenticator == nil:
		return nil, errors.New("apiserver: Config.Authenticator is nil: nobody could be told from anybody")
	case cfg.Authorizer == nil:
		return nil, errors.New("apiserver: Config.Authorizer is nil: nobody could be allowed anything")
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, metrics: newMetrics(cfg.Metrics), turns: cfg.turns(), backends: newBackends(cfg.NodeTLS)}
	s.streams, s.endStreams = context.WithCancel(context.Background())
	s.draining, s.drain = context.WithCancel(context.Background())
	s.env = &environment{server: s}
	if err := begin(cfg.Store); err != nil {
		return nil, err
	}
	s.types = apply.NewTypes(schemeOf(cfg.Groups))
	s.registry = verbs.NewRegistry(verbs.Config{Store: cfg.Store, Env: s.env, Clock: cfg.Clock, Mutators: cfg.Mutators, Validators: cfg.Validators, Measure: cfg.Measure,
		Types: s.types, Sealer: cfg.Sealer, Bookmarks: cfg.Limits.Bookmarks, Log: cfg.Log})
	for _, g := range cfg.Groups {
		if err := s.registry.Add(g.Kinds...); err != nil {
			return nil, err
		}
	}
	s.stages = s.chain()
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Version == (version.Info{}) {
		c.Version = DefaultVersion
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

// turns is who decides whose turn it is.
func (c Config) turns() fairness.Turns {
	if c.Fairness != nil {
		return c.Fairness
	}
	return fairness.NewInFlight(c.Limits.ReadOnlyInFlight, c.Limits.MutatingInFlight, c.Metrics)
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Body:             cmp.Or(l.Body, 3<<20),
		Timeout:          cmp.Or(l.Timeout, time.Minute),
		ReadOnlyInFlight: cmp.Or(l.ReadOnlyInFlight, 400),
		MutatingInFlight: cmp.Or(l.MutatingInFlight, 200),
		MinWatch:         cmp.Or(l.MinWatch, 30*time.Minute),
		Stall:            cmp.Or(l.Stall, 30*time.Second),
		Bookmarks:        cmp.Or(l.Bookmarks, time.Minute),
	}
}

// schemeOf knows the Go types of all groups.
func schemeOf(groups []*kind.Group) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, g := range groups {
		for _, add := range g.AddToScheme {
			if err := add(scheme); err != nil {
				panic(err) // Group.Scheme has added the same types without trouble
			}
		}
	}
	return scheme
}

// Registry is the set of kinds served; it may be changed at any time.
func (s *Server) Registry() *verbs.Registry { return s.registry }

// Env is what the server offers to kinds and admission plugins.
func (s *Server) Env() kind.Env { return s.env }

// Types are the schemas by which server-side apply merges objects of the built-in kinds.
func (s *Server) Types() *apply.Types { return s.types }

// Metrics is where the server's metrics are.
func (s *Server) Metrics() *prometheus.Registry { return s.cfg.Metrics }

// Run does background work (objects that expire, schemas that are loaded ahead of the first write) until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	s.types.Load()
	return s.registry.Run(ctx)
}
