// Package pluginregistry meets the plugins that drivers run beside the node agent, by the kubelet's protocol (k8s.io/kubelet/pkg/apis/pluginregistration/v1): a plugin makes a
// socket in a folder that is watched; it is asked for its kind, name and versions, handed to the handler of its kind, and told how that went.
//
// A socket that appears is met within milliseconds, one that does not answer is tried again, and one that goes has its plugin unregistered. A socket that is made anew is another
// plugin: the old one is unregistered after the new one is registered. Nothing that a plugin says is trusted beyond its own registration.
//
// One that hangs delays no other: each is met beside the others. Handlers are called one at a time. The package does not talk to plugins otherwise.
package pluginregistry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	known map[string]*entry // by path of the socket; it belongs to Run, as do the entries
	met   chan *meeting     // that have ended

	handlers sync.Mutex // one call to a handler at a time
	running  sync.WaitGroup
}

// entry is a socket.
type entry struct {
	made       identity
	plugin     Plugin // if registered: the newest that was
	registered bool   // plugin is; it may be an older socket's
	settled    bool   // plugin is this socket's
	meeting    *meeting
	tries      int       // that failed
	next       time.Time // when it is tried again
}

// meeting is one try to register a plugin.
type meeting struct {
	path       string
	cancel     context.CancelFunc
	plugin     Plugin
	registered bool
	err        error
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
	return &Registry{cfg: c, known: map[string]*entry{}, met: make(chan *meeting)}
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
	defer r.running.Wait()
	for ctx.Err() == nil {
		for _, dir := range r.cfg.Dirs {
			w.add(dir) // again: it may have come meanwhile
		}
		wait := r.scan(ctx)
		select {
		case <-ctx.Done():
		case <-w.woken:
		case m := <-r.met:
			r.conclude(m)
		case <-r.cfg.Clock.After(wait):
		}
	}
	return nil
}

// scan compares the sockets that there are with those that are known, and has those met that are new or to be tried again. It answers when to look again.
func (r *Registry) scan(ctx context.Context) (wait time.Duration) {
	wait = recheck
	now := r.cfg.Clock.Now()
	found := map[string]bool{}
	for _, dir := range r.cfg.Dirs {
		for path, made := range sockets(dir) {
			found[path] = true
			e := r.known[path]
			if e == nil {
				e = &entry{made: made}
				r.known[path] = e
			}
			if e.made != made {
				r.part(e)
				e.made, e.settled, e.tries, e.next = made, false, 0, time.Time{}
			}
			switch {
			case e.settled || e.meeting != nil:
			case e.next.After(now):
				wait = min(wait, e.next.Sub(now))
			default:
				r.approach(ctx, path, e)
			}
		}
	}
	for path, e := range r.known {
		if !found[path] {
			delete(r.known, path)
			r.part(e)
			r.unregister(e)
		}
	}
	return wait
}

// approach begins to meet a plugin.
func (r *Registry) approach(ctx context.Context, path string, e *entry) {
	patient, cancel := context.WithTimeout(ctx, patience)
	m := &meeting{path: path, cancel: cancel}
	e.meeting = m
	r.running.Go(func() {
		defer cancel()
		m.err = r.meet(patient, m)
		select {
		case r.met <- m:
		case <-ctx.Done():
		}
	})
}

// part ends a meeting whose outcome nobody needs any more.
func (r *Registry) part(e *entry) {
	if e.meeting != nil {
		e.meeting.cancel()
		e.meeting = nil
	}
}

// conclude takes in how a meeting ended.
func (r *Registry) conclude(m *meeting) {
	e := r.known[m.path]
	if e == nil || e.meeting != m { // the socket is gone, or another is in its place
		if m.registered {
			r.call(func() { r.cfg.Handlers[m.plugin.Kind].Unregister(m.plugin) })
		}
		return
	}
	e.meeting = nil
	r.unregister(e) // an older socket's
	e.plugin, e.registered, e.settled = m.plugin, m.registered, m.err == nil
	if m.err == nil {
		e.tries = 0
		return
	}
	e.next = r.cfg.Clock.Now().Add(min(firstRetry<<min(e.tries, 10), lastRetry))
	if e.tries++; e.tries == tries {
		r.cfg.Log.Warn("plugin not registered; it is tried again", "socket", m.path, "error", m.err)
	}
}

func (r *Registry) unregister(e *entry) {
	if e.registered {
		e.registered = false
		r.call(func() { r.cfg.Handlers[e.plugin.Kind].Unregister(e.plugin) })
	}
}

func (r *Registry) call(f func()) {
	r.handlers.Lock()
	defer r.handlers.Unlock()
	f()
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
func (r *Registry) meet(ctx context.Context, m *meeting) error {
	conn, err := Dial(m.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	plugin := registerapi.NewRegistrationClient(conn)
	info, err := plugin.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return fmt.Errorf("asking who it is: %w", err)
	}
	m.plugin = Plugin{Kind: info.Type, Name: info.Name, Endpoint: info.Endpoint, Versions: info.SupportedVersions, Socket: m.path}
	if m.plugin.Endpoint == "" {
		m.plugin.Endpoint = m.path
	}
	status := &registerapi.RegistrationStatus{PluginRegistered: true}
	r.call(func() { err = r.register(m.plugin) })
	if err != nil {
		status = &registerapi.RegistrationStatus{Error: err.Error()}
	}
	m.registered = err == nil
	_, told := plugin.NotifyRegistrationStatus(ctx, status)
	if told != nil && m.registered { // it does not know: what it would do is not known either
		r.call(func() { r.cfg.Handlers[m.plugin.Kind].Unregister(m.plugin) })
		m.registered = false
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
