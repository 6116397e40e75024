package encryption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	envelope "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	envelopemetrics "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics"
	"k8s.io/kms/pkg/service"
	"k8s.io/utils/clock"
)

// How a key service is followed, as in Kubernetes: between two statuses of a healthy one and of an ill one; how long its last key may go on sealing
// without another good status; and how long the answer of a health check counts.
const (
	healthyInterval = time.Minute
	illInterval     = 10 * time.Second
	writeLease      = 3 * time.Minute
	healthyTTL      = 20 * time.Second
	illTTL          = 3 * time.Second
)

// Connect reaches the key service at an endpoint until ctx ends.
type Connect func(ctx context.Context, endpoint, name string, timeout time.Duration) (service.Service, error)

func connect(ctx context.Context, endpoint, name string, timeout time.Duration) (service.Service, error) {
	return kmsv2.NewGRPCService(ctx, endpoint, name, timeout)
}

// kms is a provider whose key is in a service. The service seals a seed, once for each of its keys; values are sealed with keys derived from the
// seed in this process.
type kms struct {
	name    string
	service service.Service
	values  value.Transformer
	clock   clock.WithTicker
	log     *slog.Logger
	woken   func()

	state atomic.Pointer[kmsState]

	mu      sync.Mutex // one status at a time
	version string
	checked time.Time
	fault   error
}

// kmsState is a seed that may seal until it expires, and that opens for ever.
type kmsState struct {
	kmsv2.State
	expires time.Time
}

// service makes the provider of a key service and asks it for its status. One that does not answer is asked again and again.
func (e *Encryption) service(ctx context.Context, rings *keyrings, c *apiserver.KMSConfiguration) (*kms, error) {
	if c.APIVersion != "v2" {
		return nil, fmt.Errorf("apiVersion %q: KMS v1 is not served, for Kubernetes has it off since 1.29; use a plugin that speaks v2 and say apiVersion: v2", c.APIVersion)
	}
	envelopemetrics.RegisterMetrics()
	s, err := e.cfg.Connect(ctx, c.Endpoint, c.Name, c.Timeout.Duration)
	if err != nil {
		return nil, err
	}
	k := &kms{name: c.Name, service: s, clock: e.cfg.Clock, log: e.cfg.Log, woken: e.wake}
	k.values = kmsv2.NewEnvelopeTransformer(s, c.Name, k.seed, e.cfg.ID)
	rings.kms = append(rings.kms, k)
	rings.grace += 2 * c.Timeout.Duration
	_ = k.check(ctx) // the fault is kept for all who ask
	go k.run(ctx)
	return k, nil
}

// seed is what values are sealed with. It is empty until the service has answered once; opening does not need it.
func (k *kms) seed() (kmsv2.State, error) {
	if s := k.state.Load(); s != nil {
		return s.State, nil
	}
	return kmsv2.State{}, nil
}

func (k *kms) prefix() string { return prefixKMS + k.name + ":" }

func (k *kms) current() (string, error) {
	s := k.state.Load()
	switch {
	case s == nil:
		return "", fmt.Errorf("the key service %q has not answered yet: %w", k.name, k.lastFault())
	case k.clock.Now().After(s.expires):
		return "", fmt.Errorf("the key service %q has had no good status for %s: nothing is sealed with its last key any more: %w", k.name, writeLease, k.lastFault())
	}
	return k.prefix() + s.EncryptedObjectKeyID, nil
}

func (k *kms) seal(path string, data []byte) ([]byte, error) {
	out, err := k.values.TransformToStorage(context.Background(), data, value.DefaultContext(path))
	if err != nil {
		return nil, err
	}
	return append([]byte(k.prefix()), out...), nil
}

