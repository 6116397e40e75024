package access

import (
	"context"
	"log/slog"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/internal/roles"
)

var clusterRolesResource = rbacv1.SchemeGroupVersion.WithResource("clusterroles")

// Aggregate writes into each aggregated ClusterRole the rules that it is made of, whenever they change, until ctx ends. Authorization
// does not wait for it; people and tools who read the object do.
func Aggregate(ctx context.Context, api API, clock clock.WithTicker, log *slog.Logger) error {
	a := &aggregator{api: api, log: log, roles: map[string]*rbacv1.ClusterRole{}, changed: make(chan struct{}, 1)}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() {
		_ = follow.Run(ctx, follow.Config{ // ends with ctx only
			Source: api, Ref: resource.Ref{GroupVersionResource: clusterRolesResource}, Clock: clock, Log: log,
			Set:    func(obj runtime.Object) { a.set(obj, false) },
			Drop:   func(obj runtime.Object) { a.set(obj, true) },
			Synced: a.synced,
		})
	})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		}
		for !a.write(ctx) {
			timer := clock.NewTimer(retry)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C():
			}
		}
	}
}

// retry is the wait after a failed write.
const retry = time.Second

type aggregator struct {
	api     API
	log     *slog.Logger
	changed chan struct{}

	mu    sync.Mutex
	ready bool
	roles map[string]*rbacv1.ClusterRole
}

func (a *aggregator) set(obj runtime.Object, gone bool) {
	r, ok := obj.(*rbacv1.ClusterRole)
	if !ok {
		return
	}
	a.mu.Lock()
	if gone {
		delete(a.roles, r.Name)
	} else {
		a.roles[r.Name] = r
	}
	ready := a.ready
	a.mu.Unlock()
	if ready {
		a.wake()
	}
}

func (a *aggregator) synced() {
	a.mu.Lock()
	a.ready = true
	a.mu.Unlock()
	a.wake()
}

func (a *aggregator) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// plan returns the roles whose written rules are not what they are made of, corrected.
func plan(all map[string]*rbacv1.ClusterRole) []*rbacv1.ClusterRole {
	var out []*rbacv1.ClusterRole
	for _, r := range all {
		if !roles.Aggregated(r) {
			continue
		}
		if rules := roles.Rules(r, all); !equality.Semantic.DeepEqual(rules, r.Rules) {
			c := r.DeepCopy()
			c.Rules = rules
			out = append(out, c)
		}
	}
	return out
}

// write carries the plan out and tells whether that worked. A conflict means that a change is on its way, which will wake it again.
func (a *aggregator) write(ctx context.Context) bool {
	a.mu.Lock()
	todo := plan(a.roles)
	a.mu.Unlock()
	done := true
	for _, r := range todo {
		_, err := a.api.Update(ctx, resource.Ref{GroupVersionResource: clusterRolesResource, Name: r.Name}, r, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			a.log.Warn("rules of an aggregated role could not be written", "role", r.Name, "error", err)
			done = false
		}
	}
	return done
}
