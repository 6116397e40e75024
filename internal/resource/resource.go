// Package resource names what a request to the API is about. It has no behaviour.
package resource

import "k8s.io/apimachinery/pkg/runtime/schema"

// Ref names a collection, one object, or an object's subresource.
type Ref struct {
	schema.GroupVersionResource
	Namespace   string // empty for cluster-scoped resources, or for all namespaces
	Name        string // empty for a collection
	Subresource string // such as "status"; empty for the object itself
}
