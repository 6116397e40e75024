// Package client is how every loop reaches the API: one typed client and one kind of cache over two transports.
//
// The in-process transport hands out the store's own objects: a loop that runs beside the API server keeps no second copy and pays
// for no codec, yet its requests are authorized, admitted and validated like everybody's. The HTTP transport does the same through client-go.
//
// Objects from a Transport, a Client or a Cache are shared: never change one; DeepCopy it first.
// Everything here is safe for concurrent use.
//
// The package does not decide what a loop may do: the API server does.
package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/internal/resource"
)

// Object is what the API keeps: any Kubernetes object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Transport is one way to reach the gate, as one user. Errors are *apierrors.StatusError as the Kubernetes API defines them.
// apiserver's in-process transport satisfies it by shape.
type Transport interface {
	Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error)
	// List returns the objects in key order and the list's metadata (resourceVersion, continue, remainingItemCount).
	List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	// Watch streams changes; opts.SendInitialEvents is honoured, so that one call lists and watches. An event of type Error ends it.
	Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error)
	// Create also posts to a subresource (binding, eviction, token) when ref.Subresource is set.
	Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error)
	// Patch applies a JSON, merge, strategic-merge or apply patch.
	Patch(ctx context.Context, ref resource.Ref, kind types.PatchType, body []byte, opts metav1.PatchOptions) (runtime.Object, error)
	Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error)
	DeleteCollection(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions, list metav1.ListOptions) error
}
