package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Node is a loop in the graph: what it reads and what it writes.
type Node struct {
	Name          string
	Reads, Writes []Access
}

// Graph lists the loops with what flows into and out of them, by name.
func (r *Runtime) Graph() []Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Node
	for _, l := range r.loops {
		out = append(out, Node{Name: l.Name, Reads: l.Reads, Writes: l.Writes})
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// String is the node as one line: "replicaset: apps/replicasets pods -> pods replicasets.apps/status".
func (n Node) String() string {
	return fmt.Sprintf("%s: %s -> %s", n.Name, names(n.Reads), names(n.Writes))
}

func names(all []Access) string {
	var out []string
	for _, a := range all {
		out = append(out, a.GroupResource.String())
	}
	return strings.Join(out, " ")
}

// Status says what a loop is busy with and what it waits for.
type Status struct {
	Name    string
	Ready   int                   // keys waiting for a worker
	Running map[Key]time.Duration // keys at work, and for how long
	Waiting map[Key]Wait          // keys put off
}

// Wait is why a key was put off, and for how long from now.
type Wait struct {
	For      time.Duration
	Failures int    // passes that failed in a row; 0 means that the loop asked for this delay
	Error    string // of the last failed pass
}

// Status describes every loop at this moment.
func (r *Runtime) Status() []Status {
	r.mu.Lock()
	loops := slices.Clone(r.loops)
	r.mu.Unlock()
	var out []Status
	for _, l := range loops {
		out = append(out, l.queue.status(l.Name))
	}
	return out
}

func (q *queue) status(name string) Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	s := Status{Name: name, Ready: len(q.ready), Running: map[Key]time.Duration{}, Waiting: map[Key]Wait{}}
	for key, since := range q.running {
		s.Running[key] = now.Sub(since)
	}
	for key, d := range q.delayed.at {
		w := Wait{For: d.due.Sub(now), Failures: q.failures[key].count}
		if err := q.failures[key].last; err != nil {
			w.Error = err.Error()
		}
		s.Waiting[key] = w
	}
	return s
}

// UserName is the user that a loop acts as.
func UserName(loop string) string {
	return "system:serviceaccount:kube-system:" + loop + "-controller"
}

// Roles derives, for each loop, the ClusterRole with exactly the declared access and its binding to the loop's user.
func (r *Runtime) Roles() (roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.loops {
		role, binding := RoleOf(l.Descriptor)
		roles, bindings = append(roles, role), append(bindings, binding)
	}
	return roles, bindings
}

// RoleOf derives a loop's role and binding. Writing Events belongs to every loop.
func RoleOf(d Descriptor) (rbacv1.ClusterRole, rbacv1.ClusterRoleBinding) {
	meta := metav1.ObjectMeta{Name: "system:controller:" + d.Name + "-controller", Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{"rbac.authorization.kubernetes.io/autoupdate": "true"}}
	role := rbacv1.ClusterRole{ObjectMeta: meta}
	for _, a := range d.Reads {
		role.Rules = append(role.Rules, rule(a.GroupResource, a.reads()))
	}
	for _, a := range d.Writes {
		verbs := slices.Clone(a.writes())
		if !slices.Contains(verbs, "get") {
			verbs = append(verbs, "get")
		}
		role.Rules = append(role.Rules, rule(a.GroupResource, verbs))
	}
	role.Rules = append(role.Rules, rule(schema.GroupResource{Resource: "events"}, []string{"create", "patch", "update"}))
	binding := rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: d.Name + "-controller"}}}
	return role, binding
}

func rule(r schema.GroupResource, verbs []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: verbs}
}
