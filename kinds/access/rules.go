package access

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verbs that go together.
const (
	read  = "get list watch"
	write = "create delete deletecollection patch update"
	all   = read + " " + write
)

// Groups of the API, for short.
const (
	core         = "core"
	events       = "core events.k8s.io"
	authnGroup   = "authentication.k8s.io"
	authzGroup   = "authorization.k8s.io"
	certGroup    = "certificates.k8s.io"
	storageGroup = "storage.k8s.io"
	draGroup     = "resource.k8s.io"
	leaseGroup   = "coordination.k8s.io"

	schedulingGroup = "scheduling.k8s.io"
)

// allow makes a rule of words: the verbs, the groups ("core" is the group without a name) and the resources, each list separated by blanks. As in
// Kubernetes' default roles, each list of the rule is sorted.
func allow(verbs, groups, resources string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: sorted(verbs), Resources: sorted(resources)}
	for _, g := range strings.Fields(groups) {
		if g == core {
			g = ""
		}
		r.APIGroups = append(r.APIGroups, g)
	}
	slices.Sort(r.APIGroups)
	return r
}

func sorted(words string) []string {
	out := strings.Fields(words)
	slices.Sort(out)
	return out
}

// named narrows a rule to objects of these names.
func named(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// urls makes a rule for paths that are no resources.
func urls(verbs, paths string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: sorted(verbs), NonResourceURLs: sorted(paths)}
}

func writeEvents() rbacv1.PolicyRule { return allow("create patch update", events, "events") }

// Metadata that marks default objects (Kubernetes documentation, "Default roles and role bindings").
const (
	autoupdate     = "rbac.authorization.kubernetes.io/autoupdate"
	bootstrapLabel = "kubernetes.io/bootstrapping"
	aggregateTo    = "rbac.authorization.k8s.io/aggregate-to-"
)

func defaultMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{bootstrapLabel: "rbac-defaults"},
		Annotations: map[string]string{autoupdate: "true"},
	}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: defaultMeta("", name), Rules: rules}
}

// part makes a role a part of the aggregated role.
func part(r *rbacv1.ClusterRole, of string) *rbacv1.ClusterRole {
	r.Labels[aggregateTo+of] = "true"
	return r
}

// whole makes a role of all parts that are labelled for it.
func whole(name string) *rbacv1.ClusterRole {
	r := clusterRole(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}}}
	return r
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: defaultMeta(namespace, name), Rules: rules}
}
