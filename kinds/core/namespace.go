package core

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// A namespace that is deleted stays, Terminating, until its spec.finalizers are gone: the namespace controller empties it first and then
// takes its finalizer away through the finalize subresource.
var _ = kind.Add(&Group, kind.Def[corev1.Namespace]{
	Names:          kind.Names{Plural: "namespaces", Short: []string{"ns"}},
	ReturnDeleted:  true,
	Scope:          kind.Cluster,
	Default:        defaultNamespace,
	Prepare:        prepareNamespace,
	Validate:       validateNamespace,
	ValidateStatus: validateNamespaceStatus,
	ValidateName:   labelName,
	NoGeneration:   true,
	KeepDeleted:    func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 },
	OnDelete:       func(n *corev1.Namespace) { n.Status.Phase = corev1.NamespaceTerminating },
	Verbs:          []string{"create", "delete", "get", "list", "patch", "update", "watch"},
	Columns: []kind.Column[corev1.Namespace]{
		{Name: "Status", Description: "The status of the namespace", Value: func(n *corev1.Namespace, _ time.Time) any { return string(n.Status.Phase) }},
	},
	Fields: map[string]func(*corev1.Namespace) string{
		"status.phase": func(n *corev1.Namespace) string { return string(n.Status.Phase) },
		"name":         func(n *corev1.Namespace) string { return n.Name },
	},
	Subs: []kind.Sub[corev1.Namespace]{{
		Name:     "finalize",
		NoPatch:  true,
		Replace:  func(n, from *corev1.Namespace) { n.Spec.Finalizers = from.Spec.Finalizers },
		Validate: func(n, _ *corev1.Namespace) field.ErrorList { return checkNamespaceFinalizers(n) },
	}},
})

func defaultNamespace(n *corev1.Namespace) {
	defaultTo(&n.Status.Phase, corev1.NamespaceActive)
	labelWithName(n)
}

// labelWithName makes namespaces selectable by name. A generated name is not there yet when defaults are set.
func labelWithName(n *corev1.Namespace) {
	if n.Name != "" {
		n.Labels = withAll(n.Labels, map[string]string{corev1.LabelMetadataName: n.Name})
	}
}

func prepareNamespace(n, old *corev1.Namespace) {
	labelWithName(n)
	if old != nil {
		n.Spec.Finalizers = old.Spec.Finalizers
		return
	}
	n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func validateNamespace(n, _ *corev1.Namespace) field.ErrorList { return checkNamespaceFinalizers(n) }

func checkNamespaceFinalizers(n *corev1.Namespace) field.ErrorList {
	var p problems
	at := field.NewPath("spec", "finalizers")
	for _, name := range n.Spec.Finalizers {
		p.add(apivalidation.ValidateFinalizerName(string(name), at)...)
		if !strings.Contains(string(name), "/") && name != corev1.FinalizerKubernetes && string(name) != metav1.FinalizerOrphanDependents && string(name) != metav1.FinalizerDeleteDependents {
			p.invalid(at, name, "name is neither a standard finalizer name nor is it fully qualified")
		}
	}
	return p.list
}

func validateNamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	var p problems
	at := field.NewPath("status", "Phase") // clients know the cause by this spelling
	if deleted := n.DeletionTimestamp != nil; !deleted && n.Status.Phase != corev1.NamespaceActive {
		p.invalid(at, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")
	} else if deleted && n.Status.Phase != corev1.NamespaceTerminating {
		p.invalid(at, n.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
	return p.list
}
