// Package alike compares API objects and lets equal ones share memory.
//
// Most objects of a large cluster are made in numbers from few templates: the pods of one Deployment say the same in all but a name and a node. A
// [Sharer] finds that out at about the cost of reading both once, and lets the newer object have the older one's memory for what is the same.
//
// A Sharer is made once for a Go type and is safe for concurrent use. It changes the object that it is given, and never the one that this is
// compared with. Objects that share memory must not be changed in place any more.
package alike

import (
	"maps"
	"reflect"
	"slices"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sharer compares values of the struct type T.
type Sharer[T any] struct{ fields []field }

type field struct {
	offset uintptr
	same   same
	adopt  func(obj, like unsafe.Pointer)
}

// same compares two values of one type, to which it is given pointers.
type same func(a, b unsafe.Pointer) bool

// New makes a Sharer of T, a struct. The fields of T that except names are not looked at.
func New[T any](except ...string) *Sharer[T] {
	return &Sharer[T]{fields: fieldsOf(reflect.TypeFor[T](), compiler{}, except)}
}

func fieldsOf(t reflect.Type, c compiler, except []string) []field {
	c.made = map[reflect.Type]same{}
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !slices.Contains(except, f.Name) {
			out = append(out, field{f.Offset, c.compile(f.Type), adopt(f.Type)})
		}
	}
	return out
}

// Share tells whether obj and like are the same, field by field of T, and gives obj the memory of like for each field that is. An empty list or map
// is not the same as none.
func (s *Sharer[T]) Share(obj, like *T) bool {
	all := true
	for _, f := range s.fields {
		a, b := unsafe.Add(unsafe.Pointer(obj), f.offset), unsafe.Add(unsafe.Pointer(like), f.offset)
		if !f.same(a, b) {
			all = false
		} else if f.adopt != nil {
			f.adopt(a, b)
		}
	}
	return all
}

// Same tells whether a and b are the same, as Share does, and changes neither.
func (s *Sharer[T]) Same(a, b *T) bool {
	for _, f := range s.fields {
		if !f.same(unsafe.Add(unsafe.Pointer(a), f.offset), unsafe.Add(unsafe.Pointer(b), f.offset)) {
			return false
		}
	}
	return true
}

// Equal makes a comparison of values of the struct type T by what they mean, as Kubernetes' equality.Semantic does: an empty list or map means the same
// as none, and a quantity the same however it is written.
func Equal[T any](except ...string) func(a, b *T) bool {
	s := Sharer[T]{fields: fieldsOf(reflect.TypeFor[T](), compiler{loose: true}, except)}
	return s.Same
}

// EqualPart is Equal for the field of T that name says, a struct, but for those of its own fields that except names.
func EqualPart[T any](name string, except ...string) func(a, b *T) bool {
	part, ok := reflect.TypeFor[T]().FieldByName(name)
	if !ok {
		panic("alike: " + reflect.TypeFor[T]().String() + " has no field " + name)
	}
	inner := Sharer[struct{}]{fields: fieldsOf(part.Type, compiler{loose: true}, except)}
	return func(a, b *T) bool {
		x, y := unsafe.Add(unsafe.Pointer(a), part.Offset), unsafe.Add(unsafe.Pointer(b), part.Offset)
		return inner.Same((*struct{})(x), (*struct{})(y))
	}
}

// adopt is how a field of type t takes over another's memory; nil if it has none of its own.
func adopt(t reflect.Type) func(obj, like unsafe.Pointer) {
	switch t.Kind() {
	case reflect.String:
		return func(obj, like unsafe.Pointer) { *(*string)(obj) = *(*string)(like) }
	case reflect.Slice:
		return func(obj, like unsafe.Pointer) { *(*[]byte)(obj) = *(*[]byte)(like) }
	case reflect.Pointer, reflect.Map:
		return func(obj, like unsafe.Pointer) { *(*unsafe.Pointer)(obj) = *(*unsafe.Pointer)(like) }
	}
	return nil
}

// Strings gives a map the memory of one that says the same, and tells whether it does.
func Strings(obj *map[string]string, like map[string]string) bool {
	if (*obj == nil) != (like == nil) || !maps.Equal(*obj, like) {
		return false
	}
	*obj = like
	return true
}

// compiler makes comparisons, one for each type. A type that contains itself, or says more than its fields do, is left to reflection.
type compiler struct {
	loose bool // by what values mean
	made  map[reflect.Type]same
}

