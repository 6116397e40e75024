package kubeletapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// View is what this package must know about the pods on the node. Objects are
// shared and must not be changed.
type View interface {
	// Pods lists the pods bound to this node, with their current status.
	Pods() []*corev1.Pod
	// Pod finds one of them.
	Pod(namespace, name string) (*corev1.Pod, bool)
}

// Runtime is the part of a CRI runtime service that this package calls; the
// signatures are those of k8s.io/cri-api's RuntimeService.
type Runtime interface {
	ContainerStatus(ctx context.Context, id string, verbose bool) (*cri.ContainerStatusResponse, error)
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error)
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
	Exec(ctx context.Context, r *cri.ExecRequest) (*cri.ExecResponse, error)
	Attach(ctx context.Context, r *cri.AttachRequest) (*cri.AttachResponse, error)
	PortForward(ctx context.Context, r *cri.PortForwardRequest) (*cri.PortForwardResponse, error)
	ListPodSandboxStats(ctx context.Context, filter *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error)
}

// Images is the part of a CRI image service that statistics need.
type Images interface {
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
}

// Config is what a server needs. All fields are required unless they say otherwise.
type Config struct {
	NodeName string
	View     View
	Runtime  Runtime
	Images   Images

	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer

	// Metrics serves /metrics: the node agent's own. Optional.
	Metrics http.Handler
	// Configz is what /configz shows as "kubeletconfig"; it is encoded as JSON. Optional.
	Configz any
	// Healthz returns an error when the node agent does not do its work. Optional.
	Healthz func() error
	// LogDir is served read-only under /logs/; "" turns that off.
	LogDir string
	// DataDir is the folder whose file system the node's "fs" statistics describe.
	DataDir string
	// Proc is /proc; tests put another folder in its place. Optional.
	Proc string

	Clock clock.Clock  // optional
	Log   *slog.Logger // optional
}

// Server answers the node's HTTPS API.
type Server struct {
	cfg     Config
	handler http.Handler
	cpu     cpuRate
}

// New checks the configuration.
func New(c Config) (*Server, error) {
	for name, missing := range map[string]bool{
		"NodeName": c.NodeName == "", "View": c.View == nil, "Runtime": c.Runtime == nil, "Images": c.Images == nil,
		"Authenticator": c.Authenticator == nil, "Authorizer": c.Authorizer == nil, "DataDir": c.DataDir == "",
	} {
		if missing {
			return nil, fmt.Errorf("node API: %s is not set", name)
		}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Proc == "" {
		c.Proc = "/proc"
	}
	if c.Healthz == nil {
		c.Healthz = func() error { return nil }
	}
	s := &Server{cfg: c}
	s.handler = s.guard(s.routes())
	return s, nil
}

// Handler is the whole API behind authentication and authorization, for tests
// and for servers that listen by themselves. Client certificates are looked for
// in the request's TLS state.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", s.healthz)
	m.HandleFunc("GET /healthz/{check}", s.healthz)
	m.HandleFunc("GET /pods", s.pods)
	m.HandleFunc("GET /pods/{$}", s.pods)
	m.HandleFunc("GET /runningpods/{$}", s.runningPods)
	m.HandleFunc("GET /containerLogs/{ns}/{pod}/{container}", s.containerLogs)
	for _, at := range []string{"/{ns}/{pod}/{container}", "/{ns}/{pod}/{uid}/{container}"} {
		m.HandleFunc("GET /exec"+at, s.exec)
		m.HandleFunc("POST /exec"+at, s.exec)
		m.HandleFunc("GET /attach"+at, s.attach)
		m.HandleFunc("POST /attach"+at, s.attach)
		m.HandleFunc("POST /run"+at, s.run)
	}
	for _, at := range []string{"/{ns}/{pod}", "/{ns}/{pod}/{uid}"} {
		m.HandleFunc("GET /portForward"+at, s.portForward)
		m.HandleFunc("POST /portForward"+at, s.portForward)
	}
	m.HandleFunc("GET /stats/summary", s.summary)
	m.HandleFunc("GET /metrics/resource", s.resourceMetrics)
	m.HandleFunc("GET /metrics/cadvisor", s.containerMetrics)
	if s.cfg.Metrics != nil {
		m.Handle("GET /metrics", s.cfg.Metrics)
	}
	m.HandleFunc("GET /configz", s.configz)
	if s.cfg.LogDir != "" {
		m.Handle("GET /logs/", http.StripPrefix("/logs/", http.FileServer(http.Dir(s.cfg.LogDir))))
	}
	return m
}

// Serve answers on l until ctx ends, then gives requests a moment and cuts them
// off. conf must present the node's certificate; it is asked for client
// certificates here, and they are verified by the Authenticator.
func (s *Server) Serve(ctx context.Context, l net.Listener, conf *tls.Config) error {
	conf = conf.Clone()
	if conf.ClientAuth == tls.NoClientCert {
		conf.ClientAuth = tls.RequestClientCert
	}
	if conf.MinVersion == 0 {
		conf.MinVersion = tls.VersionTLS12
	}
	base, cancel := context.WithCancel(context.Background())
	defer cancel()
	srv := &http.Server{
		Handler: s.handler, TLSConfig: conf,
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.ServeTLS(l, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("node API: %w", err)
	case <-ctx.Done():
	}
	cancel() // followed logs end at once
	grace, done := context.WithTimeout(context.Background(), 2*time.Second)
	defer done()
	if err := srv.Shutdown(grace); err != nil {
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("node API: %w", err)
	}
	return nil
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("check") {
	case "", "ping", "syncloop", "log":
	default:
		http.NotFound(w, r)
		return
	}
	if err := s.cfg.Healthz(); err != nil {
		http.Error(w, "node agent is not healthy: "+err.Error(), http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "ok")
}

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	conf := s.cfg.Configz
	if conf == nil {
		conf = map[string]any{}
	}
	s.writeJSON(w, map[string]any{"kubeletconfig": conf})
}
