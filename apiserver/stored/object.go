// Package stored is the form in which the API server keeps an object: the decoded hub object beside the bytes that were made of it.
//
// Guarantees: an object is encoded once per served version and form for all who read it at about the same time; get, list and every watcher
// share those bytes, which are let go some time after (see [Forget]). After [Object.Stamp] nothing about the object
// changes, so all of it is safe for concurrent use; whoever holds an Object may read what it hands out and must never write to it.
//
// The package does not know who asks, nor what the objects mean.
package stored

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// Form is one way to write an object as bytes.
type Form uint8

const (
	JSON Form = iota
	Protobuf
	// MetaJSON and MetaProtobuf are the object as a meta.k8s.io/v1 PartialObjectMetadata.
	MetaJSON
	MetaProtobuf
	// MetaBetaJSON and MetaBetaProtobuf are the same in meta.k8s.io/v1beta1.
	MetaBetaJSON
	MetaBetaProtobuf
	// CBOR is the object in CBOR, MetaCBOR and MetaBetaCBOR its metadata.
	CBOR
	MetaCBOR
	MetaBetaCBOR
)

// Binary tells whether the form is a protobuf one.
func (f Form) Binary() bool { return f == Protobuf || f == MetaProtobuf || f == MetaBetaProtobuf }

// Object is an immutable API object with its encodings.
type Object struct {
	kind     *kind.Kind
	object   kind.Object
	revision store.Revision
	labels   Sketch
	size     atomic.Int32
	encoded  atomic.Pointer[encoding]
	sealed   *sealed // nil: plain on disk
}

// encoding is one cached form; the list of them only grows at its head. The bytes are held weakly: they last as long as somebody reads them, and
// else until a garbage collection after they are no longer among the recent ones. So what is read often is encoded once, and what nobody reads costs
// no memory.
type encoding struct {
	version *kind.Version
	form    Form
	next    *encoding
	mu      sync.Mutex
	bytes   weak.Pointer[Bytes]
}

// New wraps obj, of k's hub type, which from now on belongs to the wrapper. Type information is filled in.
func New(k *kind.Kind, obj kind.Object) *Object {
	if !k.Dynamic {
		setType(obj, k.Hub)
	}
	o := &Object{kind: k, object: obj, labels: sketch(obj.GetLabels())}
	o.revision, _ = strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	return o
}

// Stamp sets the object's revision. It is for the store's Write.Make alone, before anybody else sees the object.
func (o *Object) Stamp(rev store.Revision) *Object {
	o.revision = rev
	o.object.SetResourceVersion(strconv.FormatUint(rev, 10))
	return o
}

// Deleted returns the object's last state as watchers of a deletion see it: the same, at the deletion's revision.
func (o *Object) Deleted(rev store.Revision) *Object {
	last := &Object{kind: o.kind, object: Shallow(o.object), labels: o.labels}
	last.size.Store(o.size.Load())
	return last.Stamp(rev)
}

// Kind is the object's kind.
func (o *Object) Kind() *kind.Kind { return o.kind }

// Hub is the object in its hub version: shared, never to be changed.
func (o *Object) Hub() kind.Object { return o.object }

// Revision is the write that made this state.
func (o *Object) Revision() store.Revision { return o.revision }

// In returns the object in a served version; in the hub version that is the shared object itself.
func (o *Object) In(v *kind.Version) (runtime.Object, error) {
	if v.To == nil || o.kind.Dynamic && o.own() == v {
		return o.object, nil
	}
	return Convert(v, o.object)
}

// own is the version of its kind that the object itself is in, or nil if the kind has no such version any more.
func (o *Object) own() *kind.Version {
	if !o.kind.Dynamic {
		return &o.kind.Versions[0]
	}
	v, _ := o.kind.Version(o.object.GetObjectKind().GroupVersionKind().GroupVersion())
	return v
}

// Convert turns a hub object into v, with type information.
func Convert(v *kind.Version, hub kind.Object) (runtime.Object, error) {
	if v.To == nil {
		return hub, nil
	}
	out, err := v.To(hub)
	if err != nil {
		return nil, fmt.Errorf("convert %s %q to %s: %w", hub.GetObjectKind().GroupVersionKind().Kind, hub.GetName(), v.GroupVersion(), err)
	}
	setType(out, v.GroupVersionKind)
	return out, nil
}

// Encode implements store.Value with the bytes of the hub version, sealed if the resource is encrypted.
func (o *Object) Encode() ([]byte, error) {
	switch s := o.sealed; {
	case s == nil:
		return o.EncodeFresh()
	case s.fault != nil:
		return s.raw, nil
	default:
		plain, err := o.EncodeFresh()
		if err != nil {
			return nil, err
		}
		return s.close(plain)
	}
}

// EncodeFresh gives the bytes of the hub version as they are: protobuf where the type has it, else JSON. It implements store.Fresh.
func (o *Object) EncodeFresh() ([]byte, error) {
	form := JSON
	if HasProtobuf(o.object) {
		form = Protobuf
	}
	v := o.own()
	if v == nil {
		b, err := EncodeJSON(o.object, o.object.GetObjectKind().GroupVersionKind())
		return b.Whole, err
	}
	b, err := o.encode(v, form) // for the disk, once: not worth keeping
	return b.Whole, err
}

// AppendEncode implements store.Appender.
func (o *Object) AppendEncode(dst []byte) ([]byte, error) {
	if v := o.own(); v != nil && v.To == nil && o.sealed == nil && HasProtobuf(o.object) {
		dst, _, err := appendProtobuf(dst, o.object, v.GroupVersionKind)
		return dst, err
	}
	data, err := o.Encode()
	return append(dst, data...), err
}

