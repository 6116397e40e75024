package authz

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/internal/roles"
)

// A ClusterRole with an aggregationRule has the rules of all ClusterRoles that it selects. They are joined here, so that a decision
// does not wait for anybody to write them into the object.

// setClusterRole notes a change, and that aggregated roles, if there are any, must be joined again.
func (r *RBAC) setClusterRole(o *rbacv1.ClusterRole, gone bool) {
	key := types.NamespacedName{Name: o.Name}
	r.stale = true
	if gone {
		delete(r.clusterRoles, o.Name)
		delete(r.rules, key)
		return
	}
	r.clusterRoles[o.Name] = o
	if !roles.Aggregated(o) {
		r.rules[key] = o.Rules
	}
}

// ready joins aggregated roles if a ClusterRole changed since the last decision.
func (r *RBAC) ready() {
	r.mu.RLock()
	stale := r.stale
	r.mu.RUnlock()
	if !stale {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stale {
		return
	}
	for name, role := range r.clusterRoles {
		if roles.Aggregated(role) {
			r.rules[types.NamespacedName{Name: name}] = roles.Rules(role, r.clusterRoles)
		}
	}
	r.stale = false
}
