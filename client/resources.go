package client

import (
	"fmt"
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	schedulingv1alpha1 "github.com/yare-project/yare/api/scheduling/v1alpha1"
)

// builtins maps every built-in kind's Go type, kind and resource to one another. It is derived from the scheme once and never changed.
type builtins struct {
	scheme     *runtime.Scheme
	byType     map[reflect.Type]schema.GroupVersionKind
	byResource map[schema.GroupVersionResource]schema.GroupVersionKind
}

var known = sync.OnceValue(newBuiltins)

func newBuiltins() *builtins {
	b := &builtins{
		scheme:     runtime.NewScheme(),
		byType:     map[reflect.Type]schema.GroupVersionKind{},
		byResource: map[schema.GroupVersionResource]schema.GroupVersionKind{},
	}
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme, schedulingv1alpha1.AddToScheme} {
		if err := add(b.scheme); err != nil {
			panic(fmt.Sprintf("client: the built-in scheme contradicts itself: %v", err))
		}
	}
	metaPackage := reflect.TypeFor[metav1.Status]().PkgPath()
	object := reflect.TypeFor[metav1.Object]()
	for gvk, t := range b.scheme.AllKnownTypes() {
		pointer := reflect.PointerTo(t)
		if gvk.Version == runtime.APIVersionInternal || t.PkgPath() == metaPackage || !pointer.Implements(object) {
			continue
		}
		b.byType[pointer] = gvk
		b.byResource[ResourceFor(gvk)] = gvk
	}
	return b
}

// ResourceFor names the resource of a kind by the plural rule that every built-in kind follows (Endpoints is its own plural).
func ResourceFor(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural
}

// KindFor is the kind of a built-in resource; false for any other.
func KindFor(gvr schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	gvk, ok := known().byResource[gvr]
	return gvk, ok
}

// KindOf is the kind of an object: what it says itself or, as typed objects rarely do, what its Go type is registered as.
func KindOf(obj runtime.Object) (schema.GroupVersionKind, bool) {
	if gvk, ok := known().byType[reflect.TypeOf(obj)]; ok {
		return gvk, true
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	return gvk, gvk.Kind != ""
}

// ResourceOf is the resource of the built-in Go type T. It panics for a type that is no built-in kind: use [OfResource] or
// [CacheOfResource] for those.
func ResourceOf[T Object]() schema.GroupVersionResource {
	t := reflect.TypeFor[T]()
	gvk, ok := known().byType[t]
	if !ok {
		panic(fmt.Sprintf("client: %v is no built-in kind; name its resource with OfResource or CacheOfResource", t))
	}
	return ResourceFor(gvk)
}

// Scheme holds the Go types of every built-in kind. It is shared: register nothing in it.
func Scheme() *runtime.Scheme { return known().scheme }
