package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/cni"
	"github.com/yare-project/yare/node/image"
)

// Runtime is a container runtime that answered.
type Runtime struct {
	cfg      Config
	paths    paths
	settings settings
	endpoint string
	conn     *grpc.ClientConn
	images   *image.Store

	mu       sync.Mutex
	daemon   *process      // nil when external
	stopping chan struct{} // closed by Stop
	done     chan struct{} // closed when supervision has ended
	stopOnce sync.Once
}

// Start connects to the runtime, starting it first when it is Yare's own, and
// returns when it is ready to run pods (the pause image is present; the pod
// network too, when Config.PodCIDRs is set). ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Runtime, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Runtime{cfg: cfg, stopping: make(chan struct{}), done: make(chan struct{})}
	if cfg.Endpoint != "" {
		return r, r.connectExternal(ctx)
	}
	r.paths = cfg.paths()
	r.endpoint = "unix://" + r.paths.socket
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := r.launch(ctx); err != nil {
		return nil, errors.Join(err, r.abandon())
	}
	return r, nil
}

// Endpoint is the runtime's CRI address, such as unix:///run/yare/1a2b3c4d/containerd.sock.
func (r *Runtime) Endpoint() string { return r.endpoint }

// Conn is a connection to it, for CRI clients. It is closed by Stop and Remove,
// and reconnects by itself after the daemon was restarted.
func (r *Runtime) Conn() *grpc.ClientConn { return r.conn }

// Images is the runtime's image store; nil when an external runtime is no containerd.
func (r *Runtime) Images() *image.Store { return r.images }

// ID names this data folder among the clusters on the machine: 8 hexadecimal
// digits; empty for an external runtime.
func (r *Runtime) ID() string { return r.paths.id }

// Bridge is the interface that pods are attached to; empty for an external runtime.
func (r *Runtime) Bridge() string {
	if r.cfg.Endpoint != "" {
		return ""
	}
	return cni.Bridge(r.paths.id)
}

// SetPodCIDRs writes the pod network's configuration for ranges that the server
// assigned. Pods can't get addresses before. An external runtime brings its own
// network, and the call does nothing.
func (r *Runtime) SetPodCIDRs(cidrs []netip.Prefix) error {
	if r.cfg.Endpoint != "" {
		return nil
	}
	c := r.cfg.network(r.paths)
	c.PodCIDRs = cidrs
	return cni.Write(c)
}

func (r *Runtime) connectExternal(ctx context.Context) error {
	r.endpoint = r.cfg.Endpoint
	if !strings.Contains(r.endpoint, "://") {
		r.endpoint = "unix://" + r.endpoint
	}
	conn, err := dial(r.endpoint)
	if err != nil {
		return err
	}
	v, err := version(ctx, conn)
	if err != nil {
		conn.Close()
		return fmt.Errorf("container runtime: %s doesn't answer as a CRI v1 runtime: is it running, and its CRI plug-in enabled? %w", r.endpoint, err)
	}
	r.cfg.Log.Info("container runtime connected", "endpoint", r.endpoint, "name", v.RuntimeName, "version", v.RuntimeVersion)
	r.conn = conn
	if v.RuntimeName == "containerd" {
		r.images = image.NewStore(image.Config{Conn: conn})
	}
	close(r.done)
	return nil
}

// prepare makes folders and files.
func (r *Runtime) prepare() error {
	if err := r.cfg.checkPrograms(); err != nil {
		return err
	}
	if err := r.paths.validate(); err != nil {
		return err
	}
	for dir, mode := range map[string]os.FileMode{
		r.cfg.Dir: 0o700, r.paths.root: 0o700, r.paths.certs: 0o755, r.paths.cniConf: 0o755, r.cfg.RunDir: 0o755, r.paths.state: 0o711, r.paths.shims: 0o700,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("container runtime: %w", err)
		}
	}
	var err error
	if r.settings, err = decide(observe(r.paths.root)); err != nil {
		return err
	}
	for _, w := range r.settings.warnings {
		r.cfg.Log.Warn("container runtime: " + w)
	}
	conf, err := daemonConfig(r.cfg, r.paths, r.settings)
	if err != nil {
		return fmt.Errorf("container runtime: %w", err)
	}
	if err := replaceFile(r.paths.config, conf); err != nil {
		return fmt.Errorf("container runtime: %w", err)
	}
	if err := r.cfg.settings(r.paths).Enable(); err != nil {
		return err
	}
	if len(r.cfg.PodCIDRs) == 0 {
		return nil
	}
	return cni.Write(r.cfg.network(r.paths))
}

// launch brings the daemon up, and supervises it from then on.
func (r *Runtime) launch(ctx context.Context) error {
	fingerprint, err := r.fingerprint()
	if err != nil {
		return fmt.Errorf("container runtime: %w", err)
	}
	if err := r.adoptOrSpawn(ctx, fingerprint); err != nil {
		return err
	}
	go r.supervise(fingerprint)
	if r.conn, err = dial(r.endpoint); err != nil {
		return err
	}
	if err := r.ready(ctx); err != nil {
		return err
	}
	r.images = image.NewStore(image.Config{Conn: r.conn, Snapshotter: r.settings.snapshotter})
	return ensurePause(ctx, r.images, r.cfg.BinDir)
}

// ready waits for the first answer, or for the daemon's end.
func (r *Runtime) ready(ctx context.Context) error {
	daemon := r.current()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-daemon.exited:
			cancel(fmt.Errorf("containerd ended while starting (%s): %s", daemon.why, lastLines(r.paths.log)))
		case <-ctx.Done():
		}
	}()
	if _, err := version(ctx, r.conn); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("container runtime: %w; its log is %s", err, r.paths.log)
	}
	return nil
}

// abandon undoes a failed start, but for what earlier starts left running.
func (r *Runtime) abandon() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if r.current() == nil {
		close(r.done)
		return nil
	}
	return r.Stop(ctx)
}

// dial connects lazily: calls fail or wait, as they choose, until the socket answers.
func dial(endpoint string) (*grpc.ClientConn, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return nil, fmt.Errorf("container runtime: endpoint %q is not a unix socket: write unix:///path/to.sock", endpoint)
	}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", addr)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}),
		// 16 MiB is what CRI clients and containerd agree on.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.MaxCallSendMsgSize(16<<20)),
	)
	if err != nil {
		return nil, fmt.Errorf("container runtime: %w", err)
	}
	return conn, nil
}

// startLimit bounds how long a runtime may take to answer for the first time.
const startLimit = time.Minute

// version waits for the first answer. containerd opens its socket before its CRI
// plug-in has recovered the containers of an earlier run, and answers Unavailable
// until then; nothing announces the end of that, so the question is repeated.
func version(ctx context.Context, conn *grpc.ClientConn) (*cri.VersionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client := cri.NewRuntimeServiceClient(conn)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		v, err := client.Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true))
		if status.Code(err) != codes.Unavailable {
			return v, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}
