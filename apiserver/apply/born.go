package apply

import (
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// shapes holds buffers in which shapes are written.
var shapes = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// objectShaper writes the shape of a kind's new objects. nil: it is not known.
type objectShaper []part

// newObjectShaper leaves out what a creator never owns: the type, managedFields, and the field unowned.
func newObjectShaper(t reflect.Type, unowned string) objectShaper {
	if t == nil {
		return nil
	}
	out := objectShaper{}
	for i := range t.NumField() {
		f := t.Field(i)
		of := newShaper(f.Type)
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
			continue
		case f.Type == reflect.TypeFor[metav1.ObjectMeta]():
			of = metadata()
		case unowned != "" && jsonName(f) == unowned:
			continue
		}
		if of == nil || !f.IsExported() {
			return nil
		}
		out = append(out, part{index: i, of: of})
	}
	return out
}

// metadata shapes ObjectMeta without managedFields, whose type has no shape.
func metadata() shaper {
	t := reflect.TypeFor[metav1.ObjectMeta]()
	var out record
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != "ManagedFields" {
			out = append(out, part{index: i, of: newShaper(f.Type)})
		}
	}
	return out
}

// shapeOf appends the shape of a new object to dst. false: it is not known, or live is not the empty object that a creation starts from.
func (m *Managers) shapeOf(dst []byte, live, obj kind.Object) ([]byte, bool) {
	s := m.shaper()
	if s == nil || stored.MetaOf(live) == nil || reflect.TypeOf(live) != reflect.TypeOf(obj) {
		return dst, false
	}
	was, now := reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem()
	for _, p := range s {
		if !was.Field(p.index).IsZero() {
			return dst, false
		}
		dst = p.of.shape(dst, now.Field(p.index), false)
	}
	return dst, len(dst) <= maxSetBytes
}
