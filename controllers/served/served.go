// Package served names the resources that an API server serves, for the loops that work on all of them.
package served

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
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

// FromDiscovery lists by discovery, for loops that run away from the API server.
func FromDiscovery(d discovery.ServerResourcesInterface) List {
	return func(context.Context) ([]Resource, error) {
		lists, err := d.ServerPreferredResources()
		if err != nil {
			err = fmt.Errorf("discover resources: %w", err)
		}
		return flatten(lists), err
	}
}

func flatten(lists []*metav1.APIResourceList) []Resource {
	var out []Resource
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			out = append(out, Resource{GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs})
		}
	}
	return out
}
