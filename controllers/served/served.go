// Package served names the resources that an API server serves, for the loops that work on all of them.
package served

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one served resource in its preferred version.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string
	// Remote says that another API server keeps the objects, which may be gone at any time: nobody must wait for it.
	Remote bool
}

// Can tells whether every verb is served.
func (r Resource) Can(verbs ...string) bool {
	for _, v := range verbs {
		if !slices.Contains(r.Verbs, v) {
			return false
		}
	}
	return true
}

// List is how a loop learns what is served now. A partial result may come with an error that says what is missing.
type List func(ctx context.Context) ([]Resource, error)
