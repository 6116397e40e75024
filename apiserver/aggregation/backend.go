package aggregation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// dialTimeout bounds one attempt to reach one address.
const dialTimeout = 5 * time.Second

// backend is the other server of one group version.
type backend struct {
	a       *Aggregator
	name    string // the APIService's
	gv      schema.GroupVersion
	service types.NamespacedName
	port    int32
	// tls is how the other server is called; nil if broken says why it cannot be.
	tls    *tls.Config
	broken error

	object    atomic.Pointer[apiService]
	verdict   atomic.Pointer[verdict]
	addresses atomic.Pointer[[]string] // the ready ones as last checked; nil before the first check
	link      atomic.Pointer[link]

	wake, passing chan struct{}
	end           context.CancelFunc

	mu      sync.Mutex
	learned learned
}

// link is a set of connections. It is exchanged as a whole when the endpoints change, so that no connection outlives its endpoint's place in the Service.
type link struct {
	requests *http.Transport // HTTP/2 if the other server knows it
	upgrades *http.Transport // HTTP/1.1: there are no upgrades in HTTP/2
}

func newBackend(a *Aggregator, s *apiService) *backend {
	b := &backend{a: a, name: s.Name, gv: versionOf(s), service: types.NamespacedName{Namespace: s.Spec.Service.Namespace, Name: s.Spec.Service.Name},
		port: portOf(s), wake: make(chan struct{}, 1), passing: make(chan struct{}, 1), end: func() {}}
	b.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: b.service.Name + "." + b.service.Namespace + ".svc",
		InsecureSkipVerify: s.Spec.InsecureSkipTLSVerify, GetClientCertificate: a.cfg.Certificate}
	if len(s.Spec.CABundle) > 0 {
		b.tls.RootCAs = x509.NewCertPool()
		if !b.tls.RootCAs.AppendCertsFromPEM(s.Spec.CABundle) {
			b.broken = errors.New("spec.caBundle has no certificate in PEM")
		}
	}
	b.object.Store(s)
	b.link.Store(b.connect())
	b.verdict.Store(storedVerdict(s))
	return b
}

// storedVerdict goes on from what was found before this server was started.
func storedVerdict(s *apiService) *verdict {
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return &verdict{c.Status, c.Reason, c.Message}
		}
	}
	return &verdict{apiregistrationv1.ConditionUnknown, "NotChecked", "the server has not been checked yet"}
}

// reaches tells whether s is served by the very same server, reached in the same way.
func (b *backend) reaches(s *apiService) bool {
	old := b.object.Load()
	return b.name == s.Name && equality.Semantic.DeepEqual(old.Spec.Service, s.Spec.Service) && bytes.Equal(old.Spec.CABundle, s.Spec.CABundle) &&
		old.Spec.InsecureSkipTLSVerify == s.Spec.InsecureSkipTLSVerify
}

// take takes over a newer state. A status that somebody else wrote is put right with the next check, not at once: servers that see things differently would
// write against each other without end.
func (b *backend) take(s *apiService) {
	old := b.object.Swap(s)
	if old.Spec.GroupPriorityMinimum != s.Spec.GroupPriorityMinimum || old.Spec.VersionPriority != s.Spec.VersionPriority {
		b.a.known.Add(1)
	}
}

func (b *backend) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// pass has what the other server says of itself fetched.
func (b *backend) pass() {
	select {
	case b.passing <- struct{}{}:
	default:
	}
}

func (b *backend) close() {
	b.end()
	b.link.Load().close()
}

func (b *backend) connect() *link {
	transport := func(h2 bool) *http.Transport {
		t := &http.Transport{
			TLSClientConfig: b.tls.Clone(), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { return b.dial(ctx, network) },
			TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 16, DisableCompression: true, ForceAttemptHTTP2: h2,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		}
		if !h2 {
			t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		return t
	}
	return &link{requests: transport(true), upgrades: transport(false)}
}

func (l *link) close() {
	l.requests.CloseIdleConnections()
	l.upgrades.CloseIdleConnections()
}

// dial reaches an endpoint: one that is taken at random first, the others if it does not answer.
func (b *backend) dial(ctx context.Context, network string) (net.Conn, error) {
	addresses, err := b.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	var failed []error
	for _, address := range addresses {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return conn, nil
		}
		if failed = append(failed, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failed...)
}

// endpoints are the addresses that the last check found, in a new order.
func (b *backend) endpoints(ctx context.Context) ([]string, error) {
	found := b.addresses.Load()
	if found == nil {
		return b.a.cfg.Resolve(ctx, b.service.Namespace, b.service.Name, b.port)
	}
	if len(*found) == 0 {
		return nil, fmt.Errorf("no endpoints available for service %q", b.service.Name)
	}
	out := slices.Clone(*found)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, nil
}

// reach keeps addresses. If they changed, new requests take new connections; those under way end on the old ones. It
// tells whether they changed.
func (b *backend) reach(addresses []string) bool {
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	old := b.addresses.Swap(&addresses)
	if old == nil || slices.Equal(*old, addresses) {
		return false
	}
	b.link.Swap(b.connect()).close()
	return true
}

// host is the name by which the other server is called and known by its certificate.
func (b *backend) host() string {
	return net.JoinHostPort(b.tls.ServerName, strconv.Itoa(int(b.port)))
}

// ready is nil if requests can be passed on, else the error that clients get.
func (b *backend) ready() error {
	if v := b.verdict.Load(); !v.passed() {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the server of %s is not available: APIService %s: %s: %s", b.gv, b.name, v.reason, v.message))
	}
	return nil
}
