package aggregation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

const (
	recheck   = 30 * time.Second // between checks without a reason
	firstWait = 500 * time.Millisecond
	// probeTimeout bounds all attempts, attempts is how many there are, as in Kubernetes; slow is when the others begin.
	probeTimeout = 5 * time.Second
	attempts     = 5
	slow         = time.Second
)

// watch checks the other server now and then, and whenever something that it hangs on changed, until ctx ends.
func (b *backend) watch(ctx context.Context) {
	wait := firstWait
	for {
		v, err := b.check(ctx), error(nil)
		if ctx.Err() != nil {
			return
		}
		b.conclude(v)
		if err = b.report(ctx, v); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			b.a.cfg.Log.Warn("the status of an APIService could not be written", "apiservice", b.name, "error", err)
		}
		next := recheck
		if !v.passed() || err != nil {
			next, wait = wait, min(2*wait, recheck)
		} else {
			wait = firstWait
		}
		timer := b.a.cfg.Clock.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-b.wake:
			wait = firstWait
		case <-timer.C():
		}
		timer.Stop()
	}
}

func (b *backend) check(ctx context.Context) verdict {
	reference := b.object.Load().Spec.Service
	f := b.find(ctx)
	v := judge(*reference, f)
	if !v.passed() {
		b.reach(nil)
		return v
	}
	if b.broken != nil {
		return refuse("FailedDiscoveryCheck", "%v", b.broken)
	}
	addresses, err := b.a.cfg.Resolve(ctx, b.service.Namespace, b.service.Name, b.port)
	if err != nil {
		b.reach(nil)
		return refuse("FailedDiscoveryCheck", "%v", err)
	}
	direct := slices.DeleteFunc(slices.Clone(addresses), func(address string) bool { return address == own(f.service, b.port) })
	if len(direct) == 0 {
		direct = addresses
	}
	if b.reach(direct) {
		b.pass() // others may have other things to tell
	}
	if err := b.probeAny(ctx, direct); err != nil {
		return refuse("FailedDiscoveryCheck", "%v", err)
	}
	return passed
}

// own is the Service's own address, which leads to the same endpoints by way of the proxy, if this machine has one.
func own(s *corev1.Service, port int32) string {
	return net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port)))
}

func (b *backend) find(ctx context.Context) findings {
	var f findings
	ref := servicesRef
	ref.Namespace, ref.Name = b.service.Namespace, b.service.Name
	obj, err := b.a.gate.Get(ctx, ref, metav1.GetOptions{})
	f.noService = err
	if err == nil {
		f.service, _ = obj.(*corev1.Service)
	}
	if err == nil && f.service == nil {
		f.noService = fmt.Errorf("it is stored as %T", obj)
	}
	ref = slicesRef
	ref.Namespace = b.service.Namespace
	list, _, err := b.a.gate.List(ctx, ref, metav1.ListOptions{LabelSelector: labels.Set{discoveryv1.LabelServiceName: b.service.Name}.String()})
	f.noSlices = err
	for _, obj := range list {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			f.slices = append(f.slices, s)
		}
	}
	return f
}

// probeAny is nil once one attempt succeeds: one address first, and then, when that failed or is slow, several at once.
func (b *backend) probeAny(ctx context.Context, addresses []string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	results := make(chan error, attempts)
	started, failed := 0, 0
	start := func(n int) {
		for ; started < n; started++ {
			address := addresses[started%len(addresses)]
			go func() { results <- b.probe(ctx, address) }()
		}
	}
	start(1)
	hurry := b.a.cfg.Clock.NewTimer(slow)
	defer hurry.Stop()
	for {
		select {
		case err := <-results:
			if failed++; err == nil || failed == attempts {
				return err
			}
			start(attempts)
		case <-hurry.C():
			start(attempts)
		}
	}
}

// path is where the group version is served.
func (b *backend) path() string {
	if b.gv.Group == "" {
		return "/api/" + b.gv.Version
	}
	return "/apis/" + b.gv.Group + "/" + b.gv.Version
}

// probe asks one address for what every server must have: the resources of its group version. It takes a connection of its own, so that a server
// which accepts no more is found out.
func (b *backend) probe(ctx context.Context, address string) error {
	to := url.URL{Scheme: "https", Host: address, Path: b.path()}
	fail := func(err error) error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("timed out waiting for %s", to.String())
		}
		return fmt.Errorf("failing or missing response from %s: %w", to.String(), err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return fail(err)
	}
	asServer(req)
	once := &http.Transport{TLSClientConfig: b.tls.Clone(), DisableKeepAlives: true, DisableCompression: true, TLSHandshakeTimeout: probeTimeout}
	answer, err := once.RoundTrip(req)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 1<<10)
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fail(fmt.Errorf("bad status from %s: %d", to.String(), answer.StatusCode))
	}
	return nil
}

// asServer marks a request as this server's own, which may see everything.
func asServer(req *http.Request) {
	transport.SetAuthProxyHeaders(req, "system:kube-aggregator", "", []string{"system:masters"}, nil)
}

// conclude makes a verdict count.
func (b *backend) conclude(v verdict) {
	old := b.verdict.Swap(&v)
	if v.passed() == old.passed() {
		return
	}
	b.a.cfg.Log.Info("an API server's availability changed", "apiservice", b.name, "available", v.passed(), "reason", v.reason, "message", v.message)
	if v.passed() {
		b.pass()
		return
	}
	b.a.metrics.unavailable(b.name, v.reason)
	b.stale()
}

// report writes the condition if it is not what is stored.
func (b *backend) report(ctx context.Context, v verdict) error {
	s := b.object.Load()
	if *storedVerdict(s) == v {
		return nil
	}
	ref := named(s.Name)
	ref.Subresource = "status"
	_, err := b.a.gate.Update(ctx, ref, b.a.concluded(s, v), metav1.UpdateOptions{})
	return err
}

// concluded is s with the condition that v says.
func (a *Aggregator) concluded(s *apiService, v verdict) *apiService {
	out := s.DeepCopy()
	helper.SetAPIServiceCondition(out, apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: v.status, Reason: v.reason,
		Message: v.message, LastTransitionTime: metav1.NewTime(a.cfg.Clock.Now()).Rfc3339Copy()})
	return out
}
