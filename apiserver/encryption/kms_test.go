package encryption_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/kms/pkg/service"

	"github.com/yare-project/yare/apiserver/encryption"
)

// plugin is a key service on a unix socket. Its keys turn bytes round, each by its number.
type plugin struct {
	t      *testing.T
	socket string
	server *service.GRPCService
	ended  chan error

	mu       sync.Mutex
	key      byte
	ill      bool
	decrypts int
}

func startPlugin(t *testing.T) *plugin {
	p := &plugin{t: t, key: 1, socket: filepath.Join(t.TempDir(), "kms.sock")}
	p.start()
	t.Cleanup(p.stop)
	return p
}

func (p *plugin) start() {
	p.ended = make(chan error, 1)
	p.server = service.NewGRPCService(p.socket, 5*time.Second, p)
	go func(s *service.GRPCService, ended chan error) { ended <- s.ListenAndServe() }(p.server, p.ended)
}

func (p *plugin) stop() {
	if p.server == nil {
		return
	}
	p.server.Close()
	if err := <-p.ended; err != nil {
		p.t.Error(err)
	}
	p.server = nil
}

func (p *plugin) set(key byte, ill bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.ill = key, ill
}

func (p *plugin) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decrypts
}

func turned(data []byte, key byte) []byte {
	out := bytes.Clone(data)
	for i := range out {
		out[i] ^= key
	}
	return out
}

func (p *plugin) Status(context.Context) (*service.StatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: fmt.Sprint("key-", p.key)}
	if p.ill {
		s.Healthz = "out of order"
	}
	return s, nil
}

func (p *plugin) Encrypt(_ context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &service.EncryptResponse{Ciphertext: turned(data, p.key), KeyID: fmt.Sprint("key-", p.key)}, nil
}

func (p *plugin) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decrypts++
	var key byte
	if _, err := fmt.Sscanf(r.KeyID, "key-%d", &key); err != nil {
		return nil, errors.New("unknown key")
	}
	return turned(r.Ciphertext, key), nil
}

func (p *plugin) config() string {
	return config("secrets", "  - kms: {apiVersion: v2, name: tin-box, endpoint: 'unix://"+p.socket+"', timeout: 200ms}\n", identity)
}

// connected waits for the plugin to listen, which is no matter of the test.
func (p *plugin) connected() *keeper {
	p.t.Helper()
	k := mustOpen(p.t, p.config())
	k.until(func() bool { return k.Check(p.t.Context()) == nil })
	return k
}

func TestAKeyServiceSealsAndOpens(t *testing.T) {
	p := startPlugin(t)
	first := p.connected().of(secrets)
	sealed := seal(t, first, "a/b", "plain text")
	if !bytes.HasPrefix(sealed, []byte("k8s:enc:kms:v2:tin-box:")) || bytes.Contains(sealed, []byte("plain text")) {
		t.Errorf("sealed as %.60q", sealed)
	}
	opens(t, first, "a/b", sealed, "plain text")
	if p.asked() != 0 {
		t.Errorf("the service was asked %d times for what this process has sealed", p.asked())
	}
	if _, _, err := first.Open("a/other", sealed); err == nil {
		t.Error("opened under another name")
	}
	second := p.connected().of(secrets) // another server, or this one started anew
	other := seal(t, first, "c/d", "more")
	if id := opens(t, second, "a/b", sealed, "plain text"); second.Stale(id) {
		t.Errorf("%s is stale under the same key", id)
	}
	opens(t, second, "c/d", other, "more")
	if p.asked() != 1 {
		t.Errorf("the service was asked %d times for two values under one seed, want once", p.asked())
	}
}

func TestAKeyServiceChangesItsKey(t *testing.T) {
	p := startPlugin(t)
	k := p.connected()
	r := k.of(secrets)
	old := seal(t, r, "a/b", "plain text")
	p.set(2, false)
	k.until(func() bool {
		s, err := r.Current()
		return err == nil && s.ID() == "k8s:enc:kms:v2:tin-box:key-2"
	})
	if id := opens(t, r, "a/b", old, "plain text"); !r.Stale(id) {
		t.Error("what the old key sealed is not stale")
	}
	if id := opens(t, r, "a/b", seal(t, r, "a/b", "plain text"), "plain text"); r.Stale(id) {
		t.Errorf("%s is stale", id)
	}
}

// TestADeadKeyService shows what goes on without it, for how long, and that its return is noticed.
func TestADeadKeyService(t *testing.T) {
	p := startPlugin(t)
	k := p.connected()
	r := k.of(secrets)
	sealed := seal(t, r, "a/b", "plain text")
	woken := make(chan struct{}, 8)
	k.OnChange(func(context.Context) { woken <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	p.stop()
	k.clock.Step(21 * time.Second)
	if err := k.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "tin-box") {
		t.Errorf("the health check: %v, want the service's name", err)
	}
	seal(t, r, "a/b", "more") // for a while
	for range 4 {
		k.clock.Step(time.Minute)
	}
	if _, err := r.Current(); err == nil || !strings.Contains(err.Error(), "tin-box") {
		t.Errorf("a write four minutes later: %v, want a refusal", err)
	}
	opens(t, r, "a/b", sealed, "plain text")
	fresh := mustOpen(t, p.config())
	if _, _, err := fresh.of(secrets).Open("a/b", sealed); err == nil || !strings.Contains(err.Error(), `the key service "tin-box" does not answer`) {
		t.Errorf("a server that starts without the service: %v", err)
	}
	if _, err := fresh.of(secrets).Current(); err == nil {
		t.Error("it seals all the same")
	}
	p.start()
	k.until(func() bool { return len(woken) > 0 })
	opens(t, r, "a/b", seal(t, r, "a/b", "again"), "again")
}

func TestAnIllKeyServiceIsNotTakenOver(t *testing.T) {
	p := startPlugin(t)
	p.connected()
	p.set(1, true)
	k := mustOpen(t, config("secrets", with("aesgcm", "one=a")), func(c *encryption.Config) { c.Reload = true })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	k.write(p.config())
	k.until(func() bool { return k.reloads("failure") > 0 })
	if got := seal(t, k.of(secrets), "a/b", "x"); !bytes.HasPrefix(got, []byte("k8s:enc:aesgcm:v1:one:")) {
		t.Errorf("sealed by %.40q", got)
	}
	p.set(1, false)
	k.until(func() bool { return k.reloads("success") > 0 })
	if got := seal(t, k.of(secrets), "a/b", "x"); !bytes.HasPrefix(got, []byte("k8s:enc:kms:v2:tin-box:")) {
		t.Errorf("sealed by %.40q once it is well", got)
	}
}
