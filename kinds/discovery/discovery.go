// Package discovery declares the kinds of the group discovery.k8s.io: the EndpointSlice.
package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is discovery.k8s.io.
var Group = kind.Group{Name: "discovery.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{discoveryv1.AddToScheme}}