// Size implements store.Value. The number is settled by the first call, so that accounts which add it also subtract it.
func (o *Object) Size() int {
	if n := o.size.Load(); n > 0 {
		return int(n)
	}
	n := 1024
	if p, ok := o.object.(message); ok {
		n = 2*p.Size() + 256
	} else if u, ok := o.object.(*unstructured.Unstructured); ok {
		n = weigh(u.Object)
	}
	o.size.CompareAndSwap(0, int32(n))
	return int(o.size.Load())
}

// weigh estimates the memory of decoded JSON.
func weigh(value any) int {
	switch x := value.(type) {
	case map[string]any:
		n := 64
		for k, v := range x {
			n += len(k) + 32 + weigh(v)
		}
		return n
	case []any:
		n := 32
		for _, v := range x {
			n += weigh(v)
		}
		return n
	case string:
		return len(x) + 16
	}
	return 16
}

// As returns the object's bytes in a version and form, encoding them if nobody has lately.
func (o *Object) As(v *kind.Version, form Form) (Bytes, error) {
	e := o.slot(v, form)
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.bytes.Value(); b != nil {
		return *b, nil
	}
	b, err := o.encode(v, form)
	if err != nil {
		return Bytes{}, err
	}
	kept := &b
	e.bytes = weak.Make(kept)
	recent.add(kept)
	return *kept, nil
}

func (o *Object) slot(v *kind.Version, form Form) *encoding {
	var fresh *encoding
	for {
		head := o.encoded.Load()
		for e := head; e != nil; e = e.next {
			if e.version == v && e.form == form {
				return e
			}
		}
		if fresh == nil {
			fresh = &encoding{version: v, form: form}
		}
		fresh.next = head
		if o.encoded.CompareAndSwap(head, fresh) {
			return fresh
		}
	}
}

func (o *Object) encode(v *kind.Version, form Form) (Bytes, error) {
	switch form {
	case MetaJSON:
		return EncodeJSON(Partial(o.object, "v1"), PartialKind("v1"))
	case MetaProtobuf:
		return EncodeProtobuf(Partial(o.object, "v1"), PartialKind("v1"))
	case MetaBetaJSON:
		return EncodeJSON(Partial(o.object, "v1beta1"), PartialKind("v1beta1"))
	case MetaBetaProtobuf:
		return EncodeProtobuf(Partial(o.object, "v1beta1"), PartialKind("v1beta1"))
	}
	switch form {
	case MetaCBOR:
		return EncodeCBOR(Partial(o.object, "v1"), PartialKind("v1"))
	case MetaBetaCBOR:
		return EncodeCBOR(Partial(o.object, "v1beta1"), PartialKind("v1beta1"))
	}
	obj, err := o.In(v)
	if err != nil {
		return Bytes{}, err
	}
	switch form {
	case JSON:
		return EncodeJSON(obj, v.GroupVersionKind)
	case CBOR:
		return EncodeCBOR(obj, v.GroupVersionKind)
	}
	return EncodeProtobuf(obj, v.GroupVersionKind)
}

// partialKind is the kind of metadata alone.
const partialKind = "PartialObjectMetadata"

// PartialKind is what metadata alone is served as in a version of meta.k8s.io.
func PartialKind(metaVersion string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: metaVersion, Kind: partialKind}
}

// Partial is an object's metadata alone, in a version of meta.k8s.io; it shares memory with obj.
func Partial(obj kind.Object, metaVersion string) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: partialKind, APIVersion: metav1.GroupName + "/" + metaVersion}}
	if m := MetaOf(obj); m != nil {
		p.ObjectMeta = *m
		return p
	}
	p.ObjectMeta = copyMeta(obj)
	return p
}

// MetaOf returns obj's own ObjectMeta, or nil if its type keeps metadata otherwise.
func MetaOf(obj metav1.Object) *metav1.ObjectMeta {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if m, ok := a.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return m
		}
	}
	return nil
}

func copyMeta(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: o.GetName(), GenerateName: o.GetGenerateName(), Namespace: o.GetNamespace(), SelfLink: o.GetSelfLink(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(), CreationTimestamp: o.GetCreationTimestamp(),
		DeletionTimestamp: o.GetDeletionTimestamp(), DeletionGracePeriodSeconds: o.GetDeletionGracePeriodSeconds(), Labels: o.GetLabels(),
		Annotations: o.GetAnnotations(), OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(), ManagedFields: o.GetManagedFields(),
	}
}

// setType fills in an object's type information, without allocating when it is right already.
func setType(obj runtime.Object, gvk schema.GroupVersionKind) {
	if t, ok := obj.GetObjectKind().(*metav1.TypeMeta); ok {
		if t.Kind == gvk.Kind && t.APIVersion != "" && schema.FromAPIVersionAndKind(t.APIVersion, t.Kind) == gvk {
			return
		}
	} else if obj.GetObjectKind().GroupVersionKind() == gvk {
		return
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
}

// Copy is a deep copy of obj, but for its managedFields' sets and times, which nobody changes: they are a large part of many objects, and one set is
// shared by all objects of a shape.
func Copy(obj kind.Object) kind.Object {
	if MetaOf(obj) == nil || len(obj.GetManagedFields()) == 0 {
		return obj.DeepCopyObject().(kind.Object)
	}
	bare := Shallow(obj)
	bare.SetManagedFields(nil)
	out := bare.DeepCopyObject().(kind.Object)
	out.SetManagedFields(slices.Clone(obj.GetManagedFields()))
	return out
}

// Shallow copies the top level of obj and its metadata's, whose fields can be set; everything below stays shared and must not be changed. Objects
// that keep their fields in a map (custom resources) are copied as a whole.
func Shallow(obj kind.Object) kind.Object {
	if MetaOf(obj) == nil {
		return obj.DeepCopyObject().(kind.Object)
	}
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(kind.Object)
}
