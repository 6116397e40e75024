// Package roles says what RBAC rules mean: what a rule allows, and which rules a ClusterRole has when it is made of others (its
// aggregationRule). Everything in it is pure. Who holds which role is not its matter.
package roles

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregated tells whether a role is made of others.
func Aggregated(role *rbacv1.ClusterRole) bool { return role.AggregationRule != nil }

// Rules returns what a role allows: its own rules, or, when it is aggregated, the rules of all plain roles that it selects, directly or
// through other aggregated roles (which may select each other), in order of the roles' names and without repetition. all must have every
// ClusterRole by name; what comes back shares memory with it.
func Rules(role *rbacv1.ClusterRole, all map[string]*rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if !Aggregated(role) {
		return role.Rules
	}
	names := map[string]bool{}
	seen := map[string]bool{role.Name: true}
	for todo := []*rbacv1.ClusterRole{role}; len(todo) > 0; todo = todo[1:] {
		selectors := parse(todo[0].AggregationRule)
		for name, other := range all {
			if seen[name] || !matches(selectors, other.Labels) {
				continue
			}
			seen[name] = true
			if Aggregated(other) {
				todo = append(todo, other)
			} else {
				names[name] = true
			}
		}
	}
	var rules []rbacv1.PolicyRule
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, rule := range all[name].Rules {
			if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

// parse drops selectors that are not valid; validation refuses them.
func parse(rule *rbacv1.AggregationRule) []labels.Selector {
	var out []labels.Selector
	for i := range rule.ClusterRoleSelectors {
		if s, err := metav1.LabelSelectorAsSelector(&rule.ClusterRoleSelectors[i]); err == nil {
			out = append(out, s)
		}
	}
	return out
}

func matches(selectors []labels.Selector, set map[string]string) bool {
	return slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(set)) })
}
