package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/aggregation"
	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/apiserver/discovery"
	"github.com/yare-project/yare/apiserver/dynamic"
	"github.com/yare-project/yare/apiserver/encryption"
	"github.com/yare-project/yare/apiserver/fairness"
	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/apiserver/openapi"
	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/internal/pidfile"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/internal/quota"
	"github.com/yare-project/yare/internal/version"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/kinds/access"
	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/disk"
	"github.com/yare-project/yare/store/mem"
)

// superuser is the server's own identity for what it does to its own cluster.
var superuser = &user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// plane is the control plane: store, gate and loops.
type plane struct {
	cluster *Cluster
	config  *Config
	pki     *pki.PKI
	store   store.Store
	gate    *apiserver.Server
	tokens  *authn.Authenticator
	rbac    *authz.RBAC
	nodes   *access.Node
	dynamic *dynamic.Plugin // webhooks and policies
	others  *aggregation.Aggregator
	fair    *fairness.Controller // nil without priority and fairness
	loops   *loops
	// scheduler is set once there is one, which is after requests are answered; nil until then and without one.
	scheduler atomic.Pointer[scheduler.Scheduler]
	sealed    *encryption.Encryption // nil: nothing is encrypted on disk
	quota     *quota.Ledger          // between the admission that charges and the loop that counts
}

// gateLookup breaks the circle between the gate and what authenticates for it: it is filled once the gate exists.
type gateLookup struct{ kind.Env }

func startPlane(ctx context.Context, cl *Cluster) (*plane, error) {
	p := &plane{cluster: cl, config: cl.config, quota: quota.NewLedger()}
	for _, s := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"open the store", p.openStore},
		{"load certificates", p.openPKI},
		{"load encryption keys", p.openEncryption},
		{"build the API server", p.buildGate},
		{"load custom resources", p.customResources},
		{"load API services", p.aggregate},
		{"serve the API", p.serve},
		{"load roles", p.follow},
		{"declare the loops", p.declareLoops},
		{"ensure what a cluster has", p.bootstrap},
		{"start the loops", p.runLoops},
		{"register API services", p.registerOwn},
	} {
		if err := cl.stack.step(s.name, func() error { return s.do(ctx) }); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plane) openStore(context.Context) error {
	if p.config.Backend == Memory {
		p.store = mem.New(mem.Config{})
	} else {
		s, err := disk.Open(disk.Config{Dir: filepath.Join(p.config.DataDir, "db"), Log: p.config.Log})
		if err != nil {
			return err
		}
		p.store = s
	}
	p.cluster.stack.onStop(func(context.Context) error { return p.store.Close() })
	if p.config.throwaway() {
		return nil
	}
	return p.cluster.stack.claim(p.config.DataDir)
}

func (p *plane) openPKI(context.Context) error {
	var err error
	dir := filepath.Join(p.config.DataDir, "pki")
	if p.config.throwaway() {
		dir = ""
	}
	p.pki, err = pki.Open(pki.Config{Dir: dir, Clock: p.config.Clock, Log: p.config.Log})
	if err != nil {
		return err
	}
	p.cluster.stack.run("certificates", p.pki.Run)
	return nil
}

func (p *plane) settings() kind.Settings {
	c := p.config
	issuer := "https://kubernetes.default.svc." + c.ClusterDomain
	settings := kind.Settings{
		ServiceCIDRs: []netip.Prefix{c.ServiceCIDR}, NodePortMin: c.NodePorts[0], NodePortMax: c.NodePorts[1],
		ClusterDomain: c.ClusterDomain, DefaultTokenTTL: time.Hour, MaxTokenTTL: 365 * 24 * time.Hour,
		TokenIssuer: issuer, TokenAudiences: []string{issuer}, EventTTL: time.Hour, NodeAgentPort: c.AgentPort,
	}
	c.Keys.issue(&settings)
	return settings
}

