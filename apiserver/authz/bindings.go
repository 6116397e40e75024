package authz

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// setBinding indexes a binding by its subjects. namespace is empty for a ClusterRoleBinding.
func (r *RBAC) setBinding(namespace, name string, subjects []rbacv1.Subject, ref rbacv1.RoleRef, gone bool) {
	r.forget(namespace, name)
	if gone || ref.APIGroup != rbacv1.GroupName {
		return
	}
	key := types.NamespacedName{Name: ref.Name}
	switch {
	case ref.Kind == "Role" && namespace != "":
		key.Namespace = namespace
	case ref.Kind != "ClusterRole":
		return // validation refuses such a binding; if one is there, it grants nothing
	}
	holders := make([]subject, 0, len(subjects))
	source := fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of %s %q to ", name, ref.Kind, ref.Name)
	if namespace != "" {
		source = fmt.Sprintf("RBAC: allowed by RoleBinding %q of %s %q to ", name+"/"+namespace, ref.Kind, ref.Name)
	}
	for _, s := range subjects {
		holder, ok := subjectOf(s, namespace)
		if !ok {
			continue
		}
		holders = append(holders, holder)
		r.grant(holder, namespace, name, given{key, source + describe(s, namespace)})
	}
	r.bound[types.NamespacedName{Namespace: namespace, Name: name}] = holders
}

func (r *RBAC) grant(s subject, namespace, binding string, role given) {
	g := r.grants[s]
	if g == nil {
		g = &grants{}
		r.grants[s] = g
	}
	if namespace == "" {
		if g.cluster == nil {
			g.cluster = map[string]given{}
		}
		g.cluster[binding] = role
		return
	}
	if g.namespaced == nil {
		g.namespaced = map[string]map[string]given{}
	}
	if g.namespaced[namespace] == nil {
		g.namespaced[namespace] = map[string]given{}
	}
	g.namespaced[namespace][binding] = role
}

// forget takes a binding out of the index.
func (r *RBAC) forget(namespace, name string) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	for _, s := range r.bound[key] {
		g := r.grants[s]
		if g == nil {
			continue // the binding names the subject twice
		}
		if namespace == "" {
			delete(g.cluster, name)
		} else if delete(g.namespaced[namespace], name); len(g.namespaced[namespace]) == 0 {
			delete(g.namespaced, namespace)
		}
		if len(g.cluster) == 0 && len(g.namespaced) == 0 {
			delete(r.grants, s)
		}
	}
	delete(r.bound, key)
}

// describe names a subject as the reason of a decision does.
func describe(s rbacv1.Subject, namespace string) string {
	if s.Kind != rbacv1.ServiceAccountKind {
		return fmt.Sprintf("%s %q", s.Kind, s.Name)
	}
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	return fmt.Sprintf("%s %q", s.Kind, s.Name+"/"+namespace)
}

// subjectOf is who a binding's subject is to authentication.
func subjectOf(s rbacv1.Subject, namespace string) (subject, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{name: s.Name}, true
	case rbacv1.GroupKind:
		return subject{group: true, name: s.Name}, true
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		if namespace == "" {
			return subject{}, false
		}
		return subject{name: serviceaccount.MakeUsername(namespace, s.Name)}, true
	}
	return subject{}, false
}
