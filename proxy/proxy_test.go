package proxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/internal/freeport"
)

// recorder stands in for the kernel: it keeps the table, tells of each transaction, and can refuse them.
type recorder struct {
	*knftables.Fake
	done chan string

	mu     sync.Mutex
	refuse error
}

func (r *recorder) Run(ctx context.Context, tx *knftables.Transaction) error {
	r.mu.Lock()
	err := r.refuse
	r.refuse = nil
	if err == nil {
		err = r.Fake.Run(ctx, tx)
	}
	dump := r.Dump()
	r.mu.Unlock()
	r.done <- dump
	return err
}

type flows struct{ got chan []Flow }

func (f flows) Forget(stale []Flow) error {
	if len(stale) > 0 {
		f.got <- stale
	}
	return nil
}

type rig struct {
	*testing.T
	api    *fake.Transport
	kernel *recorder
	flows  flows
}

func startProxy(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, kernel: &recorder{Fake: knftables.NewFake(knftables.IPv4Family, "yare-test"), done: make(chan string, 64)}, flows: flows{make(chan []Flow, 8)}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
	r.api = fake.New(nil, node)
	caches := client.NewCaches(client.CachesConfig{Transport: r.api, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	p, err := New(Config{
		Table: "yare-test", NodeName: "here", ClusterCIDR: here.ClusterCIDR, ServiceCIDR: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
		Caches: caches, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Conntrack: r.flows,
		NFT: func(knftables.Family, string) (knftables.Interface, error) { return r.kernel, nil },
	})
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { caches.Run(ctx) })
	running.Go(func() { _ = p.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-p.Ready()
	return r
}

// until reads transactions until the table looks right.
func (r *rig) until(what string, ok func(dump string) bool) {
	r.Helper()
	limit := time.After(10 * time.Second)
	last := ""
	for {
		select {
		case last = <-r.kernel.done:
			if ok(last) {
				return
			}
		case <-limit:
			r.Fatalf("%s: not seen; the table is\n%s", what, own(last))
		}
	}
}

func (r *rig) create(o client.Object) {
	r.Helper()
	switch o := o.(type) {
	case *corev1.Service:
		_, err := client.Of[*corev1.Service](r.api).Create(r.Context(), o)
		check(r.T, err)
	case *discoveryv1.EndpointSlice:
		_, err := client.Of[*discoveryv1.EndpointSlice](r.api).Create(r.Context(), o)
		check(r.T, err)
	}
}

func named(service string, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Namespace, s.Name, s.Labels = "shop", service+"-1", map[string]string{discoveryv1.LabelServiceName: service}
	return s
}

func TestChangesReachTheKernel(t *testing.T) {
	r := startProxy(t)
	r.create(svc("web", "10.43.0.20", nil))
	r.until("a refusal while there is no endpoint", func(d string) bool { return strings.Contains(d, "refused-ips { 10.43.0.20") })
	r.create(named("web", slice(ep("10.42.0.5", "here", ready))[0]))
	r.until("a translation to the endpoint", func(d string) bool {
		return strings.Contains(d, "10.42.0.5 . 8080") && !strings.Contains(d, "refused-ips { 10.43.0.20")
	})
	check(t, client.Of[*corev1.Service](r.api).Delete(t.Context(), "shop", "web", metav1.DeleteOptions{}))
	r.until("nothing of the Service", func(d string) bool { return !strings.Contains(d, "shop/web") && !strings.Contains(d, "10.43.0.20") })
}

func TestARefusedTransactionIsMadeGood(t *testing.T) {
	r := startProxy(t)
	r.kernel.mu.Lock()
	r.kernel.refuse = io.ErrUnexpectedEOF
	r.kernel.mu.Unlock()
	r.create(named("web", slice(ep("10.42.0.5", "here", ready))[0]))
	r.create(svc("web", "10.43.0.20", nil))
	r.until("the translation in the end", func(d string) bool { return strings.Contains(d, "10.42.0.5 . 8080") })
}

func TestUDPFlowsToALostEndpointEnd(t *testing.T) {
	r := startProxy(t)
	udp := svc("dns", "10.43.0.30", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
	sl := named("dns", slice(ep("10.42.0.5", "here", ready))[0])
	*sl.Ports[0].Protocol = corev1.ProtocolUDP
	r.create(sl)
	r.create(udp)
	front := netip.MustParseAddrPort("10.43.0.30:80")
	same := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff([]Flow{{Front: front}}, <-r.flows.got, same); diff != "" {
		t.Errorf("when the first endpoint comes (-want +got):\n%s", diff)
	}
	check(t, client.Of[*discoveryv1.EndpointSlice](r.api).Delete(t.Context(), "shop", "dns-1", metav1.DeleteOptions{}))
	if diff := cmp.Diff([]Flow{{front, netip.MustParseAddrPort("10.42.0.5:8080")}}, <-r.flows.got, same); diff != "" {
		t.Errorf("when it goes (-want +got):\n%s", diff)
	}
}

func TestHealthChecksFollowTheLocalEndpoints(t *testing.T) {
	h := newHealthServer(slog.New(slog.DiscardHandler))
	defer h.close()
	port, err := freeport.Find("0.0.0.0")
	check(t, err)
	s := svc("web", "10.43.0.20", func(s *corev1.Service) { s.Spec.HealthCheckNodePort = int32(port) })
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	for _, c := range []struct {
		node string
		want int
	}{{"there", http.StatusServiceUnavailable}, {"here", http.StatusOK}} {
		h.set(key(s), s, true, Ports(s, slice(ep("10.42.0.5", c.node, ready)), here, false))
		answer, err := http.Get(url)
		check(t, err)
		answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("with an endpoint %s: %s, want %d", c.node, answer.Status, c.want)
		}
	}
	h.set(key(s), nil, false, nil)
	if _, err := http.Get(url); err == nil {
		t.Error("it still answers after the Service went")
	}
}