func (c compiler) compile(t reflect.Type) same {
	if known, ok := c.made[t]; ok {
		return known
	}
	c.made[t] = c.deep(t) // for a type within itself
	made := c.make(t)
	c.made[t] = made
	return made
}

func (c compiler) make(t reflect.Type) same {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return c.quantity
	case reflect.TypeFor[metav1.Time]():
		return func(a, b unsafe.Pointer) bool { return (*metav1.Time)(a).Equal((*metav1.Time)(b)) }
	case reflect.TypeFor[metav1.MicroTime]():
		return func(a, b unsafe.Pointer) bool { return (*metav1.MicroTime)(a).Equal((*metav1.MicroTime)(b)) }
	case reflect.TypeFor[corev1.ResourceList]():
		return c.resources
	case reflect.TypeFor[map[string]string]():
		return c.strings
	}
	switch t.Kind() {
	case reflect.Bool:
		return plain[bool]
	case reflect.Uint8:
		return plain[uint8]
	case reflect.Int32:
		return plain[int32]
	case reflect.Int64, reflect.Int:
		return plain[int64]
	case reflect.String:
		return plain[string]
	case reflect.Pointer:
		return c.pointer(t)
	case reflect.Slice:
		return c.slice(t)
	case reflect.Struct:
		return c.record(t)
	}
	return c.deep(t)
}

func plain[T comparable](a, b unsafe.Pointer) bool { return *(*T)(a) == *(*T)(b) }

func (c compiler) pointer(t reflect.Type) same {
	of := c.compile(t.Elem())
	return func(a, b unsafe.Pointer) bool {
		x, y := *(*unsafe.Pointer)(a), *(*unsafe.Pointer)(b)
		return x == y || x != nil && y != nil && of(x, y)
	}
}

func (c compiler) slice(t reflect.Type) same {
	of, size := c.compile(t.Elem()), t.Elem().Size()
	return func(a, b unsafe.Pointer) bool {
		x, y := *(*[]byte)(a), *(*[]byte)(b) // of the right length, whatever the elements
		if len(x) != len(y) || !c.loose && (x == nil) != (y == nil) {
			return false
		}
		p, q := unsafe.Pointer(unsafe.SliceData(x)), unsafe.Pointer(unsafe.SliceData(y))
		if p == q {
			return true
		}
		for i := range uintptr(len(x)) {
			if !of(unsafe.Add(p, i*size), unsafe.Add(q, i*size)) {
				return false
			}
		}
		return true
	}
}

func (c compiler) record(t reflect.Type) same {
	type part struct {
		offset uintptr
		same   same
	}
	var parts []part
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			return c.deep(t)
		}
		parts = append(parts, part{f.Offset, c.compile(f.Type)})
	}
	return func(a, b unsafe.Pointer) bool {
		for i := range parts {
			if !parts[i].same(unsafe.Add(a, parts[i].offset), unsafe.Add(b, parts[i].offset)) {
				return false
			}
		}
		return true
	}
}

func (c compiler) strings(a, b unsafe.Pointer) bool {
	x, y := *(*map[string]string)(a), *(*map[string]string)(b)
	return (c.loose || (x == nil) == (y == nil)) && maps.Equal(x, y)
}

func (c compiler) quantity(a, b unsafe.Pointer) bool {
	return c.sameQuantity((*resource.Quantity)(a), (*resource.Quantity)(b))
}

// sameQuantity: strictly, quantities are the same if they are written the same.
func (c compiler) sameQuantity(x, y *resource.Quantity) bool {
	return (c.loose || x.Format == y.Format) && x.Cmp(*y) == 0
}

func (c compiler) resources(a, b unsafe.Pointer) bool {
	x, y := *(*corev1.ResourceList)(a), *(*corev1.ResourceList)(b)
	if len(x) != len(y) || !c.loose && (x == nil) != (y == nil) {
		return false
	}
	for name, q := range x {
		other, ok := y[name]
		if !ok || !c.sameQuantity(&q, &other) {
			return false
		}
	}
	return true
}

// deep leaves a type to reflection.
func (c compiler) deep(t reflect.Type) same {
	equal := reflect.DeepEqual
	if c.loose {
		equal = equality.Semantic.DeepEqual
	}
	return func(a, b unsafe.Pointer) bool {
		return equal(reflect.NewAt(t, a).Elem().Interface(), reflect.NewAt(t, b).Elem().Interface())
	}
}
