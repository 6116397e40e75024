package client

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/internal/resource"
)

// Of returns the typed client of T over t.
func Of[T Object](t Transport) API[T] { return OfResource[T](t, ResourceOf[T]()) }

// OfResource returns the client of a named resource whose objects are T: for kinds that are not built in, or with T = Object for any.
func OfResource[T Object](t Transport, gvr schema.GroupVersionResource) API[T] {
	return api[T]{transport: t, gvr: gvr}
}

type api[T Object] struct {
	transport Transport
	gvr       schema.GroupVersionResource
}

func (a api[T]) ref(namespace, name, sub string) resource.Ref {
	return resource.Ref{GroupVersionResource: a.gvr, Namespace: namespace, Name: name, Subresource: sub}
}

func (a api[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return as[T](a.transport.Get(ctx, a.ref(namespace, name, ""), metav1.GetOptions{}))
}

func (a api[T]) List(ctx context.Context, namespace string, opts metav1.ListOptions) ([]T, error) {
	objects, _, err := a.transport.List(ctx, a.ref(namespace, "", ""), opts)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(objects))
	for i, o := range objects {
		if out[i], err = as[T](o, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a api[T]) Create(ctx context.Context, obj T) (T, error) {
	return as[T](a.transport.Create(ctx, a.ref(obj.GetNamespace(), "", ""), obj, metav1.CreateOptions{}))
}

func (a api[T]) Update(ctx context.Context, obj T) (T, error) { return a.update(ctx, obj, "") }

func (a api[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	return a.update(ctx, obj, "status")
}

func (a api[T]) update(ctx context.Context, obj T, sub string) (T, error) {
	return as[T](a.transport.Update(ctx, a.ref(obj.GetNamespace(), obj.GetName(), sub), obj, metav1.UpdateOptions{}))
}

func (a api[T]) Patch(ctx context.Context, namespace, name string, kind types.PatchType, body []byte, sub string) (T, error) {
	return as[T](a.transport.Patch(ctx, a.ref(namespace, name, sub), kind, body, metav1.PatchOptions{}))
}

func (a api[T]) Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	_, err := a.transport.Delete(ctx, a.ref(namespace, name, ""), opts)
	return err
}

func as[T Object](obj runtime.Object, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("client: the server answered with a %T where a %T was asked for", obj, none)
	}
	return typed, nil
}
