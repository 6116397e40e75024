package pluginregistry_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/yare-project/yare/node/pluginregistry"
)

// patience bounds what takes milliseconds.
const patience = 10 * time.Second

// plugin answers a registry by a real socket.
type plugin struct {
	registerapi.UnsafeRegistrationServer
	info   *registerapi.PluginInfo
	told   chan *registerapi.RegistrationStatus
	server *grpc.Server
	asked  chan struct{} // closed when it was asked who it is
	held   chan struct{} // nil: it answers at once
	once   sync.Once
}

func (p *plugin) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	p.once.Do(func() { close(p.asked) })
	if p.held != nil {
		select {
		case <-p.held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	select {
	case p.told <- s:
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

func start(t *testing.T, dir, socket string, info *registerapi.PluginInfo) *plugin {
	t.Helper()
	return startHeld(t, dir, socket, info, nil)
}

// startHeld starts a plugin that does not say who it is before held is closed.
func startHeld(t *testing.T, dir, socket string, info *registerapi.PluginInfo, held chan struct{}) *plugin {
	t.Helper()
	p := &plugin{info: info, told: make(chan *registerapi.RegistrationStatus, 8), server: grpc.NewServer(), asked: make(chan struct{}), held: held}
	registerapi.RegisterRegistrationServer(p.server, p)
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.server.Serve(l) }()
	t.Cleanup(p.server.Stop)
	return p
}

func (p *plugin) hears(t *testing.T) *registerapi.RegistrationStatus {
	t.Helper()
	select {
	case s := <-p.told:
		return s
	case <-time.After(patience):
		t.Fatal("the plugin was not told anything")
		return nil
	}
}

// book is a handler that writes down what it hears.
type book struct {
	mu     sync.Mutex
	heard  chan string
	refuse error
}

func (b *book) Register(p pluginregistry.Plugin) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return b.refuse
	}
	b.heard <- fmt.Sprintf("+%s %s %v", p.Name, filepath.Base(p.Endpoint), p.Versions)
	return nil
}

func (b *book) Unregister(p pluginregistry.Plugin) {
	b.heard <- fmt.Sprintf("-%s %s", p.Name, filepath.Base(p.Socket))
}

func (b *book) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-b.heard:
		if got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("nothing heard, want %q", want)
	}
}

func run(t *testing.T, dirs ...string) *book {
	t.Helper()
	b := &book{heard: make(chan string, 8)}
	r := pluginregistry.New(pluginregistry.Config{Dirs: dirs, Handlers: map[string]pluginregistry.Handler{registerapi.DRAPlugin: b}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestPluginsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	early := start(t, dir, "early.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "early", SupportedVersions: []string{"v1"}})
	b := run(t, dir)
	b.expect(t, "+early early.sock [v1]")
	if s := early.hears(t); !s.PluginRegistered {
		t.Errorf("early was told %v", s)
	}
	late := start(t, dir, "late.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "late", Endpoint: "/elsewhere.sock", SupportedVersions: []string{"v1", "v2"}})
	b.expect(t, "+late elsewhere.sock [v1 v2]")
	late.hears(t)
	early.server.Stop()
	b.expect(t, "-early early.sock")
	start(t, dir, "early.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "again"})
	b.expect(t, "+again early.sock []")
}

func TestRefusedPluginIsToldWhy(t *testing.T) {
	dir := t.TempDir()
	b := run(t, dir)
	b.mu.Lock()
	b.refuse = errors.New("wrong version")
	b.mu.Unlock()
	p := start(t, dir, "p.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "p"})
	if s := p.hears(t); s.PluginRegistered || s.Error != "wrong version" {
		t.Errorf("told %v", s)
	}
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	b.expect(t, "+p p.sock []")
	other := start(t, dir, "other.sock", &registerapi.PluginInfo{Type: "Unheard", Name: "x"})
	if s := other.hears(t); s.PluginRegistered || s.Error != `this node has no use for plugins of type "Unheard"` {
		t.Errorf("told %v", s)
	}
}

func TestPluginThatHangsDelaysNoOther(t *testing.T) {
	dir := t.TempDir()
	b := run(t, dir)
	held := make(chan struct{})
	hung := startHeld(t, dir, "hung.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "hung"}, held)
	<-hung.asked
	well := start(t, dir, "well.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "well"})
	b.expect(t, "+well well.sock []")
	well.server.Stop()
	b.expect(t, "-well well.sock")
	close(held)
	b.expect(t, "+hung hung.sock []")
	if s := hung.hears(t); !s.PluginRegistered {
		t.Errorf("hung was told %v", s)
	}
}

// A plugin that goes while it is asked who it is leaves nothing behind, and its next instance is met.
func TestPluginGoesWhileItIsMet(t *testing.T) {
	dir := t.TempDir()
	b := run(t, dir)
	first := startHeld(t, dir, "p.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "first"}, make(chan struct{}))
	<-first.asked
	first.server.Stop()
	start(t, dir, "p.sock", &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "second"})
	b.expect(t, "+second p.sock []")
}
