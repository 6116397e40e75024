package node

import (
	"context"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
)

// The node's Lease: how long it says that the node lives, and how often it is renewed. Both are the kubelet's (nodeLeaseDurationSeconds 40,
// renewed each quarter of it).
const (
	leaseSeconds = int32(40)
	leaseEvery   = 10 * time.Second
)

// keepLease renews the Lease until ctx ends. A renewal that fails is tried again soon: the API calls a node lost that misses several.
func (r *registration) keepLease(ctx context.Context) {
	var lease *coordv1.Lease
	retry := 200 * time.Millisecond
	for {
		wait := leaseEvery
		renewed, err := r.renew(ctx, lease)
		switch {
		case err == nil:
			lease, retry = renewed, 200*time.Millisecond
		case ctx.Err() == nil:
			r.cfg.Log.Warn("node lease not renewed", "err", err, "again-in", retry)
			lease, wait = nil, retry
			retry = min(2*retry, leaseEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.cfg.Clock.After(wait):
		}
	}
}

// renew renews a Lease as it was last seen, or, if that is nil, the API's, making one if there is none.
func (r *registration) renew(ctx context.Context, last *coordv1.Lease) (*coordv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseEvery)
	defer cancel()
	leases := client.Of[*coordv1.Lease](r.cfg.Transport)
	if last == nil {
		got, err := leases.Get(ctx, corev1.NamespaceNodeLease, r.cfg.Name)
		if apierrors.IsNotFound(err) {
			return leases.Create(ctx, r.leaseNow(&coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: r.cfg.Name}}))
		}
		if err != nil {
			return nil, err
		}
		last = got
	}
	return leases.Update(ctx, r.leaseNow(last.DeepCopy()))
}

func (r *registration) leaseNow(l *coordv1.Lease) *coordv1.Lease {
	seconds, now, holder := leaseSeconds, metav1.NewMicroTime(r.cfg.Clock.Now()), r.cfg.Name
	l.Spec.LeaseDurationSeconds, l.Spec.RenewTime, l.Spec.HolderIdentity = &seconds, &now, &holder
	if node := r.get(); node != nil && len(l.OwnerReferences) == 0 {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
	return l
}
