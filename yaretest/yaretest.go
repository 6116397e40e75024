// Package yaretest gives a Go test an API server of its own, in the test's process: no binaries to download, no processes to start, ready within
// milliseconds.
//
//	func TestReconcile(t *testing.T) {
//		api := yaretest.Start(t, yaretest.CRDs("../config/crd/bases"))
//		manager, err := ctrl.NewManager(api.Config(), ctrl.Options{})
//		...
//	}
//
// It is the API server that Yare runs, not a fake of one: HTTPS on a free port of 127.0.0.1, client certificates, RBAC, admission, validation, watches,
// server-side apply, custom resources and webhooks. State is in memory and goes with the test.
//
// As with controller-runtime's envtest, nothing runs around it unless asked for: no node starts pods, no loop makes ReplicaSets of a Deployment,
// collects garbage or empties a namespace that is deleted; see [Controllers]. The admission plugin ServiceAccount is off unless the loop
// "serviceaccount-controller" runs, because nothing else would make the accounts that pods need.
//
// Guarantees: every Start has a server of its own, several run side by side in one process; when Start returns, /readyz is answered, the
// custom resources are served and the webhooks are called; after the test no goroutine, socket or file is left. All methods are safe for concurrent use.
package yaretest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/server"
)

// startTime bounds a start, CRDs and webhooks included.
const startTime = 30 * time.Second

// Server is a running API server.
type Server struct {
	cluster *server.Cluster
	hooks   WebhookServer

	end  context.CancelFunc
	done chan struct{}
	err  error // how it ended; read once done is closed
	once sync.Once
}

// Start starts an API server, and stops it when the test and its subtests are over. A failure to start fails the test at once.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s, err := New(options...)
	if err != nil {
		t.Fatalf("yaretest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("yaretest: %v", err)
		}
	})
	return s
}

// New starts an API server where there is no test to hang it on, such as in TestMain. Whoever calls it calls Stop.
func New(options ...Option) (*Server, error) {
	o := newSettings(options)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := o.serverConfig(listener)
	if err := config.Complete(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	cluster, err := server.Start(ctx, config)
	if err != nil {
		_ = listener.Close() // closed already if the server got that far
		return nil, err
	}
	s := &Server{cluster: cluster, done: make(chan struct{})}
	var running context.Context
	running, s.end = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		s.err = cluster.Wait(running)
	}()
	if err := s.install(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Stop ends the server and waits until nothing of it is left. Watches end; requests in flight are answered. Calling it again does nothing.
func (s *Server) Stop() error {
	s.once.Do(func() {
		s.end()
		<-s.done
		if s.hooks.CertDir != "" {
			s.err = errors.Join(s.err, os.RemoveAll(s.hooks.CertDir))
		}
	})
	return s.err
}

// Config is how to reach the server as its administrator (group system:masters), without a client-side limit of requests. Each call returns a copy.
func (s *Server) Config() *rest.Config { return restConfig(s.cluster.Admin("yaretest")) }

// AddUser makes a user of these groups and returns how to reach the server as that user, who may do what RBAC objects allow. The user "system:serviceaccount:<namespace>:<name>"
// with the groups "system:serviceaccounts" and "system:serviceaccounts:<namespace>" has the rights of that service account.
func (s *Server) AddUser(name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("yaretest: a user needs a name")
	}
	entry, err := s.cluster.User("yaretest", name, groups...)
	if err != nil {
		return nil, fmt.Errorf("yaretest: user %q: %w", name, err)
	}
	return restConfig(entry), nil
}

// Kubeconfig is a kubeconfig file for the administrator, for programs that take no rest.Config.
func (s *Server) Kubeconfig() ([]byte, error) { return kubeconfig.Encode(s.cluster.Admin("yaretest")) }

func restConfig(e kubeconfig.Entry) *rest.Config {
	return &rest.Config{Host: e.Server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: e.CA, CertData: e.Cert, KeyData: e.Key}}
}
