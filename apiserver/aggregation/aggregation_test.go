package aggregation_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/authentication/user"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/apiserver/aggregation"
	"github.com/yare-project/yare/apiserver/discovery"
	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
)

const patience = 20 * time.Second

var gv = schema.GroupVersion{Group: "example.com", Version: "v1"}

// stage is an Aggregator over an API in memory.
type stage struct {
	*testing.T
	api     *fake.Transport
	a       *aggregation.Aggregator
	metrics *prometheus.Registry
}

func run(t *testing.T) *stage {
	s := &stage{T: t, api: fake.New(nil), metrics: prometheus.NewRegistry()}
	s.a = aggregation.New(aggregation.Config{Resolve: s.resolve, Metrics: s.metrics,
		Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.a.Run(ctx, s.api) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.a.Synced()
	return s
}

func (s *stage) resolve(ctx context.Context, namespace, name string, _ int32) ([]string, error) {
	var out []string
	list, err := client.Of[*discoveryv1.EndpointSlice](s.api).List(ctx, namespace, metav1.ListOptions{})
	for _, e := range list {
		if e.Labels[discoveryv1.LabelServiceName] == name {
			for _, p := range e.Endpoints {
				out = append(out, net.JoinHostPort(p.Addresses[0], fmt.Sprint(*e.Ports[0].Port)))
			}
		}
	}
	if len(out) == 0 && err == nil {
		err = fmt.Errorf("no endpoints available for service %q", name)
	}
	return out, err
}

func (s *stage) until(what string, f func() error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Fatalf("%s: %v", what, err)
		}
	}
}

