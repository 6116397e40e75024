// Package pluginregistry meets the plugins that drivers run beside the node agent, by the kubelet's protocol (k8s.io/kubelet/pkg/apis/pluginregistration/v1): a plugin makes a
// socket in a folder that is watched; it is asked for its kind, name and versions, handed to the handler of its kind, and told how that went.
//
// A socket that appears is met within milliseconds, one that does not answer is tried again, and one that goes has its plugin unregistered. A socket that is made anew is another
// plugin: the old one is unregistered after the new one is registered. Nothing that a plugin says is trusted beyond its own registration.
//
// Handlers are called from one goroutine. The package does not talk to plugins otherwise.
package pluginregistry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"
)

// Plugin is what a plugin says of itself.
type Plugin struct {
	Kind     string // registerapi.DRAPlugin and the like
	Name     string
	Endpoint string // the socket of its service
	Versions []string
	Socket   string // by which it registered
}

// Handler takes plugins of one kind.
type Handler interface {
	// Register takes a plugin in, or says why not; the plugin is told that.
	Register(Plugin) error
	Unregister(Plugin)
}

// Config is what a Registry needs.
type Config struct {
	// Dirs are watched. The first is made if it is not there; the others may come later.
	Dirs     []string
	Handlers map[string]Handler // by kind
	Clock    clock.WithTicker   // nil: the real one
	Log      *slog.Logger       // nil: slog.Default()
}

const (
	recheck  = 10 * time.Second // when what no event told of is looked for
	patience = 5 * time.Second  // for one answer
	tries    = 3                // of which the log keeps silent
	// When a plugin that did not answer is asked again: a socket is there a moment before somebody listens to it.
	firstRetry, lastRetry = 20 * time.Millisecond, 2 * time.Second
)

// Registry watches the folders. Make it with New, and Run it once.
type Registry struct {
	cfg   Config
	known map[string]*entry // by path of the socket
}

type entry struct {
	made       identity
	plugin     Plugin
	registered bool
	tries      int // that failed
}

// identity tells a socket from another of the same path.
type identity struct {
	inode   uint64
	changed time.Time
}

// New makes a Registry.
func New(c Config) *Registry {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Registry{cfg: c, known: map[string]*entry{}}
}

// Run watches until ctx ends. What is registered stays so.
func (r *Registry) Run(ctx context.Context) error {
	if len(r.cfg.Dirs) == 0 {
		return nil
	}
	if err := os.MkdirAll(r.cfg.Dirs[0], 0o750); err != nil {
		return fmt.Errorf("folder of plugins: %w", err)
	}
	w, err := newWatch(ctx)
	if err != nil {
		return fmt.Errorf("watching folders of plugins: %w", err)
	}
	retry := firstRetry
	for ctx.Err() == nil {
		for _, dir := range r.cfg.Dirs {
			w.add(dir) // again: it may have come meanwhile
		}
		wait := recheck
		if r.scan(ctx) {
			retry = firstRetry
		} else {
			wait, retry = retry, min(2*retry, lastRetry)
		}
		select {
		case <-ctx.Done():
		case <-w.woken:
		case <-r.cfg.Clock.After(wait):
		}
	}
	return nil
}

// scan compares the sockets that there are with those that are known. It answers false if one is to be tried again.
func (r *Registry) scan(ctx context.Context) (settled bool) {
	settled = true
	found := map[string]bool{}
	for _, dir := range r.cfg.Dirs {
		for path, made := range sockets(dir) {
			found[path] = true
			old := r.known[path]
			if old != nil && old.made == made && old.registered {
				continue
			}
			fresh := &entry{made: made}
			err := r.meet(ctx, path, fresh)
			if old != nil && old.registered {
				r.cfg.Handlers[old.plugin.Kind].Unregister(old.plugin)
			}
			r.known[path] = fresh
			if err != nil {
				settled = false
				if fresh.tries = 1; old != nil && old.made == made {
					fresh.tries += old.tries
				}
				if fresh.tries == tries {
					r.cfg.Log.Warn("plugin not registered; it is tried again", "socket", path, "error", err)
				}
			}
		}
	}
	for path, e := range r.known {
		if found[path] {
			continue
		}
		delete(r.known, path)
		if e.registered {
			r.cfg.Handlers[e.plugin.Kind].Unregister(e.plugin)
		}
	}
	return settled
}

func sockets(dir string) map[string]identity {
	out := map[string]identity{}
	list, err := os.ReadDir(dir)
	if err != nil {
		return out // it may come later
	}
	for _, f := range list {
		if strings.HasPrefix(f.Name(), ".") || f.Type()&os.ModeSocket == 0 {
			continue
		}
		info, err := f.Info()
		if err != nil {
			continue
		}
		id := identity{changed: info.ModTime()}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			id.inode = st.Ino
		}
		out[filepath.Join(dir, f.Name())] = id
	}
	return out
}

// meet asks a plugin who it is, hands it to its handler, and tells it.
func (r *Registry) meet(ctx context.Context, path string, e *entry) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := Dial(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	plugin := registerapi.NewRegistrationClient(conn)
	info, err := plugin.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return fmt.Errorf("asking who it is: %w", err)
	}
	e.plugin = Plugin{Kind: info.Type, Name: info.Name, Endpoint: info.Endpoint, Versions: info.SupportedVersions, Socket: path}
	if e.plugin.Endpoint == "" {
		e.plugin.Endpoint = path
	}
	status := &registerapi.RegistrationStatus{PluginRegistered: true}
	if err = r.register(e.plugin); err != nil {
		status = &registerapi.RegistrationStatus{Error: err.Error()}
	}
	e.registered = err == nil
	_, told := plugin.NotifyRegistrationStatus(ctx, status)
	if told != nil && e.registered { // it does not know: what it would do is not known either
		r.cfg.Handlers[e.plugin.Kind].Unregister(e.plugin)
		e.registered = false
	}
	return errors.Join(err, told)
}

func (r *Registry) register(p Plugin) error {
	h, ok := r.cfg.Handlers[p.Kind]
	if !ok {
		return fmt.Errorf("this node has no use for plugins of type %q", p.Kind)
	}
	if p.Name == "" {
		return errors.New("the plugin has no name")
	}
	return h.Register(p)
}

// Dial makes a connection to a plugin's socket.
func Dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", socket, err)
	}
	return conn, nil
}
