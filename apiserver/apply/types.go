package apply

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Types turns objects into typed values by the schema of their kind: that of client-go's apply configurations, which is generated from the
// same source as the API's own. A type without a schema there is merged with every list and map deduced from its value.
type Types struct {
	scheme  *runtime.Scheme
	deduced managedfields.TypeConverter

	mu    sync.RWMutex
	known managedfields.TypeConverter
	forms map[schema.GroupVersionKind]form
}

// form is how values of one type are read; without a schema it is deduced.
type form struct {
	schema *smdschema.Schema
	ref    smdschema.TypeRef
}

// NewTypes serves the Go types of scheme.
func NewTypes(scheme *runtime.Scheme) *Types {
	return &Types{scheme: scheme, deduced: managedfields.NewDeducedTypeConverter(), forms: map[schema.GroupVersionKind]form{}}
}

// Load reads the schemas, which takes a moment; without it the first write does.
func (t *Types) Load() { t.converter() }

func (t *Types) converter() managedfields.TypeConverter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = managedfields.NewSchemeTypeConverter(t.scheme, builtin())
	}
	return t.known
}

// ObjectToTyped implements managedfields.TypeConverter. An object of its Go type is read where it lies: that it fits its schema is known
// from its type, so only what comes as plain maps, or must be free of duplicates, is validated.
func (t *Types) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	f := t.form(gvk)
	if f.schema == nil {
		return t.deduced.ObjectToTyped(obj, opts...)
	}
	if _, plain := obj.(*unstructured.Unstructured); plain || len(opts) == 0 {
		return t.converter().ObjectToTyped(obj, opts...)
	}
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, err
	}
	return typed.AsTypedUnvalidated(v, f.schema, f.ref), nil
}

// TypedToObject implements managedfields.TypeConverter. Most callers only want to know the object's type, so it is built when asked for more.
func (t *Types) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	return &lazyObject{types: t, value: v}, nil
}

func (t *Types) form(gvk schema.GroupVersionKind) form {
	t.mu.RLock()
	f, seen := t.forms[gvk]
	t.mu.RUnlock()
	if seen {
		return f
	}
	f = t.findForm(gvk)
	t.mu.Lock()
	t.forms[gvk] = f
	t.mu.Unlock()
	return f
}

// findForm tries the schema on an empty object.
func (t *Types) findForm(gvk schema.GroupVersionKind) form {
	if !t.scheme.Recognizes(gvk) {
		return form{}
	}
	obj, err := t.scheme.New(gvk)
	if err != nil {
		return form{}
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	v, err := t.converter().ObjectToTyped(obj)
	if err != nil {
		return form{}
	}
	return form{schema: v.Schema(), ref: v.TypeRef()}
}

// lazyObject is a typed value in the guise of an object.
type lazyObject struct {
	types *Types
	value *typed.TypedValue
}

// GetObjectKind implements runtime.Object.
func (o *lazyObject) GetObjectKind() schema.ObjectKind {
	v := o.value.AsValue()
	if !v.IsMap() {
		return schema.EmptyObjectKind
	}
	m := v.AsMap()
	kind := &runtime.TypeMeta{APIVersion: text(m, "apiVersion"), Kind: text(m, "kind")}
	return kind.GetObjectKind()
}

func text(m value.Map, key string) string {
	if v, ok := m.Get(key); ok && v.IsString() {
		return v.AsString()
	}
	return ""
}

// DeepCopyObject implements runtime.Object.
func (o *lazyObject) DeepCopyObject() runtime.Object {
	obj, err := o.build()
	if err != nil {
		return &unstructured.Unstructured{}
	}
	return obj
}

func (o *lazyObject) build() (runtime.Object, error) { return o.types.deduced.TypedToObject(o.value) }
