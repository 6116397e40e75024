// Package encryption keeps chosen resources encrypted on disk, by the rules and in the format of Kubernetes: its EncryptionConfiguration file
// (apiserver.config.k8s.io/v1) with the providers identity, aescbc, aesgcm, secretbox and kms v2, and values that begin with
// k8s:enc:PROVIDER:v1:KEY:. What one of them wrote in etcd the other can read.
//
// The first provider's first key writes, all of them read. Where the algorithm authenticates more than the value, that is the object's storage
// path, so that a value cannot be moved to another name. Without a file, Secrets are sealed with a key of the cluster's own, made once and kept
// beside the database ([Config.OwnFile]); that key goes on reading whatever file is given later.
//
// Guarantees: a resource that is not configured pays two atomic loads a write and nothing a read; a changed file is taken over whole or not at
// all; a key service that is away stops writes of what it seals after three minutes, and no read of what is in memory. Everything is safe for
// concurrent use. KMS v1 is refused: Kubernetes has it off since 1.29.
//
// The package seals bytes. It does not know objects, nor does it rewrite what an older key sealed: whoever writes does, by asking [Resource.Stale].
package encryption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/reread"
)

// Config says where the keys are.
type Config struct {
	// File is the path of an EncryptionConfiguration; empty: the cluster's own key seals Secrets.
	File string
	// Reload takes over changes of File while the server runs.
	Reload bool
	// OwnFile is where the cluster's own key is, in the same format. It is made, readable by the owner only, where there is no File. Empty: there is
	// no own key.
	OwnFile string
	// Every is the time between two looks at the file; zero means that of package reread.
	Every time.Duration
	// ID names this server in metrics.
	ID      string
	Metrics prometheus.Registerer // nil: none
	Clock   clock.WithTicker
	Log     *slog.Logger
	// Connect reaches a key service; nil: by gRPC over its unix socket.
	Connect Connect
}

// Encryption is the keys in force.
type Encryption struct {
	cfg     Config
	metrics *metrics
	content []byte
	own     []provider // read for every resource, whatever the file says
	now     atomic.Pointer[keyrings]

	mu      sync.Mutex
	changed []func(ctx context.Context)
	awake   chan struct{} // a key service has come back

	life context.Context
	end  context.CancelFunc
}

// keyrings is one state of the configuration.
type keyrings struct {
	rings map[schema.GroupResource]*keyring
	other *keyring // for resources that are not named
	kms   []*kms
	stop  context.CancelFunc
	grace time.Duration
}

// Open reads the configuration. A key service that does not answer is no error: what it sealed cannot be read until it does.
// Errors name the file and the field.
func Open(cfg Config) (*Encryption, error) {
	e := &Encryption{cfg: cfg, metrics: newMetrics(cfg.Metrics, cfg.ID, cfg.Clock), awake: make(chan struct{}, 1)}
	if cfg.Connect == nil {
		e.cfg.Connect = connect
	}
	e.life, e.end = context.WithCancel(context.Background())
	if err := e.open(); err != nil {
		e.end()
		return nil, err
	}
	return e, nil
}

func (e *Encryption) open() error {
	content, err := e.ownContent()
	if err != nil {
		return err
	}
	if content != nil {
		if e.own, err = e.readers(content); err != nil {
			return fmt.Errorf("%s: %w", e.cfg.OwnFile, err)
		}
	}
	if e.cfg.File != "" {
		if content, err = reread.Read(e.cfg.File); err != nil {
			return fmt.Errorf("--encryption-provider-config: %w", err)
		}
	}
	rings, err := e.build(content)
	if err != nil && e.cfg.File != "" {
		return fmt.Errorf("--encryption-provider-config: %s: %w", e.cfg.File, err)
	} else if err != nil {
		return err
	}
	e.content = content
	e.now.Store(rings)
	e.metrics.inForce(content)
	return nil
}

// ownContent is the file of the cluster's own key, made if it is needed; nil if there is none.
func (e *Encryption) ownContent() ([]byte, error) {
	if e.cfg.OwnFile == "" {
		return nil, nil
	}
	content, err := reread.Read(e.cfg.OwnFile)
	if errors.Is(err, os.ErrNotExist) {
		if e.cfg.File != "" {
			return nil, nil
		}
		return makeOwn(e.cfg.OwnFile)
	}
	return content, err
}