func (s *stage) reason(want string) {
	s.Helper()
	s.until("condition "+want, func() error {
		o, err := client.Of[*apiregistrationv1.APIService](s.api).Get(s.Context(), "", "v1.example.com")
		if err != nil {
			return err
		}
		if c := o.Status.Conditions; len(c) != 1 || c[0].Reason != want || c[0].Type != apiregistrationv1.Available {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// create and change write to the API in memory.
func create[T client.Object](s *stage, o T) {
	s.Helper()
	if _, err := client.Of[T](s.api).Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

func change[T interface {
	client.Object
	DeepCopy() T
}](s *stage, namespace, name string, f func(T)) {
	s.Helper()
	s.until("change "+name, func() error {
		o, err := client.Of[T](s.api).Get(s.Context(), namespace, name)
		if err != nil {
			return err
		}
		o = o.DeepCopy()
		f(o)
		_, err = client.Of[T](s.api).Update(s.Context(), o)
		return err
	})
}

// other is an API server that knows legacy discovery and OpenAPI v2 only; it answers objects with its name.
func other(t *testing.T, name string) (*httptest.Server, int32) {
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
			{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list"]},{"name":"things/status","namespaced":true,"kind":"Thing","verbs":["get"]}]}`)
	})
	mux.HandleFunc("/apis/example.com/v1/things", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	mux.HandleFunc("/apis/example.com/v1/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "https://evil.example.com", 302) })
	mux.HandleFunc("/apis/example.com/v1/who", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Remote-User"), r.Header["X-Remote-Group"], r.Header.Get("Te"), r.Header.Get("X-Hop"), r.URL.RawQuery, r.Header.Get("X-Forwarded-For"))
	})
	mux.HandleFunc("/openapi/v2", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"swagger":"2.0","info":{"title":"t","version":"v"},"paths":{"/apis/example.com/v1/things":{}},"definitions":{}}`)
	})
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, int32(server.Listener.Addr().(*net.TCPAddr).Port)
}

func apiServiceOf() *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}, Spec: apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version,
		GroupPriorityMinimum: 100, VersionPriority: 10, InsecureSkipTLSVerify: true, Service: &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "api", Port: ptr.To[int32](443)}}}
}

func sliceOf(port int32, ready bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "api-1", Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}}
}

// ask proxies a request as the gate does.
func (s *stage) ask(path string) (int, string, error) {
	w := httptest.NewRecorder()
	err := s.a.Proxy(w, httptest.NewRequest(http.MethodGet, path, nil), gv, &user.DefaultInfo{Name: "jane"})
	return w.Code, w.Body.String(), err
}

// The condition follows the Service and its endpoints, change by change, without a timer; requests go where the endpoints are.
func TestAvailabilityFollowsTheService(t *testing.T) {
	s := run(t)
	if s.a.Serves(gv) {
		t.Fatal("it serves what nobody registered")
	}
	create(s, apiServiceOf())
	s.reason("ServiceNotFound")
	if _, _, err := s.ask("/apis/example.com/v1/things"); err == nil || !strings.Contains(err.Error(), `ServiceNotFound: service/api in "ns" is not present`) {
		t.Errorf("a request to nobody: %v", err)
	}
	create(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "api"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP,
		Ports: []corev1.ServicePort{{Name: "https", Port: 80, TargetPort: intstr.FromInt32(1)}}}})
	s.reason("ServicePortError")
	change(s, "ns", "api", func(o *corev1.Service) { o.Spec.Ports[0].Port = 443 })
	s.reason("EndpointsNotFound")
	_, first := other(t, "first")
	create(s, sliceOf(first, false))
	s.reason("MissingEndpoints")
	change(s, "ns", "api-1", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Conditions.Ready = ptr.To(true) })
	s.reason("Passed")
	if code, body, err := s.ask("/apis/example.com/v1/things"); code != 200 || body != "first" || err != nil {
		t.Errorf("%d %q %v", code, body, err)
	}
	if code, body, err := s.ask("/apis/example.com/v1/moved"); code != http.StatusBadGateway || strings.Contains(body, "evil") || err != nil {
		t.Errorf("a redirect: %d %q %v", code, body, err)
	}
	// A header that says to drop the user's name drops the client's, not the server's.
	w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/who?a=%2F;b", nil)
	for name, value := range map[string]string{"Connection": "X-Remote-User, X-Remote-Group, X-Hop", "X-Remote-User": "root", "X-Hop": "1", "Te": "gzip", "X-Forwarded-For": "10.9.9.9"} {
		req.Header.Set(name, value)
	}
	err := s.a.Proxy(w, req, gv, &user.DefaultInfo{Name: "jane", Groups: []string{"devs"}})
	if want := "jane[devs]a=%2F;b10.9.9.9, 192.0.2.1"; w.Body.String() != want || err != nil {
		t.Errorf("got %q, want %q; %v", w.Body, want, err)
	}
	_, second := other(t, "second")
	change(s, "ns", "api-1", func(o *discoveryv1.EndpointSlice) { o.Ports[0].Port = &second })
	s.until("requests move with the endpoint", func() error {
		if _, body, err := s.ask("/apis/example.com/v1/things"); body != "second" {
			return fmt.Errorf("%q, %v", body, err)
		}
		return nil
	})
	change(s, "ns", "api-1", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Conditions.Ready = ptr.To(false) })
	s.reason("MissingEndpoints")
	if got := s.unavailable(); got != "aggregator_unavailable_apiservice=1 aggregator_unavailable_apiservice_total{MissingEndpoints}=1" {
		t.Errorf("metrics: %s", got)
	}
	if err := client.Of[*apiregistrationv1.APIService](s.api).Delete(s.Context(), "", "v1.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until("it is served no more", func() error {
		if s.a.Serves(gv) {
			return io.ErrNoProgress
		}
		return nil
	})
	if got := s.unavailable(); got != "" {
		t.Errorf("metrics of what is gone: %s", got)
	}
}

func (s *stage) unavailable() string {
	families, err := s.metrics.Gather()
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.Metric {
			text := f.GetName()
			for _, l := range m.Label {
				if l.GetName() == "reason" {
					text += "{" + l.GetValue() + "}"
				}
			}
			out = append(out, fmt.Sprintf("%s=%v", text, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return strings.Join(out, " ")
}

// A server with neither aggregated discovery nor OpenAPI v3 is described in both all the same.
func TestAnOldServerIsDescribed(t *testing.T) {
	s := run(t)
	_, port := other(t, "old")
	create(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "api"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}})
	create(s, sliceOf(port, true))
	create(s, apiServiceOf())
	s.until("discovery", func() error {
		services, _ := s.a.Services()
		if len(services) != 1 || !services[0].Fresh {
			return fmt.Errorf("%+v", services)
		}
		var got []string
		for _, r := range services[0].Resources {
			got = append(got, r.Resource, string(r.Scope), r.ResponseKind.Kind, r.Subresources[0].Subresource)
		}
		if diff := cmp.Diff([]string{"things", "Namespaced", "Thing", "status"}, got); diff != "" {
			t.Fatal(diff)
		}
		if want := (discovery.Place{Group: 100, Version: 10}); services[0].Place != want {
			t.Fatalf("place %+v", services[0].Place)
		}
		return nil
	})
	s.until("documents", func() error {
		documents, _ := s.a.Documents()
		if len(documents) != 1 || len(documents[0].V2) == 0 || len(documents[0].V3) == 0 || documents[0].Hash == "" {
			return fmt.Errorf("%+v", documents)
		}
		return nil
	})
	resources, failed := s.a.Resources()
	if len(failed) != 0 || len(resources) != 1 || resources[0].Resource != "things" || !resources[0].Namespaced {
		t.Errorf("resources %+v, failed %v", resources, failed)
	}
}

// While an authority is exchanged, nobody is told for a moment that nobody serves the group: clients take that for the absence of its objects.
func TestAnExchangeLeavesNoGap(t *testing.T) {
	s := run(t)
	server, port := other(t, "x")
	create(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "api"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}})
	create(s, sliceOf(port, true))
	create(s, apiServiceOf())
	s.reason("Passed")
	done, gaps := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-done:
				gaps <- n
				return
			default:
				if !s.a.Serves(gv) {
					n++
				}
			}
		}
	}()
	for i := range 20 {
		change(s, "", "v1.example.com", func(o *apiregistrationv1.APIService) {
			o.Spec.InsecureSkipTLSVerify, o.Spec.CABundle = i%2 == 0, nil
			if i%2 == 1 {
				o.Spec.CABundle = pemOf(server)
			}
		})
	}
	change(s, "", "v1.example.com", func(o *apiregistrationv1.APIService) { o.Spec.InsecureSkipTLSVerify, o.Spec.CABundle = true, nil })
	s.reason("Passed")
	close(done)
	if n := <-gaps; n > 0 {
		t.Errorf("%d times nobody served it", n)
	}
}

// The group of APIServices cannot be given away.
func TestTheGroupOfAPIServicesStays(t *testing.T) {
	s := run(t)
	o := apiServiceOf()
	o.Name, o.Spec.Group = "v1.apiregistration.k8s.io", "apiregistration.k8s.io"
	create(s, o)
	create(s, apiServiceOf())
	s.reason("ServiceNotFound") // the later one was seen
	if s.a.Serves(schema.GroupVersion{Group: "apiregistration.k8s.io", Version: "v1"}) {
		t.Error("it is served elsewhere")
	}
}

// A certificate that caBundle does not vouch for is none.
func TestCertificatesAreChecked(t *testing.T) {
	s := run(t)
	server, port := other(t, "x")
	create(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "api"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}})
	create(s, sliceOf(port, true))
	o := apiServiceOf()
	o.Spec.InsecureSkipTLSVerify = false
	create(s, o)
	s.reason("FailedDiscoveryCheck")
	change(s, "", o.Name, func(o *apiregistrationv1.APIService) { o.Spec.CABundle = []byte("nonsense") })
	s.until("the reason names the bundle", func() error {
		if _, _, err := s.ask("/apis/example.com/v1/things"); err == nil || !strings.Contains(err.Error(), "caBundle has no certificate") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	// Its certificate is good, but for example.com, not for api.ns.svc.
	change(s, "", o.Name, func(o *apiregistrationv1.APIService) { o.Spec.CABundle = pemOf(server) })
	s.until("the reason names the wrong name", func() error {
		if _, _, err := s.ask("/apis/example.com/v1/things"); err == nil || !strings.Contains(err.Error(), "not api.ns.svc") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	change(s, "", o.Name, func(o *apiregistrationv1.APIService) { o.Spec.CABundle, o.Spec.InsecureSkipTLSVerify = nil, true })
	s.reason("Passed")
}

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
