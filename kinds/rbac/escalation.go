package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/yare-project/yare/internal/roles"
	"github.com/yare-project/yare/kind"
)

// Escalation is the validator that keeps users from giving anybody (themselves included) more than they hold: who writes a role must
// hold each of its rules or be allowed to "escalate" the role; who writes a binding must hold each rule of the role that it gives, or
// be allowed to "bind" that role. An aggregationRule, which can gather anything, takes a holder of everything.
type Escalation struct{}

// Name names the validator.
func (Escalation) Name() string { return "RBACEscalation" }

// Validate refuses escalation.
func (Escalation) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if r.Operation != admissionv1.Create && r.Operation != admissionv1.Update || r.Ref.Group != rbacv1.GroupName ||
		slices.Contains(r.User.GetGroups(), user.SystemPrivilegedGroup) || onlyCollectable(r) {
		return nil
	}
	c := check{ctx, env, r}
	switch o := r.Object.(type) {
	case *rbacv1.Role:
		return c.role("roles", o.Rules)
	case *rbacv1.ClusterRole:
		old, _ := r.Old.(*rbacv1.ClusterRole)
		if err := c.role("clusterroles", o.Rules); err != nil || !roles.Aggregated(o) && (old == nil || !roles.Aggregated(old)) {
			return err
		}
		return c.aggregation()
	case *rbacv1.RoleBinding:
		return c.binding(o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return c.binding(o.RoleRef)
	}
	return nil
}

type check struct {
	ctx context.Context
	env kind.Env
	*kind.AdmissionRequest
}

func (c check) may(verb, resource, name string) bool {
	decision, _, _ := c.env.Authorize(c.ctx, authorizer.AttributesRecord{
		User: c.User, Verb: verb, APIGroup: rbacv1.GroupName, APIVersion: "*", Resource: resource, Name: name,
		Namespace: c.Ref.Namespace, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

func (c check) role(resource string, rules []rbacv1.PolicyRule) error {
	if c.may("escalate", resource, c.Ref.Name) {
		return nil
	}
	return c.covered(rules)
}

var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

func (c check) aggregation() error {
	if c.may("escalate", "clusterroles", c.Ref.Name) || c.covered(everything) == nil {
		return nil
	}
	return c.forbid("must have cluster-admin privileges to use the aggregationRule")
}

func (c check) binding(ref rbacv1.RoleRef) error {
	resource := "clusterroles"
	if ref.Kind == "Role" {
		resource = "roles"
	}
	if c.may("bind", resource, ref.Name) {
		return nil
	}
	rules, err := c.rulesOf(resource, ref.Name)
	if err != nil {
		return err
	}
	return c.covered(rules)
}

// rulesOf is what a role allows now.
func (c check) rulesOf(resource, name string) ([]rbacv1.PolicyRule, error) {
	namespace := ""
	if resource == "roles" {
		namespace = c.Ref.Namespace
	}
	obj, err := c.env.Get(c.ctx, schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, namespace, name)
	if err != nil {
		return nil, err
	}
	switch o := obj.(type) {
	case *rbacv1.Role:
		return o.Rules, nil
	case *rbacv1.ClusterRole:
		if !roles.Aggregated(o) {
			return o.Rules, nil
		}
		list, err := c.env.List(c.ctx, schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}, "")
		if err != nil {
			return nil, err
		}
		all := map[string]*rbacv1.ClusterRole{}
		for _, other := range list {
			if role, ok := other.(*rbacv1.ClusterRole); ok {
				all[role.Name] = role
			}
		}
		return roles.Rules(o, all), nil
	}
	return nil, apierrors.NewInternalError(fmt.Errorf("%s %q is stored as %T", resource, name, obj))
}

// covered refuses rules that the user does not hold.
func (c check) covered(rules []rbacv1.PolicyRule) error {
	resources, others, incomplete := c.env.Rules(c.ctx, c.User, c.Ref.Namespace)
	var held []rbacv1.PolicyRule
	for _, r := range resources {
		held = append(held, rbacv1.PolicyRule{Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames()})
	}
	for _, r := range others {
		held = append(held, rbacv1.PolicyRule{Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs()})
	}
	ok, missing := validation.Covers(held, rules)
	if ok {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", c.User.GetName(), c.User.GetGroups(), strings.Join(describe(missing), "\n"))
	if incomplete != nil {
		text += fmt.Sprintf("; resolution errors: %v", incomplete)
	}
	return c.forbid(text)
}

func (c check) forbid(text string) error {
	name := c.Ref.Name
	if name == "" && c.Object != nil {
		name = c.Object.GetName()
	}
	return apierrors.NewForbidden(c.Ref.GroupResource(), name, fmt.Errorf("%s", text))
}

// describe lists rules in short form, those that differ in their verb as one.
func describe(rules []rbacv1.PolicyRule) []string {
	var order []string
	verbs := map[string][]string{}
	for _, r := range rules {
		var parts []string
		if len(r.NonResourceURLs) > 0 {
			parts = append(parts, fmt.Sprintf("NonResourceURLs:%q", r.NonResourceURLs))
		} else {
			parts = append(parts, fmt.Sprintf("APIGroups:%q, Resources:%q", r.APIGroups, r.Resources))
			if len(r.ResourceNames) > 0 {
				parts = append(parts, fmt.Sprintf("ResourceNames:%q", r.ResourceNames))
			}
		}
		key := strings.Join(parts, ", ")
		if _, ok := verbs[key]; !ok {
			order = append(order, key)
		}
		verbs[key] = append(verbs[key], r.Verbs...)
	}
	slices.Sort(order)
	for i, key := range order {
		order[i] = fmt.Sprintf("{%s, Verbs:%q}", key, verbs[key])
	}
	return order
}

// onlyCollectable tells whether an update changes nothing but what the garbage collector needs to change.
func onlyCollectable(r *kind.AdmissionRequest) bool {
	if r.Old == nil || r.Object == nil {
		return false
	}
	strip := func(o kind.Object) kind.Object {
		o = o.DeepCopyObject().(kind.Object)
		o.SetOwnerReferences(nil)
		o.SetFinalizers(nil)
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		o.SetGeneration(0)
		return o
	}
	return equality.Semantic.DeepEqual(strip(r.Object), strip(r.Old))
}
