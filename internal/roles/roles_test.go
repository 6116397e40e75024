package roles

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func role(name, label, selects string, resources ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if label != "" {
		r.Labels = map[string]string{"to": label}
	}
	if selects != "" {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": selects}}}}
	}
	for _, res := range resources {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{res}})
	}
	return r
}

func TestRules(t *testing.T) {
	all := map[string]*rbacv1.ClusterRole{}
	for _, r := range []*rbacv1.ClusterRole{
		role("plain", "", "", "nodes"),
		role("view-b", "view", "", "pods", "services"),
		role("view-a", "view", "", "pods"),
		role("view", "edit", "view", "stale"), // what an aggregated role's own rules say does not count
		role("edit-a", "edit", "", "secrets"),
		role("edit", "", "edit"),
		role("ring-1", "r2", "r1"), role("ring-2", "r1", "r2"), role("ring-rule", "r1", "", "leases"),
		role("selects-itself", "self", "self", "stale"),
		{ObjectMeta: metav1.ObjectMeta{Name: "no-selectors"}, AggregationRule: &rbacv1.AggregationRule{}},
	} {
		all[r.Name] = r
	}
	for name, want := range map[string][]string{
		"plain": {"nodes"}, "view": {"pods", "services"}, "edit": {"secrets", "pods", "services"},
		"ring-1": {"leases"}, "ring-2": {"leases"}, "selects-itself": nil, "no-selectors": nil,
	} {
		var got []string
		for _, r := range Rules(all[name], all) {
			got = append(got, r.Resources...)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