func (p *plane) buildGate(context.Context) error {
	c := p.config
	settings := p.settings()
	lookup := &gateLookup{}
	auth := authn.Config{
		ClientCA:     p.pki.Cluster.Pool(),
		StaticTokens: p.staticTokens(), TokenKey: p.pki.TokenKey, Issuer: settings.TokenIssuer, Audiences: settings.TokenAudiences, MaxTokenLife: settings.MaxTokenTTL,
		Lookup: lookup, SecretUsed: secretUsed(lookup, c.Log), Clock: c.Clock, Log: c.Log,
	}
	err := c.Keys.apply(&auth)
	if err != nil {
		return err
	}
	if auth.FrontProxy, err = c.FrontProxy.trust(p.pki.FrontProxy); err != nil {
		return err
	}
	if err := p.believe(&auth); err != nil {
		return err
	}
	if p.tokens, err = authn.New(auth); err != nil {
		return err
	}
	keys, err := authn.Discovery(auth, c.Keys.ServiceAccountJWKSURI)
	if err != nil {
		return err
	}
	kubelet, err := p.pki.Leaf(pki.KubeletClient())
	if err != nil {
		return err
	}
	p.rbac, p.nodes = authz.NewRBAC(), access.NewNode(c.Clock)
	allow, err := p.authorizer()
	if err != nil {
		return err
	}
	mutators, validators, err := p.plugins()
	if err != nil {
		return err
	}
	if err := p.buildAggregator(lookup); err != nil {
		return err
	}
	auditor, err := c.Audit.Start(c.Clock, c.Log, p.cluster.metrics)
	if err != nil {
		return err
	}
	if auditor != nil { // closed when all that makes requests has stopped
		p.cluster.stack.onStop(auditor.Close)
	}
	documents := openapi.New(openapi.Config{Kinds: p.kinds, Remote: p.others.Documents, Definitions: kinds.Definitions(), Title: "Kubernetes", Version: version.Info().GitVersion})
	counts := measure.New(p.cluster.metrics)
	credentials, err := p.webhookCredentials()
	if err != nil {
		return err
	}
	p.dynamic = dynamic.New(dynamic.Config{Env: lookup, Kinds: p.kinds, Types: func() managedfields.TypeConverter { return p.gate.Types() }, OpenAPI: documents,
		// The very same value: nobody outside of this process can be this user, whatever name a certificate or token gives.
		Exempt:  func(r *kind.AdmissionRequest) bool { return r.User == user.Info(superuser) },
		Measure: counts, Credentials: credentials,
		Off:    func(plugin string) bool { return !c.choice().Runs(plugin, false) },
		Static: mutators, Clock: c.Clock, Log: c.Log})
	mutators, validators = append(mutators, p.dynamic), dynamic.Before(validators, "ResourceQuota", p.dynamic)
	p.buildFairness()
	p.gate, err = apiserver.New(apiserver.Config{
		Store: p.store, Groups: kinds.Groups(), Settings: settings,
		Authenticator: p.tokens, Authorizer: allow, Impersonate: authn.NewImpersonator().Impersonate, Rules: allow, Tokens: p.tokens, Issuer: p.tokens.Tokens,
		Mutators: mutators, Validators: validators,
		Discovery: discovery.New(discovery.Config{Kinds: p.kinds, Place: p.others.Place, Services: p.others.Services}),
		OpenAPI:   documents, Aggregator: aggregator{p.others},
		Sealer: p.sealer(), Checks: p.keyChecks(),
		Fairness: p.fair, Limits: c.Load.limits(),
		Paths: p.withDebug(map[string]http.Handler{
			authn.OIDCConfigurationPath: keys, authn.OIDCKeysPath: keys,
			"/cacerts": http.HandlerFunc(p.serveCA),
		}),
		NodeTLS: pki.ClientTLS(p.pki.Cluster.Pool(), kubelet),
		Version: version.Info(), Clock: c.Clock, Log: c.Log, Metrics: p.cluster.metrics, Audit: c.Observe, Auditor: auditor, Measure: counts, Hasty: c.throwaway(),
	})
	if err != nil {
		return err
	}
	lookup.Env = p.gate.Env()
	p.followKeys()
	return nil
}

// kinds is what discovery and OpenAPI describe.
func (p *plane) kinds() ([]*kind.Kind, uint64) {
	r := p.gate.Registry()
	return r.Kinds(), uint64(r.Revision())
}

// serveCA hands out the authority's certificate, by which a joining node checks, against the pin in its token, whom it talks to.
func (p *plane) serveCA(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(p.pki.Cluster.CertPEM())
}

