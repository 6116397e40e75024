// Package networking declares the kinds of the group networking.k8s.io: Ingresses and their classes, NetworkPolicies, and the address ranges and
// addresses of Services.
package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is networking.k8s.io.
var Group = kind.Group{Name: "networking.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{networkingv1.AddToScheme}}