// readers are the sealing providers of a file, for all resources alike.
func (e *Encryption) readers(content []byte) ([]provider, error) {
	rings, err := e.build(content)
	if err != nil {
		return nil, err
	}
	if len(rings.kms) > 0 {
		rings.stop()
		return nil, errors.New("a key service has no place in the file of the cluster's own key: give --encryption-provider-config")
	}
	var out []provider
	for _, gr := range slices.SortedFunc(maps.Keys(rings.rings), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }) {
		for _, p := range rings.rings[gr].providers {
			if p.prefix() != "" {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// build makes keyrings of a file's content; nil content seals nothing.
func (e *Encryption) build(content []byte) (*keyrings, error) {
	ctx, stop := context.WithCancel(e.life)
	k := &keyrings{rings: map[schema.GroupResource]*keyring{}, stop: stop}
	var err error
	if content != nil {
		err = e.fill(ctx, k, content)
	}
	if err != nil {
		stop()
		return nil, err
	}
	for _, ring := range k.rings {
		ring.providers = append(ring.providers, e.own...)
	}
	k.other = &keyring{providers: append([]provider{plain{}}, e.own...)}
	return k, nil
}

// Close forgets the keys and lets go of key services.
func (e *Encryption) Close() { e.end() }

// OnChange calls f, in Run's goroutine, when keys may read what they could not before: a new configuration, or a key service that came back.
func (e *Encryption) OnChange(f func(ctx context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changed = append(e.changed, f)
}

// Run follows the file, if that is wanted, and key services, until ctx ends.
func (e *Encryption) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if e.cfg.File != "" && e.cfg.Reload {
		wg.Go(func() {
			_ = reread.Run(ctx, reread.Config{Path: e.cfg.File, Have: e.content, Every: e.cfg.Every, Changed: e.change, Clock: e.cfg.Clock, Log: e.cfg.Log})
		})
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.awake:
			e.mu.Lock()
			told := slices.Clone(e.changed)
			e.mu.Unlock()
			for _, f := range told {
				f(ctx)
			}
		}
	}
}

// change takes over a new file if all of it is good and every key service that it names answers.
func (e *Encryption) change(ctx context.Context, content []byte) error {
	next, err := e.build(content)
	if err == nil {
		for _, k := range next.kms {
			if err = k.check(ctx); err != nil {
				next.stop()
				break
			}
		}
	}
	if err != nil {
		e.metrics.reload("failure")
		return err
	}
	old := e.now.Swap(next)
	e.metrics.reload("success")
	e.metrics.inForce(content)
	go func() { // what is under way with the old keys may end
		select {
		case <-e.cfg.Clock.After(old.grace):
		case <-e.life.Done():
		}
		old.stop()
	}()
	e.wake()
	return nil
}

func (e *Encryption) wake() {
	select {
	case e.awake <- struct{}{}:
	default:
	}
}

// HealthCheck is the name of the health check of key services.
const HealthCheck = "kms-providers"

// Check tells whether every key service answers; there may be none.
func (e *Encryption) Check(ctx context.Context) error {
	var errs []error
	for i, k := range e.now.Load().kms {
		if err := k.check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Services tells whether any key service is in use, or may come into use.
func (e *Encryption) Services() bool {
	return e.cfg.File != "" && e.cfg.Reload || len(e.now.Load().kms) > 0
}

// For is the encryption of one resource whose objects are stored below a path such as /registry/secrets.
func (e *Encryption) For(gr schema.GroupResource, path string) *Resource {
	return &Resource{all: e, gr: gr, path: path + "/"}
}

// Resource seals and opens the values of one resource. It implements stored.Sealer.
type Resource struct {
	all  *Encryption
	gr   schema.GroupResource
	path string
	last atomic.Pointer[chosen]
}

var _ stored.Sealer = (*Resource)(nil)

// chosen is the ring that a state of the configuration has for the resource.
type chosen struct {
	of   *keyrings
	ring *keyring
}

func (r *Resource) ring() *keyring {
	now := r.all.now.Load()
	if c := r.last.Load(); c != nil && c.of == now {
		return c.ring
	}
	c := &chosen{now, now.of(r.gr)}
	r.last.Store(c)
	return c.ring
}

// of finds a resource's ring: by its name, by its group, or by the rule for all.
func (k *keyrings) of(gr schema.GroupResource) *keyring {
	for _, name := range []schema.GroupResource{gr, {Group: gr.Group, Resource: "*"}, {Group: "*", Resource: "*"}} {
		if ring := k.rings[name]; ring != nil {
			return ring
		}
	}
	return k.other
}

// Current is how a write that is made now is sealed; nil: it stays plain. Error: the key service that seals it has been away for too long.
func (r *Resource) Current() (stored.Seal, error) {
	p := r.ring().providers[0]
	if p.prefix() == "" {
		return nil, nil
	}
	id, err := p.current()
	if err != nil {
		return nil, err
	}
	return &seal{p: p, id: id, path: r.path}, nil
}

// Stale tells whether a value that was sealed under id would be sealed otherwise now.
func (r *Resource) Stale(id string) bool {
	now, err := r.ring().providers[0].current()
	return err == nil && now != id
}

// Open gives the plain bytes of a stored value, and the id of what it was sealed with.
func (r *Resource) Open(key string, data []byte) ([]byte, string, error) {
	data, id, err := r.ring().open(r.path+key, data)
	if err != nil {
		return nil, "", fmt.Errorf("unable to transform key %q: %w", r.path+key, err)
	}
	return data, id, nil
}

// seal is one key at one moment.
type seal struct {
	p        provider
	id, path string
}

func (s *seal) ID() string { return s.id }

func (s *seal) Seal(key string, data []byte) ([]byte, error) { return s.p.seal(s.path+key, data) }
