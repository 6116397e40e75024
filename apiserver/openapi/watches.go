package openapi

import (
	"net/http"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var watchEventName = nameOf(reflect.TypeFor[metav1.WatchEvent]())

// watches adds the old paths of watches, which Kubernetes describes for its own kinds.
func (r *routes) watches() {
	if r.kind.Dynamic || !slices.Contains(r.kind.Verbs, "watch") {
		return
	}
	base, plural, name := r.base()+"/watch/", r.version.Names.Plural, r.version.Kind
	collection := base + plural
	if r.namespaced() {
		collection = base + "namespaces/{namespace}/" + plural
		r.watch(base+plural, "watch"+groupTitle(r.version.GroupVersion())+name+"ListForAllNamespaces", "watchlist")
	}
	r.watch(collection, r.id("watch", name+"List"), "watchlist")
	r.watch(collection+"/{name}", r.id("watch", name), "watch")
}

func (r *routes) watch(path, id, action string) {
	summary := "watch objects of kind " + r.version.Kind + ". Deprecated: list with the parameter watch"
	if action == "watch" {
		summary += " and a fieldSelector for the name"
	}
	r.add(operation{path: path, method: http.MethodGet, id: id, action: action, response: watchEventName, produces: watchTypes, summary: summary,
		parameters: parametersOf[metav1.ListOptions]()})
}