func (k *kms) open(path string, data []byte) ([]byte, string, error) {
	if k.state.Load() == nil { // many values would wait for it, one after the other
		return nil, "", fmt.Errorf("the key service %q does not answer: %w", k.name, k.lastFault())
	}
	var box envelope.EncryptedObject
	if err := proto.Unmarshal(data, &box); err != nil {
		return nil, "", fmt.Errorf("no sealed value of a key service: %w", err)
	}
	out, _, err := k.values.TransformFromStorage(context.Background(), data, value.DefaultContext(path))
	if err != nil {
		return nil, "", fmt.Errorf("the key service %q: %w", k.name, err)
	}
	return out, k.prefix() + box.KeyID, nil
}

func (k *kms) lastFault() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault == nil {
		return errors.New("its status is unknown")
	}
	return k.fault
}

// run asks for the status, more often while it is bad, until ctx ends.
func (k *kms) run(ctx context.Context) {
	for {
		wait := healthyInterval
		if k.check(ctx) != nil {
			wait = illInterval
		}
		timer := k.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// check is the service's health: as of now, or as of a few seconds ago.
func (k *kms) check(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	ttl := healthyTTL
	if k.fault != nil {
		ttl = illTTL
	}
	now := k.clock.Now()
	if !k.checked.IsZero() && now.Sub(k.checked) < ttl {
		return k.fault
	}
	before, known := k.fault, !k.checked.IsZero()
	k.fault = k.status(ctx, now)
	k.checked = k.clock.Now()
	switch {
	case k.fault != nil && (before == nil || !known):
		k.log.Error("a key service is ill; what is sealed with its key can be written for a few minutes more", "service", k.name, "error", k.fault)
	case k.fault == nil && before != nil:
		k.log.Info("a key service is well again", "service", k.name)
		k.woken()
	}
	return k.fault
}

func (k *kms) status(ctx context.Context, now time.Time) error {
	s, err := k.service.Status(ctx)
	if err != nil {
		return fmt.Errorf("failed to perform status section of the healthz check for KMS Provider %s, error: %w", k.name, err)
	}
	var errs []error
	if s.Healthz != "ok" {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", s.Healthz))
	}
	switch {
	case s.Version != kmsv2.KMSAPIVersionv2 && s.Version != kmsv2.KMSAPIVersionv2beta1:
		errs = append(errs, fmt.Errorf("expected KMSv2 API version %s, got %s", kmsv2.KMSAPIVersionv2, s.Version))
	case k.version != "" && k.version != s.Version:
		errs = append(errs, fmt.Errorf("its API version was %s and has become %s", k.version, s.Version))
	default:
		k.version = s.Version
	}
	if _, err := kmsv2.ValidateKeyID(s.KeyID); err != nil {
		errs = append(errs, fmt.Errorf("got invalid KMSv2 KeyID: %w", err))
	} else if err := k.use(ctx, s.KeyID, now.Add(writeLease)); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", k.name, err)
	}
	return nil
}

// use seals with the service's key keyID until expires: with the seed at hand if that is the key's, else with a new one.
func (k *kms) use(ctx context.Context, keyID string, expires time.Time) error {
	if s := k.state.Load(); s != nil && s.EncryptedObjectKeyID == keyID {
		k.state.Store(&kmsState{State: s.State, expires: expires})
		return nil
	}
	uid := string(uuid.NewUUID())
	cipher, sealed, cacheKey, err := kmsv2.GenerateTransformer(ctx, uid, k.service, true)
	if err != nil {
		return fmt.Errorf("failed to rotate DEK: %w", err)
	}
	if sealed.KeyID != keyID {
		return errors.New("failed to rotate DEK: the key that it seals with is not the one of its status")
	}
	k.state.Store(&kmsState{expires: expires, State: kmsv2.State{Transformer: cipher, EncryptedObjectKeyID: sealed.KeyID,
		EncryptedObjectEncryptedDEKSource: sealed.EncryptedDEKSource, EncryptedObjectAnnotations: sealed.Annotations,
		EncryptedObjectEncryptedDEKSourceType: sealed.EncryptedDEKSourceType, UID: uid, CacheKey: cacheKey, KMSProviderName: k.name,
		// Whether it may still seal is asked of the state's own time, by this package's clock, before each write.
		ExpirationTimestamp: time.Now().AddDate(100, 0, 0)}})
	return nil
}
