// Package access is what a cluster starts with and what confines its nodes: the default roles and their bindings, the system's own
// namespaces and priority classes, and the authorizer that lets a node reach no more than what the pods on it need.
//
// The roles are data (roles_*.go, bindings.go): names and rules are Kubernetes 1.36's, which users, charts and operators rely on.
// [Ensure] brings them into a cluster and leaves alone what an administrator took over. The roles of Yare's own loops are not here:
// they derive from what each loop declares.
//
// The package does not judge rules; it names kinds, which the API server does not.
package access

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/internal/resource"
)

// API is how this package reaches the API server: as somebody in system:masters, in-process or not. client.Transport satisfies it.
type API interface {
	Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error)
	List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error)
	Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error)
}
