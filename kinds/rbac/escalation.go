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

// Escalation is the plugin that keeps users from giving anybody (themselves included) more than they hold: who writes a role must
// hold each of its rules or be allowed to "escalate" the role; who writes a binding must hold each rule of the role that it gives, or
// be allowed to "bind" that role. An aggregationRule, which can gather anything, takes a holder of everything.
type Escalation struct{}

// Name names the plugin.
func (Escalation) Name() string { return "RBACEscalation" }

// Mutate changes nothing. It refuses escalation before the object is validated and looked for, as Kubernetes does: who may not write it learns nothing else.
func (e Escalation) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	return e.Validate(ctx, env, r)
}

// Validate refuses escalation, whatever other plugins made of the object.
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
		if err := c.role("clusterroles", o.Rules); err != nil || !selects(o) && (old == nil || !selects(old)) {
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

// selects tells a role that gathers the rules of others. One with an empty aggregationRule gathers none, and is not valid.
func selects(o *rbacv1.ClusterRole) bool {
	return roles.Aggregated(o) && len(o.AggregationRule.ClusterRoleSelectors) > 0
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

// mayEscalate asks for the role that the client's path names: a create by POST names none, and a right to one role is none to make it so.
func (c check) mayEscalate(resource string) bool {
	name := c.Ref.Name
	if c.Posted {
		name = ""
	}
	return c.may("escalate", resource, name)
}

func (c check) role(resource string, rules []rbacv1.PolicyRule) error {
	if c.mayEscalate(resource) {
		return nil
	}
	return c.covered(rules)
}

var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

func (c check) aggregation() error {
	if c.mayEscalate("clusterroles") || c.covered(everything) == nil {
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
	if resource == "roles" && c.Ref.Namespace == "" {
		return apierrors.NewBadRequest("Namespace parameter required.")
	}
	rules, err := c.rulesOf(resource, ref.Name)
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(c.Ref.GroupResource(), ref.Name) // of the binding's resource, as in Kubernetes
	}
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

// maxCompared bounds how many single permissions a role may stand for: a rule of a few kilobytes can multiply to billions, each of which would be compared
// with what the user holds. The largest roles of operators have some thousands.
const maxCompared = 100_000

// permissions counts what rules stand for, at most a little beyond maxCompared.
func permissions(rules []rbacv1.PolicyRule) int {
	total := 0
	for i := range rules {
		r := &rules[i]
		n := 1
		for _, factor := range []int{len(r.Verbs), max(len(r.APIGroups), 1), max(len(r.Resources)+len(r.NonResourceURLs), 1), max(len(r.ResourceNames), 1)} {
			n = min(n*factor, maxCompared+1)
		}
		if total += n; total > maxCompared {
			break
		}
	}
	return total
}

// maxMissing bounds how many of them a refusal looks for.
const maxMissing = 2000

// maxDescribed bounds how many lines a refusal has.
const maxDescribed = 200

func shortened(lines []string) []string {
	if len(lines) <= maxDescribed {
		return lines
	}
	return append(lines[:maxDescribed:maxDescribed], fmt.Sprintf("and %d more", len(lines)-maxDescribed))
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
	if permissions(rules) > maxCompared {
		return c.forbid(fmt.Sprintf("its rules stand for more than %d single permissions (verbs times API groups times resources times names), which are too many to compare with those that user %q holds: use \"*\", or give less",
			maxCompared, c.User.GetName()))
	}
	var missing []rbacv1.PolicyRule
	for i := range rules { // one by one: the library takes each apart into single permissions
		if _, not := validation.Covers(held, rules[i:i+1]); len(not) > 0 {
			missing = append(missing, not...)
		}
		if len(missing) > maxMissing {
			break
		}
	}
	if len(missing) == 0 {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", c.User.GetName(), c.User.GetGroups(), strings.Join(shortened(describe(missing)), "\n"))
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
