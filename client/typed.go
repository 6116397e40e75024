package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// API is the typed client of one kind, for example client.Of[*corev1.Pod](transport).
// The resource follows from T (resources.go lists every built-in kind).
type API[T Object] interface {
	Get(ctx context.Context, namespace, name string) (T, error)
	List(ctx context.Context, namespace string, opts metav1.ListOptions) ([]T, error)
	Create(ctx context.Context, obj T) (T, error)
	// Update replaces obj; obj's resourceVersion, if set, is a precondition.
	Update(ctx context.Context, obj T) (T, error)
	UpdateStatus(ctx context.Context, obj T) (T, error)
	// Patch sends a patch to the object or, if sub is not empty, to a subresource.
	Patch(ctx context.Context, namespace, name string, kind types.PatchType, body []byte, sub string) (T, error)
	Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// Cache is a live view of one kind, indexed. Get and List never block; until Synced they may miss objects.
type Cache[T Object] interface {
	Get(namespace, name string) (T, bool)
	// List returns the objects of a namespace, or all if namespace is empty, in no particular order.
	List(namespace string) []T
	// By returns the objects whose index function gave value. The index must have been added with AddIndex before Run.
	By(index, value string) []T
	AddIndex(name string, of func(T) []string)
	// OnChange calls f for each change: old is nil (the zero T) for an addition, new for a removal. After the cache is
	// synced, f also hears of all that is there already. f must be quick and must not block; calls come one at a time, in order.
	OnChange(f func(old, new T))
	// Synced is closed once the cache has held a complete list and every OnChange has heard of it.
	Synced() <-chan struct{}
}

// CacheOptions narrows what a cache holds.
type CacheOptions struct {
	Namespace     string
	FieldSelector string
	LabelSelector string
}
