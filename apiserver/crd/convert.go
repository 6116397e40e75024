package crd

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

// converter turns objects into another version. It may not change its arguments; what it returns is the caller's own. nil: versions differ in their
// apiVersion only.
type converter func(objects []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error)

// shown is a stored object in f, in the form that the schema of now gives it: it may have been written under another. It is the caller's own.
func (c *custom) shown(u *unstructured.Unstructured, f *form) (*unstructured.Unstructured, error) {
	if c.formOf(u) != f {
		return c.to(u, f)
	}
	out := u.DeepCopy()
	f.refine(out)
	return out, nil
}

// to shows an object of any version in f. The result may be u itself.
func (c *custom) to(u *unstructured.Unstructured, f *form) (*unstructured.Unstructured, error) {
	from := c.formOf(u)
	if from == f {
		return u, nil
	}
	if out := f.batch.lookup(u); out != nil {
		return out, nil
	}
	out, err := c.translate([]*unstructured.Unstructured{u}, f)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// from turns an object of version f into the hub.
func (c *custom) from(u *unstructured.Unstructured, f *form) (*unstructured.Unstructured, error) {
	if f == c.hub {
		return u, nil
	}
	out, err := c.translate([]*unstructured.Unstructured{u}, c.hub)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// bare tells an object of which nothing but its type is known: what a manager of fields starts from. There is nothing in it for a webhook to convert.
func bare(u *unstructured.Unstructured) bool {
	for name, value := range u.Object {
		if meta, _ := value.(map[string]any); name != "apiVersion" && name != "kind" && (name != "metadata" || len(meta) > 0) {
			return false
		}
	}
	return true
}

// translate converts objects into new ones of version f, without what f's schema does not have.
func (c *custom) translate(objects []*unstructured.Unstructured, f *form) ([]*unstructured.Unstructured, error) {
	if len(objects) == 1 && bare(objects[0]) {
		return []*unstructured.Unstructured{f.empty()}, nil
	}
	out := make([]*unstructured.Unstructured, len(objects))
	for i, u := range objects {
		out[i] = u.DeepCopy()
		if from := c.formOf(u); from != nil {
			from.refine(out[i])
		}
	}
	if c.convert != nil {
		var err error
		if out, err = c.convert(out, f.gvk.GroupVersion()); err != nil {
			return nil, err
		}
	}
	s, err := f.structural()
	if err != nil {
		return nil, err
	}
	for _, u := range out {
		if _, err := f.shape(u, s, false); err != nil {
			return nil, fmt.Errorf("converted %s %q: %w", f.gvk.Kind, u.GetName(), err)
		}
	}
	return out, nil
}

// batchMemory is how many converted objects a version remembers, unless one list needs more.
const batchMemory = 1024

// batch remembers what was converted together, so that a list costs one call of a webhook and not one for every object and column.
// Its keys are stored objects, which never change.
type batch struct {
	mu    sync.Mutex
	by    map[*unstructured.Unstructured]*unstructured.Unstructured
	order []*unstructured.Unstructured
}

func (b *batch) lookup(u *unstructured.Unstructured) *unstructured.Unstructured {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.by[u]
}

func (b *batch) keep(from, to []*unstructured.Unstructured) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[*unstructured.Unstructured]*unstructured.Unstructured{}
	}
	for i, u := range from {
		if b.by[u] == nil {
			b.order = append(b.order, u)
		}
		b.by[u] = to[i]
	}
	if excess := len(b.order) - max(batchMemory, len(from)); excess > 0 {
		for _, u := range b.order[:excess] {
			delete(b.by, u)
		}
		b.order = slices.Clone(b.order[excess:])
	}
}

// many converts stored objects ahead; nil where converting one by one costs no more.
func (f *form) many() func(context.Context, []kind.Object) error {
	if f.of.convert == nil {
		return nil
	}
	return func(ctx context.Context, hubs []kind.Object) error {
		var todo []*unstructured.Unstructured
		for _, o := range hubs {
			if u := object(o); f.of.formOf(u) != f && f.batch.lookup(u) == nil {
				todo = append(todo, u)
			}
		}
		if len(todo) == 0 {
			return nil
		}
		out, err := f.of.translate(todo, f)
		if err != nil {
			return err
		}
		f.batch.keep(todo, out)
		return ctx.Err()
	}
}
