// Package rbac declares the kinds of rbac.authorization.k8s.io (v1), one file a kind, and the check that nobody hands out more than
// they hold (escalation.go). How rules are judged is package apiserver/authz's matter.
package rbac

import (
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// Group is the RBAC group.
var Group = kind.Group{Name: rbacv1.GroupName, Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{rbacv1.AddToScheme}}

// validName allows more than other kinds' names: colons, for example.
func validName(name string, prefix bool) []string {
	if prefix {
		return path.IsValidPathSegmentPrefix(name)
	}
	return path.IsValidPathSegmentName(name)
}

// created is the column that roles have instead of an age.
func created(at func() metav1.Time) string {
	if t := at(); !t.IsZero() {
		return t.UTC().Format(time.RFC3339)
	}
	return ""
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, validateRule(&rules[i], namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

func validateRule(rule *rbacv1.PolicyRule, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(rule.NonResourceURLs) > 0 {
		urls := at.Child("nonResourceURLs")
		if namespaced {
			errs = append(errs, field.Invalid(urls, rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(urls, rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

// defaultRef and defaultSubjects fill the API groups that a binding leaves out.
func defaultRef(ref *rbacv1.RoleRef) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
}

func defaultSubjects(subjects []rbacv1.Subject) {
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func validateBinding(subjects []rbacv1.Subject, ref rbacv1.RoleRef, old *rbacv1.RoleRef, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	kinds := []string{"ClusterRole"}
	if namespaced {
		kinds = []string{"Role", "ClusterRole"}
	}
	if ref.Kind != "ClusterRole" && !(namespaced && ref.Kind == "Role") {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		for _, message := range validName(ref.Name, false) {
			errs = append(errs, field.Invalid(at.Child("name"), ref.Name, message))
		}
	}
	if old != nil && *old != ref {
		errs = append(errs, field.Invalid(at, ref, "cannot change roleRef"))
	}
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s *rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			for _, message := range serviceAccountName(s.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, message))
			}
		}
		if s.APIGroup != "" {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{""}))
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}

// bindingColumns are the same for both kinds of binding, but for where they find the values.
func bindingColumns[T any](of func(*T) (rbacv1.RoleRef, []rbacv1.Subject)) []kind.Column[T] {
	wide := func(name, subjectKind string) kind.Column[T] {
		return kind.Column[T]{Name: name, Priority: 1, Description: name + " in the binding", Value: func(o *T, _ time.Time) any {
			_, subjects := of(o)
			return subjectNames(subjects, subjectKind)
		}}
	}
	return []kind.Column[T]{
		{Name: "Role", Description: "The role that the binding gives.", Value: func(o *T, _ time.Time) any {
			ref, _ := of(o)
			return fmt.Sprintf("%s/%s", ref.Kind, ref.Name)
		}},
		wide("Users", rbacv1.UserKind), wide("Groups", rbacv1.GroupKind), wide("ServiceAccounts", rbacv1.ServiceAccountKind),
	}
}

func subjectNames(subjects []rbacv1.Subject, of string) string {
	var names []string
	for _, s := range subjects {
		switch {
		case s.Kind != of:
		case of == rbacv1.ServiceAccountKind && s.Namespace != "":
			names = append(names, s.Namespace+"/"+s.Name)
		default:
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}