func (p *plane) staticTokens() []authn.StaticToken {
	if p.config.Token == "" {
		return nil
	}
	return []authn.StaticToken{{Token: p.config.Token, User: &user.DefaultInfo{Name: "system:admin", Groups: []string{user.SystemPrivilegedGroup}}}}
}

// serve listens; the first request is answered from then on.
func (p *plane) serve(context.Context) error {
	c := p.config
	ips := []net.IP{c.KubernetesService().AsSlice(), c.AdvertiseAddress.AsSlice(), c.NodeIP.AsSlice()}
	names := []string{c.NodeName}
	for _, san := range c.TLSNames {
		if ip := net.ParseIP(san); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, san)
		}
	}
	if c.BindAddress.IsValid() && !c.BindAddress.IsUnspecified() {
		ips = append(ips, c.BindAddress.AsSlice())
	}
	config, err := c.Keys.serving(func() (*pki.Leaf, error) { return p.pki.Leaf(pki.APIServer(c.ClusterDomain, names, ips)) })
	if err != nil {
		return err
	}
	listener := c.Listener
	if listener == nil {
		if listener, err = net.Listen("tcp", netip.AddrPortFrom(c.BindAddress, uint16(c.HTTPSPort)).String()); err != nil {
			return fmt.Errorf("cannot listen on port %d: %w; choose another with --https-listen-port", c.HTTPSPort, plain(err))
		}
	}
	// Client certificates are asked for, never demanded: tokens are as good. Who may come is decided by the authenticator.
	config.ClientAuth = tls.RequestClientCert
	p.cluster.stack.leave = p.takeLeave
	p.cluster.stack.run("API server", func(ctx context.Context) error { return p.gate.Serve(ctx, listener, config) })
	return nil
}

// follow loads what decides who may do what, and keeps it current.
func (p *plane) follow(ctx context.Context) error {
	source := p.gate.Local(superuser)
	c := p.config
	p.cluster.stack.run("roles", func(ctx context.Context) error { return p.rbac.Run(ctx, source, c.Clock, c.Log) })
	p.cluster.stack.run("node rights", func(ctx context.Context) error { return p.nodes.Run(ctx, source, c.Log) })
	p.cluster.stack.run("webhooks and policies", func(ctx context.Context) error { return p.dynamic.Run(ctx, source) })
	wait := []<-chan struct{}{p.rbac.Synced(), p.nodes.Synced(), p.dynamic.Synced()}
	if p.fair != nil {
		p.cluster.stack.run("priority and fairness", func(ctx context.Context) error { return p.fair.Run(ctx, source) })
		wait = append(wait, p.fair.Synced())
	}
	for _, synced := range wait {
		select {
		case <-synced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// admin makes the owner's kubeconfig entry.
func (p *plane) admin(name string) kubeconfig.Entry {
	entry := p.address(name)
	leaf, err := p.pki.Leaf(pki.Admin())
	if err == nil {
		entry.Cert, entry.Key, err = leaf.PEM()
	}
	if err != nil {
		p.config.Log.Error("no administrator certificate for the kubeconfig", "error", err)
	}
	return entry
}

// address is a kubeconfig entry without a user.
func (p *plane) address(name string) kubeconfig.Entry {
	c := p.config
	host := c.BindAddress
	if host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return kubeconfig.Entry{Name: name, Server: "https://" + netip.AddrPortFrom(host, uint16(c.HTTPSPort)).String(), CA: p.pki.Cluster.CertPEM()}
}

var (
	errNotRunning = errors.New("no Yare runs from this data folder: start one with `yare up`, or name another with --data-dir")
	errNoImport   = errors.New("the container runtime is no containerd: import images with its own tool")
)

// AdminFile is the kubeconfig of the cluster that runs from dir.
func AdminFile(dir string) (string, error) {
	if err := running(dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no control plane runs from %s, only a node: run this where the control plane runs", dir)
	}
	return path, nil
}

// running refuses a data folder from which no Yare runs.
func running(dir string) error {
	_, alive, err := pidfile.Read(filepath.Join(dir, PIDFile))
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s belongs to another user: run this as that user, or as root (sudo)", dir)
	}
	if err == nil && !alive {
		return fmt.Errorf("%w (%s)", errNotRunning, dir)
	}
	return err
}
