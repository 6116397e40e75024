// Package podresources serves the kubelet's PodResources API (k8s.io/kubelet/pkg/apis/podresources, v1 and v1alpha1; KEP-606, KEP-2403, KEP-3695) by a unix socket: monitoring
// agents and network plugins ask which devices the containers of this node's pods have.
//
// It tells of devices of ResourceClaims. This node has no device plugins and pins no CPUs or memory, so those lists are empty, as the kubelet's are without the managers.
// Init containers that end are left out, as are pods that are over. Anybody who can open the socket may ask; its folder is root's.
// Requests beyond 100 a second are refused with ResourceExhausted. Safe for concurrent use.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/yare-project/yare/node/dra"
)

// SocketName is what the socket is called in its folder.
const SocketName = "kubelet.sock"

// The kubelet's limits.
const (
	perSecond = 100
	burst     = 10
)

// Config is what a Server needs.
type Config struct {
	// Dirs are where sockets are made. The first folder is made; in the others a socket is made if the folder is there when Run begins and nobody else serves in it.
	Dirs []string
	// Pods lists the pods of this node with their present status; Pod answers one by namespace and name.
	Pods func() []*corev1.Pod
	Pod  func(namespace, name string) (*corev1.Pod, bool)
	// Uses lists the prepared claims of a container; an error: they are not (all) prepared.
	Uses func(pod *corev1.Pod, container *corev1.Container) ([]dra.Use, error)
	Log  *slog.Logger // nil: slog.Default()
}

// Server serves the API. Make it with New, and Run it once.
type Server struct {
	podresourcesv1.UnsafePodResourcesListerServer
	cfg Config
}

// New makes a Server.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Server{cfg: c}
}

// Run serves until ctx ends, and takes its sockets away. An error means that it can't serve in the first folder.
func (s *Server) Run(ctx context.Context) error {
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	limit := rate.NewLimiter(perSecond, burst)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return handle(ctx, request)
	}))
	podresourcesv1.RegisterPodResourcesListerServer(server, s)
	v1alpha1.RegisterPodResourcesListerServer(server, first{s: s})
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- server.Serve(l) }()
	}
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	var errs []error
	for range listeners {
		if err := <-ended; err != nil && ctx.Err() == nil {
			errs = append(errs, err)
			server.Stop()
		}
	}
	return errors.Join(errs...)
}

// listen makes the sockets.
func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	var out []net.Listener
	for i, dir := range s.cfg.Dirs {
		if i == 0 {
			if err := os.MkdirAll(dir, 0o750); err != nil {
				return nil, fmt.Errorf("folder of the PodResources socket: %w", err)
			}
		} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		l, err := listenOn(ctx, filepath.Join(dir, SocketName))
		switch {
		case err == nil:
			out = append(out, l)
		case i == 0:
			return nil, fmt.Errorf("PodResources socket: %w", err)
		default:
			s.cfg.Log.Warn("the PodResources API is not served here too", "folder", dir, "error", err)
		}
	}
	return out, nil
}

// errServed means that somebody else has a socket.
var errServed = errors.New("somebody else serves there")

// listenOn makes a socket in the place of one that nobody serves.
func listenOn(ctx context.Context, path string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	if conn, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", path, errServed)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there and is no socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "unix", path)
}
