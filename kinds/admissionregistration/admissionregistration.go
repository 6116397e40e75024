// Package admissionregistration declares the kinds of the group admissionregistration.k8s.io: webhooks, and policies written in CEL.
package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// Group is admissionregistration.k8s.io.
var Group = kind.Group{Name: "admissionregistration.k8s.io", Versions: []string{"v1"}, AnyFinalizer: true, AddToScheme: []func(*runtime.Scheme) error{admissionv1.AddToScheme}}

// The category of everything that extends the API.
var categories = []string{"api-extensions"}

func orDefault[T any](p **T, value T) {
	if *p == nil {
		*p = ptr.To(value)
	}
}

func defaultRule(r *admissionv1.Rule) { orDefault(&r.Scope, admissionv1.AllScopes) }

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	orDefault(&m.MatchPolicy, admissionv1.Equivalent)
	orDefault(&m.NamespaceSelector, metav1.LabelSelector{})
	orDefault(&m.ObjectSelector, metav1.LabelSelector{})
	for i := range m.ResourceRules {
		defaultRule(&m.ResourceRules[i].Rule)
	}
	for i := range m.ExcludeResourceRules {
		defaultRule(&m.ExcludeResourceRules[i].Rule)
	}
}
