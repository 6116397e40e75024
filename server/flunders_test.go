package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// flunderServer is a small API server of its own: it keeps flunders in memory, and believes the request headers of the front proxy only.
type flunderServer struct {
	*httptest.Server
	t     *testing.T
	gv    schema.GroupVersion
	ca    []byte
	names []string // common names that a front proxy may have
	// down makes every answer 503; slow keeps every request waiting until it is asked no more.
	down, slow atomic.Bool
	callers    sync.Map     // headers by method and path
	shown      atomic.Value // the common name of the last client certificate

	mu       sync.Mutex
	revision int
	objects  map[string]*unstructured.Unstructured
	watchers map[chan []byte]string // to namespace
}

var flunderVersion = schema.GroupVersion{Group: "wardle.example.com", Version: "v1alpha1"}

// startFlunders serves at localhost, certified for the Service's name by an authority whose certificate is s.ca.
func startFlunders(t *testing.T, service, namespace string, frontProxyCA []byte, names []string) *flunderServer {
	t.Helper()
	s := &flunderServer{t: t, gv: flunderVersion, names: names, objects: map[string]*unstructured.Unstructured{}, watchers: map[chan []byte]string{}}
	certificate := s.certify(service + "." + namespace + ".svc")
	proxies := x509.NewCertPool()
	if !proxies.AppendCertsFromPEM(frontProxyCA) {
		t.Fatal("no front proxy CA")
	}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: proxies}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *flunderServer) port() int32 {
	return int32(s.Listener.Addr().(*net.TCPAddr).Port)
}

func (s *flunderServer) certify(host string) tls.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (s *flunderServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cn := r.TLS.PeerCertificates[0].Subject.CommonName
	s.shown.Store(cn)
	if !slices.Contains(s.names, cn) {
		http.Error(w, "not a front proxy: "+cn, http.StatusUnauthorized)
		return
	}
	if s.slow.Load() {
		<-r.Context().Done()
		return
	}
	if s.down.Load() {
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	}
	s.callers.Store(r.Method+" "+r.URL.Path, r.Header.Clone())
	switch root := "/apis/" + s.gv.String(); {
	case r.URL.Path == "/apis":
		s.groups(w, r)
	case r.URL.Path == root:
		reply(w, 200, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: s.gv.String(),
			APIResources: []metav1.APIResource{{Name: "flunders", SingularName: "flunder", Kind: "Flunder", Namespaced: true, Verbs: flunderVerbs}}})
	case r.URL.Path == "/openapi/v2":
		reply(w, 200, json.RawMessage(`{"swagger":"2.0","info":{"title":"flunders","version":"v1"},"paths":{"`+root+`/flunders":{"get":{"operationId":"listFlunders","responses":{"200":{"description":"OK",
			"schema":{"$ref":"#/definitions/com.example.Flunder"}}}}},"/else":{}},"definitions":{"com.example.Flunder":{"type":"object","description":"A flunder."}}}`))
	case r.URL.Path == "/openapi/v3":
		reply(w, 200, json.RawMessage(`{"paths":{"apis/`+s.gv.String()+`":{"serverRelativeURL":"/openapi/v3`+root+`?hash=1"}}}`))
	case r.URL.Path == "/openapi/v3"+root:
		reply(w, 200, json.RawMessage(`{"openapi":"3.0.0","info":{"title":"flunders","version":"v1"},"paths":{"`+root+`/flunders":{}},"components":{"schemas":{"com.example.Flunder":{"type":"object"}}}}`))
	case strings.HasSuffix(r.URL.Path, "/echo") && r.Header.Get("Upgrade") != "":
		s.echo(w, r)
	case strings.HasPrefix(r.URL.Path, root+"/namespaces/"), r.URL.Path == root+"/flunders":
		s.serveObjects(w, r, strings.Split(strings.TrimPrefix(r.URL.Path, root+"/"), "/"))
	default:
		http.NotFound(w, r)
	}
}

var flunderVerbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "watch"}

func (s *flunderServer) groups(w http.ResponseWriter, r *http.Request) {
	const form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	if !strings.Contains(r.Header.Get("Accept"), form) {
		http.Error(w, "aggregated only", http.StatusNotAcceptable)
		return
	}
	w.Header().Set("Content-Type", form)
	_ = json.NewEncoder(w).Encode(discoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items: []discoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: s.gv.Group}, Versions: []discoveryv2.APIVersionDiscovery{{Version: s.gv.Version,
			Resources: []discoveryv2.APIResourceDiscovery{{Resource: "flunders", SingularResource: "flunder", Scope: discoveryv2.ScopeNamespace, Verbs: flunderVerbs,
				ResponseKind: &metav1.GroupVersionKind{Group: s.gv.Group, Version: s.gv.Version, Kind: "Flunder"}}}}}}}})
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// serveObjects serves flunders, or namespaces/NS/flunders, or namespaces/NS/flunders/NAME.
func (s *flunderServer) serveObjects(w http.ResponseWriter, r *http.Request, parts []string) {
	namespace, name := "", ""
	if parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	if r.Method == http.MethodGet && r.URL.Query().Get("watch") != "" {
		s.watch(w, r, namespace)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		u := &unstructured.Unstructured{}
		if err := json.NewDecoder(r.Body).Decode(&u.Object); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		u.SetNamespace(namespace)
		s.change("ADDED", u)
		reply(w, 201, u.Object)
	case r.Method == http.MethodGet && name != "":
		u := s.objects[namespace+"/"+name]
		if u == nil {
			reply(w, 404, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404,
				Message: fmt.Sprintf("flunders.wardle.example.com %q not found", name)})
			return
		}
		reply(w, 200, u.Object)
	case r.Method == http.MethodGet:
		reply(w, 200, s.list(namespace))
	case r.Method == http.MethodDelete:
		for key, u := range s.objects {
			if u.GetNamespace() == namespace && (name == "" || u.GetName() == name) {
				delete(s.objects, key)
				s.change("DELETED", u)
			}
		}
		reply(w, 200, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
	default:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	}
}

func (s *flunderServer) list(namespace string) map[string]any {
	items := []any{}
	for _, u := range s.objects {
		if namespace == "" || u.GetNamespace() == namespace {
			items = append(items, u.Object)
		}
	}
	return map[string]any{"apiVersion": s.gv.String(), "kind": "FlunderList", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.revision)}, "items": items}
}

// change is called with the lock held.
func (s *flunderServer) change(event string, u *unstructured.Unstructured) {
	s.revision++
	u.SetResourceVersion(strconv.Itoa(s.revision))
	if event == "ADDED" {
		u.SetUID("uid-" + "x")
		s.objects[u.GetNamespace()+"/"+u.GetName()] = u
	}
	line, _ := json.Marshal(map[string]any{"type": event, "object": u.Object})
	for c, namespace := range s.watchers {
		if namespace == "" || namespace == u.GetNamespace() {
			c <- append(line, '\n')
		}
	}
}

func (s *flunderServer) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	events := make(chan []byte, 100)
	s.mu.Lock()
	s.watchers[events] = namespace
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, events)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case line := <-events:
			if _, err := w.Write(line); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// echo answers an upgrade, and then sends back the first line that it gets with the caller's name.
func (s *flunderServer) echo(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_ = rw.Flush()
	line, _ := rw.ReadString('\n')
	fmt.Fprintf(rw, "%s says %s", r.Header.Get("X-Remote-User"), line)
	_ = rw.Flush()
}

// header is what came with the last request of that method and path.
func (s *flunderServer) header(call string) http.Header {
	h, ok := s.callers.Load(call)
	if !ok {
		return nil
	}
	return h.(http.Header)
}
