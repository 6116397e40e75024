// Package policy declares the kinds of the group policy: the PodDisruptionBudget. (The Eviction is a subresource of pods.)
package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is policy.
var Group = kind.Group{Name: "policy", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{policyv1.AddToScheme}}
