package apply

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// conversions offers one kind's versions to the field manager, which asks for any of them as the version that the API calls internal too.
type conversions struct{ kind *kind.Kind }

var (
	_ runtime.ObjectConvertor = conversions{}
	_ runtime.ObjectDefaulter = conversions{}
	_ runtime.ObjectCreater   = conversions{}
)

// New implements runtime.ObjectCreater.
func (c conversions) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	v, ok := c.version(gvk.GroupVersion())
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind(string(c.kind.Names.Kind), gvk)
	}
	obj := v.New()
	obj.GetObjectKind().SetGroupVersionKind(v.GroupVersionKind)
	return obj, nil
}

// Default implements runtime.ObjectDefaulter for objects of the hub version; others are defaulted once they are the hub.
func (c conversions) Default(obj runtime.Object) {
	if c.kind.Default == nil || obj.GetObjectKind().GroupVersionKind() != c.kind.Hub {
		return
	}
	if hub, ok := obj.(kind.Object); ok {
		c.kind.Default(hub)
	}
}

// ConvertToVersion implements runtime.ObjectConvertor. An object that is in the asked version already is returned as it is.
func (c conversions) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind(), c.kind.Hub})
	if gv, isVersion := to.(schema.GroupVersion); isVersion {
		gvk, ok = gv.WithKind(c.kind.Names.Kind), true
	}
	if !ok {
		return nil, fmt.Errorf("%s has no version %s", c.kind.Resource(), to.Identifier())
	}
	target, ok := c.version(gvk.GroupVersion())
	if !ok {
		// A manager may have written in a version that is no longer served: the field manager drops its entry.
		return nil, runtime.NewNotRegisteredErrForKind(c.kind.Names.Kind, gvk)
	}
	typed, err := c.typed(in)
	if err != nil {
		return nil, err
	}
	from := typed.GetObjectKind().GroupVersionKind().GroupVersion()
	if from == target.GroupVersion() {
		return typed, nil
	}
	hub, err := c.hub(typed, from)
	if err != nil {
		return nil, err
	}
	return stored.Convert(target, hub)
}

func (c conversions) hub(obj runtime.Object, from schema.GroupVersion) (kind.Object, error) {
	source, ok := c.version(from)
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind(c.kind.Names.Kind, from.WithKind(c.kind.Names.Kind))
	}
	if source.From == nil {
		return obj.(kind.Object), nil
	}
	hub, err := source.From(obj)
	if err != nil {
		return nil, err
	}
	hub.GetObjectKind().SetGroupVersionKind(c.kind.Hub)
	return hub, nil
}

// typed turns what the merge made, plain maps, back into the version's Go type.
func (c conversions) typed(in runtime.Object) (runtime.Object, error) {
	if lazy, ok := in.(*lazyObject); ok {
		built, err := lazy.build()
		if err != nil {
			return nil, err
		}
		in = built
	}
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	v, ok := c.version(u.GroupVersionKind().GroupVersion())
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind(c.kind.Names.Kind, u.GroupVersionKind())
	}
	out := v.New()
	if _, dynamic := out.(*unstructured.Unstructured); dynamic {
		return in, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("the merged object is no valid %s: %w", v.Kind, err)
	}
	out.GetObjectKind().SetGroupVersionKind(v.GroupVersionKind)
	return out, nil
}

// Convert implements runtime.ObjectConvertor; field managers do not call it.
func (c conversions) Convert(in, out, context any) error {
	return fmt.Errorf("converting %T into %T in place is not supported", in, out)
}

// ConvertFieldLabel implements runtime.ObjectConvertor; field managers do not call it.
func (c conversions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (c conversions) version(gv schema.GroupVersion) (*kind.Version, bool) { return c.kind.Version(gv) }
