package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
)

// LeaseConfig describes leadership by a coordination.k8s.io/v1 Lease. The durations' defaults are those of Kubernetes' controllers.
type LeaseConfig struct {
	Transport       client.Transport
	Namespace, Name string
	// Identity is this process's own: no two may share one.
	Identity string
	// Duration is how long a leader's silence is borne (15 s). A leader that could not renew for RenewDeadline (10 s) steps down. RetryPeriod (2 s)
	// is the time between attempts.
	Duration, RenewDeadline, RetryPeriod time.Duration
	Clock                                clock.WithTicker
	Log                                  *slog.Logger
}

// ErrLeadershipLost says that another process may lead now.
var ErrLeadershipLost = errors.New("loop: leadership was lost")

// LeaseElector elects by a Lease. It compares no clocks of different machines: it times a leader's silence by its own.
type LeaseElector struct {
	config LeaseConfig

	mu       sync.Mutex
	seen     coordinationv1.LeaseSpec // the record last seen
	seenAt   time.Time                // when it was first seen so
	observed *coordinationv1.Lease
}

// NewLeaseElector checks the configuration and fills its defaults.
func NewLeaseElector(c LeaseConfig) (*LeaseElector, error) {
	if c.Transport == nil || c.Name == "" || c.Identity == "" {
		return nil, errors.New("loop: LeaseConfig needs Transport, Name and Identity")
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Duration, 15*time.Second)
	def(&c.RenewDeadline, 10*time.Second)
	def(&c.RetryPeriod, 2*time.Second)
	if c.Namespace == "" {
		c.Namespace = metav1.NamespaceSystem
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Duration <= c.RenewDeadline || c.RenewDeadline <= c.RetryPeriod {
		return nil, fmt.Errorf("loop: lease durations must fall: duration %v > renew deadline %v > retry period %v", c.Duration, c.RenewDeadline, c.RetryPeriod)
	}
	return &LeaseElector{config: c}, nil
}

// Lead implements Elector. When ctx ends it releases the Lease, so that another process need not wait.
func (l *LeaseElector) Lead(ctx context.Context, run func(context.Context)) error {
	if err := l.until(ctx, func() bool { return l.try(ctx) }); err != nil {
		return err
	}
	l.config.Log.Info("leading", "lease", l.config.Name, "identity", l.config.Identity)
	leading, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); run(leading) }()
	err := l.keep(ctx)
	cancel()
	<-ended
	if err == nil {
		l.release(context.WithoutCancel(ctx))
	}
	return err
}

// until calls f each retry period, at once the first time, until it returns true.
func (l *LeaseElector) until(ctx context.Context, f func() bool) error {
	for !f() {
		if !l.sleep(ctx) {
			return ctx.Err()
		}
	}
	return nil
}

func (l *LeaseElector) sleep(ctx context.Context) bool {
	timer := l.config.Clock.NewTimer(l.config.RetryPeriod)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// keep renews until ctx ends (nil) or leadership is lost.
func (l *LeaseElector) keep(ctx context.Context) error {
	last := l.config.Clock.Now()
	for l.sleep(ctx) {
		attempt, cancel := context.WithTimeout(ctx, l.config.RenewDeadline)
		ok := l.try(attempt)
		cancel()
		if ok {
			last = l.config.Clock.Now()
		} else if ctx.Err() == nil && (l.config.Clock.Since(last) >= l.config.RenewDeadline || l.taken()) {
			return ErrLeadershipLost
		}
	}
	return nil
}

func (l *LeaseElector) taken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.HolderIdentity != nil && *l.seen.HolderIdentity != l.config.Identity
}

// try takes or renews the Lease if nobody else holds it.
func (l *LeaseElector) try(ctx context.Context) bool {
	api := client.Of[*coordinationv1.Lease](l.config.Transport)
	now := l.config.Clock.Now()
	lease, err := api.Get(ctx, l.config.Namespace, l.config.Name)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.config.Namespace, Name: l.config.Name}, Spec: l.next(coordinationv1.LeaseSpec{}, now)}
		lease, err = api.Create(ctx, lease)
		return l.saw(lease, err, now)
	}
	if !l.saw(lease, err, now) || l.heldByOther(now) {
		return false
	}
	lease = lease.DeepCopy()
	lease.Spec = l.next(lease.Spec, now)
	lease, err = api.Update(ctx, lease)
	return l.saw(lease, err, now)
}

func (l *LeaseElector) saw(lease *coordinationv1.Lease, err error, now time.Time) bool {
	if err != nil {
		l.config.Log.Debug("lease not renewed", "lease", l.config.Name, "error", err)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.observed == nil || l.observed.ResourceVersion != lease.ResourceVersion {
		l.seen, l.seenAt, l.observed = lease.Spec, now, lease
	}
	return true
}

func (l *LeaseElector) heldByOther(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	holder := l.seen.HolderIdentity
	if holder == nil || *holder == "" || *holder == l.config.Identity {
		return false
	}
	patience := l.config.Duration
	if s := l.seen.LeaseDurationSeconds; s != nil {
		patience = time.Duration(*s) * time.Second
	}
	return now.Before(l.seenAt.Add(patience))
}

// next is the record that this process would write over old.
func (l *LeaseElector) next(old coordinationv1.LeaseSpec, now time.Time) coordinationv1.LeaseSpec {
	seconds, at := int32(l.config.Duration/time.Second), metav1.NewMicroTime(now)
	out := old
	out.LeaseDurationSeconds, out.RenewTime = &seconds, &at
	if old.HolderIdentity != nil && *old.HolderIdentity == l.config.Identity {
		return out
	}
	identity, transitions := l.config.Identity, int32(0)
	if old.LeaseTransitions != nil {
		transitions = *old.LeaseTransitions + 1
	}
	out.HolderIdentity, out.AcquireTime, out.LeaseTransitions = &identity, &at, &transitions
	return out
}

func (l *LeaseElector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.config.RetryPeriod)
	defer cancel()
	l.mu.Lock()
	lease := l.observed.DeepCopy()
	l.mu.Unlock()
	if lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != l.config.Identity {
		return
	}
	nobody, second := "", int32(1)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &second
	if _, err := client.Of[*coordinationv1.Lease](l.config.Transport).Update(ctx, lease); err != nil {
		l.config.Log.Debug("lease not released", "lease", l.config.Name, "error", err)
	}
}
