package yaretest

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/yare-project/yare/server"
)

// Option changes how a server is started.
type Option func(*settings)

type settings struct {
	crdPaths    []string
	crds        []*apiextensionsv1.CustomResourceDefinition
	convertible []string
	hookPaths   []string
	hooks       bool
	hookHost    string
	hookPort    int
	controllers []string
	plugins     plugins
	audit       func(Request)
	log         *slog.Logger
}

type plugins struct{ on, off []string }

// CRDs installs the custom resources in the given files and folders (.yaml, .yml, .json, not recursive; other kinds in them are passed over). A path that is not
// there fails the start.
func CRDs(paths ...string) Option {
	return func(s *settings) { s.crdPaths = append(s.crdPaths, paths...) }
}

// CRDObjects installs custom resources that the test has as objects. They are copied.
func CRDObjects(crds ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(s *settings) { s.crds = append(s.crds, crds...) }
}

// Webhooks installs the webhook configurations in the given files and folders, pointed at [Server.Webhooks] on this machine instead of a Service.
// So are the conversion webhooks of custom resources.
func Webhooks(paths ...string) Option {
	return func(s *settings) { s.hooks, s.hookPaths = true, append(s.hookPaths, paths...) }
}

// WebhookAddress says where the test's webhook server will listen; otherwise that is 127.0.0.1 and a port that was free.
func WebhookAddress(host string, port int) Option {
	return func(s *settings) { s.hooks, s.hookHost, s.hookPort = true, host, port }
}

// Convertible has custom resources, by name ("boats.example.org"), converted by the test's webhook server at /convert, as their manifests do not say
// so themselves.
func Convertible(names ...string) Option {
	return func(s *settings) { s.hooks, s.convertible = true, append(s.convertible, names...) }
}

// Controllers runs loops beside the API server, by name as kube-controller-manager's --controllers takes them: "namespace" empties namespaces that are
// deleted, "garbage-collector" removes what is owned, "deployment", "replicaset" and the like make pods (which stay Pending: there is no node), "*" is all of them.
// Names may end in "-controller" or not. An unknown name fails the start with the list of names.
func Controllers(names ...string) Option {
	return func(s *settings) { s.controllers = append(s.controllers, names...) }
}

// AdmissionPlugins switches plugins on and off, by the names of kube-apiserver's --enable-admission-plugins and --disable-admission-plugins.
func AdmissionPlugins(on, off []string) Option {
	return func(s *settings) {
		s.plugins.on, s.plugins.off = append(s.plugins.on, on...), append(s.plugins.off, off...)
	}
}

// Audit calls f with each request that was answered. f is called by many goroutines, and holds up the requests while it runs.
func Audit(f func(Request)) Option { return func(s *settings) { s.audit = f } }

// Log has the server log there; otherwise it does not.
func Log(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

func newSettings(options []Option) *settings {
	s := &settings{log: slog.New(slog.DiscardHandler), hookHost: "127.0.0.1"}
	for _, o := range options {
		o(s)
	}
	return s
}

func (s *settings) serverConfig(listener net.Listener) *server.Config {
	c := &server.Config{
		Backend: server.Memory, APIOnly: true, Controllers: s.controllers, Listener: listener,
		NodeName: "yaretest", ServiceCIDR: netip.MustParsePrefix("10.0.0.0/24"), Log: s.log,
		EnableAdmissionPlugins: s.plugins.on, DisableAdmissionPlugins: s.plugins.off,
	}
	if !c.Runs("service-account") && !slices.Contains(s.plugins.on, "ServiceAccount") {
		c.DisableAdmissionPlugins = append(c.DisableAdmissionPlugins, "ServiceAccount")
	}
	if s.audit != nil {
		c.Observe = s.observe
	}
	return c
}
