package authz

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/internal/roles"
)

// RBAC is the role-based authorizer. Feed it with Run, or with Set and Drop.
type RBAC struct {
	mu sync.RWMutex
	// rules has what each role allows, by namespace and name; ClusterRoles have no namespace.
	rules map[types.NamespacedName][]rbacv1.PolicyRule
	// clusterRoles has the objects, of which aggregated roles are made; stale says that those must be joined again.
	clusterRoles map[string]*rbacv1.ClusterRole
	stale        bool
	// grants has the bindings of each subject.
	grants map[subject]*grants
	// bound has the subjects of each binding.
	bound map[types.NamespacedName][]subject

	pending int
	synced  chan struct{}
}

// subject is a user or a group. A service account is the user that it authenticates as.
type subject struct {
	group bool
	name  string
}

// grants are the roles given to one subject, by binding.
type grants struct {
	cluster map[string]given
	// namespaced is by the namespace of the binding, then its name.
	namespaced map[string]map[string]given
}

// given is a role that a binding gives, with the reason of what it allows.
type given struct {
	role   types.NamespacedName
	reason string
}

var (
	_ authorizer.Authorizer   = (*RBAC)(nil)
	_ authorizer.RuleResolver = (*RBAC)(nil)
)

// NewRBAC returns an authorizer that knows no rules yet and so allows nothing.
func NewRBAC() *RBAC {
	return &RBAC{
		rules: map[types.NamespacedName][]rbacv1.PolicyRule{}, clusterRoles: map[string]*rbacv1.ClusterRole{},
		grants: map[subject]*grants{}, bound: map[types.NamespacedName][]subject{},
		pending: len(followed), synced: make(chan struct{}),
	}
}

var followed = []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"}

// Run keeps the index in step with the source until ctx ends. The source must be allowed to read without this authorizer's help, for
// example as a member of system:masters.
func (r *RBAC) Run(ctx context.Context, source follow.Source, clock clock.WithTicker, log *slog.Logger) error {
	var group sync.WaitGroup
	for _, name := range followed {
		group.Go(func() {
			// follow.Run ends with ctx only and has no error then.
			_ = follow.Run(ctx, follow.Config{
				Source: source, Ref: resource.Ref{GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource(name)},
				Set: r.Set, Drop: r.Drop, Synced: r.oneSynced, Clock: clock, Log: log,
			})
		})
	}
	group.Wait()
	return nil
}

func (r *RBAC) oneSynced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending--; r.pending == 0 {
		close(r.synced)
	}
}

// Synced is closed once Run has loaded everything. Until then, refusals may be wrong; permissions never are.
func (r *RBAC) Synced() <-chan struct{} { return r.synced }

// Set takes over the newest state of a Role, ClusterRole, RoleBinding or ClusterRoleBinding; Drop forgets one.
func (r *RBAC) Set(obj runtime.Object) { r.change(obj, false) }

// Drop forgets an object.
func (r *RBAC) Drop(obj runtime.Object) { r.change(obj, true) }

func (r *RBAC) change(obj runtime.Object, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := obj.(type) {
	case *rbacv1.Role:
		r.setRole(o, gone)
	case *rbacv1.ClusterRole:
		r.setClusterRole(o, gone)
	case *rbacv1.RoleBinding:
		r.setBinding(o.Namespace, o.Name, o.Subjects, o.RoleRef, gone)
	case *rbacv1.ClusterRoleBinding:
		r.setBinding("", o.Name, o.Subjects, o.RoleRef, gone)
	}
}

func (r *RBAC) setRole(o *rbacv1.Role, gone bool) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	if gone {
		delete(r.rules, key)
		return
	}
	r.rules[key] = o.Rules
}

// Authorize allows what one of the user's rules allows, and says by which binding; it never denies. An error with no opinion names the roles that bindings ask
// for and that are missing.
func (r *RBAC) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := a.GetUser()
	if who == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	request := roles.RequestOf(a)
	var missing []error
	allowed, reason := false, ""
	r.visit(who, a.GetNamespace(), func(rule *rbacv1.PolicyRule, why string) bool {
		if allowed = request.AllowedBy(rule); allowed {
			reason = why
		}
		return !allowed
	}, func(err error) { missing = append(missing, err) })
	if allowed {
		return authorizer.DecisionAllow, reason, nil
	}
	if err := utilerrors.NewAggregate(missing); err != nil {
		return authorizer.DecisionNoOpinion, "RBAC: " + err.Error(), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// RulesFor lists what the user may do in the namespace, and cluster-wide; with an empty namespace, cluster-wide only.
func (r *RBAC) RulesFor(_ context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var others []authorizer.NonResourceRuleInfo
	var errs []error
	r.visit(who, namespace, func(rule *rbacv1.PolicyRule, _ string) bool {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
		}
		if len(rule.NonResourceURLs) > 0 {
			others = append(others, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
		return true
	}, func(err error) { errs = append(errs, err) })
	return resources, others, len(errs) > 0, utilerrors.NewAggregate(errs)
}

// visit shows the user's rules, each with the binding that gives it, until yield returns false.
func (r *RBAC) visit(who user.Info, namespace string, yield func(rule *rbacv1.PolicyRule, why string) bool, missing func(error)) {
	r.ready()
	r.mu.RLock()
	defer r.mu.RUnlock()
	show := func(all map[string]given) bool {
		for _, by := range all {
			rules, ok := r.rules[by.role]
			if !ok {
				missing(missingRole(by.role))
				continue
			}
			for i := range rules {
				if !yield(&rules[i], by.reason) {
					return false
				}
			}
		}
		return true
	}
	one := func(s subject) bool {
		g := r.grants[s]
		return g == nil || show(g.cluster) && (namespace == "" || show(g.namespaced[namespace]))
	}
	if !one(subject{name: who.GetName()}) {
		return
	}
	for _, group := range who.GetGroups() {
		if !one(subject{group: true, name: group}) {
			return
		}
	}
}

func missingRole(key types.NamespacedName) error {
	if key.Namespace == "" {
		return fmt.Errorf("clusterrole.rbac.authorization.k8s.io %q not found", key.Name)
	}
	return fmt.Errorf("role.rbac.authorization.k8s.io %q not found", key.Name)
}
