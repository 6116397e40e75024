package loop

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

func stack() string { return string(debug.Stack()) }

// UndeclaredError says that a loop tried what its descriptor does not declare. It is a mistake in the loop, not in the cluster.
type UndeclaredError struct {
	Loop     string
	Verb     string
	Resource schema.GroupResource // "pods/status" for a subresource
}

func (e *UndeclaredError) Error() string {
	list := "Writes"
	if slices.Contains(readVerbs, e.Verb) {
		list = "Reads"
	}
	return fmt.Sprintf("loop %q may not %s %s: its descriptor does not declare it; add {%s, [%s]} to %s",
		e.Loop, e.Verb, e.Resource, e.Resource, e.Verb, list)
}

var readVerbs = []string{"get", "list", "watch"}

// guard holds a loop to its declaration, then passes requests on. The server authorizes them once more.
type guard struct {
	d    Descriptor
	next client.Transport
}

func newGuard(d Descriptor, next client.Transport) *guard { return &guard{d: d, next: next} }

// verbs of an access: those named, else every verb that its list implies.
func (a Access) reads() []string {
	if len(a.Verbs) == 0 {
		return readVerbs
	}
	return a.Verbs
}

var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

func (a Access) writes() []string {
	if len(a.Verbs) == 0 {
		return writeVerbs
	}
	return a.Verbs
}

func (a Access) covers(r schema.GroupResource) bool {
	return (a.Group == r.Group || a.Group == "*") && (a.Resource == r.Resource || a.Resource == "*")
}

func (g *guard) mayCache(gvr schema.GroupVersionResource) error {
	return g.allow("watch", resource.Ref{GroupVersionResource: gvr})
}

func (g *guard) allow(verb string, ref resource.Ref) error {
	r := ref.GroupResource()
	if ref.Subresource != "" {
		r.Resource += "/" + ref.Subresource
	}
	for _, a := range g.d.Reads {
		if slices.Contains(readVerbs, verb) && a.covers(r) && slices.Contains(a.reads(), verb) {
			return nil
		}
	}
	for _, a := range g.d.Writes {
		// Who may change an object may read it back: a loop's own fresh read before a write needs no second declaration.
		if a.covers(r) && (slices.Contains(a.writes(), verb) || verb == "get") {
			return nil
		}
	}
	return &UndeclaredError{Loop: g.d.Name, Verb: verb, Resource: r}
}

func (g *guard) Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error) {
	if err := g.allow("get", ref); err != nil {
		return nil, err
	}
	return g.next.Get(ctx, ref, opts)
}

func (g *guard) List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if err := g.allow("list", ref); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	return g.next.List(ctx, ref, opts)
}

func (g *guard) Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	if err := g.allow("watch", ref); err != nil {
		return nil, err
	}
	return g.next.Watch(ctx, ref, opts)
}

func (g *guard) Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	if err := g.allow("create", ref); err != nil {
		return nil, err
	}
	return g.next.Create(ctx, ref, obj, opts)
}

func (g *guard) Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error) {
	if err := g.allow("update", ref); err != nil {
		return nil, err
	}
	return g.next.Update(ctx, ref, obj, opts)
}

func (g *guard) Patch(ctx context.Context, ref resource.Ref, kind types.PatchType, body []byte, opts metav1.PatchOptions) (runtime.Object, error) {
	if err := g.allow("patch", ref); err != nil {
		return nil, err
	}
	return g.next.Patch(ctx, ref, kind, body, opts)
}

func (g *guard) Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error) {
	if err := g.allow("delete", ref); err != nil {
		return nil, err
	}
	return g.next.Delete(ctx, ref, opts)
}

func (g *guard) DeleteCollection(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	if err := g.allow("deletecollection", ref); err != nil {
		return err
	}
	return g.next.DeleteCollection(ctx, ref, opts, list)
}
