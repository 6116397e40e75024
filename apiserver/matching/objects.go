package matching

import (
	"errors"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// Shown is the request with its objects in the form t. Objects are nil where there are none; they must not be changed.
func (r *Request) Shown(t Target) (*admission.VersionedAttributes, error) {
	if a := r.shown[t.Kind]; a != nil {
		return a, nil
	}
	object, err := r.newObject(t)
	if err != nil {
		return nil, r.convertError(t, err)
	}
	old, err := r.oldObject(t)
	if err != nil {
		return nil, r.convertError(t, err)
	}
	a := r.attributes(t, object, old)
	if r.shown == nil {
		r.shown = map[schema.GroupVersionKind]*admission.VersionedAttributes{}
	}
	r.shown[t.Kind] = a
	return a, nil
}

// Evaluated is Shown with plain maps for objects, each converted once however many expressions read it.
func (r *Request) Evaluated(t Target) (*admission.VersionedAttributes, error) {
	if a := r.evaluated[t.Kind]; a != nil {
		return a, nil
	}
	shown, err := r.Shown(t)
	if err != nil {
		return nil, err
	}
	object, err := Plain(shown.VersionedObject, t.Kind)
	if err != nil {
		return nil, r.convertError(t, err)
	}
	old, err := Plain(shown.VersionedOldObject, t.Kind)
	if err != nil {
		return nil, r.convertError(t, err)
	}
	a := r.attributes(t, object, old)
	if r.evaluated == nil {
		r.evaluated = map[schema.GroupVersionKind]*admission.VersionedAttributes{}
	}
	r.evaluated[t.Kind] = a
	return a, nil
}

// Plain is an object as maps and lists, with its type written down. Nil stays nil.
func Plain(obj runtime.Object, gvk schema.GroupVersionKind) (runtime.Object, error) {
	if obj == nil {
		return nil, nil
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

func (r *Request) attributes(t Target, object, old runtime.Object) *admission.VersionedAttributes {
	return &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, r.own.Kind, r.Namespace(), r.Name(), r.own.Resource, r.Ref.Subresource,
			admission.Operation(r.Operation), r.RequestOptions(), r.DryRun, r.User),
		VersionedObject: object, VersionedOldObject: old, VersionedKind: t.Kind,
	}
}

func (r *Request) newObject(t Target) (runtime.Object, error) {
	switch {
	case r.Body != nil:
		return r.Body, nil
	case r.Object == nil:
		return nil, nil
	}
	return r.in(t, r.Object)
}

// oldObject is nil where the request's Old is only the parent of what is posted or connected to.
func (r *Request) oldObject(t Target) (runtime.Object, error) {
	if r.Old == nil || r.Body != nil || r.Operation == admissionv1.Connect || r.Operation == admissionv1.Create {
		return nil, nil
	}
	return r.in(t, r.Old)
}

func (r *Request) in(t Target, hub kind.Object) (runtime.Object, error) {
	switch {
	case t.Kind == scaleKind && r.scaled():
		return r.scale(hub), nil
	case t.version == nil:
		return hub, nil
	}
	return stored.Convert(t.version, hub)
}

func (r *Request) scale(hub kind.Object) *autoscalingv1.Scale {
	s := r.Kind.Scale
	return &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{Kind: scaleKind.Kind, APIVersion: scaleKind.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{Name: hub.GetName(), Namespace: hub.GetNamespace(), UID: hub.GetUID(),
			ResourceVersion: hub.GetResourceVersion(), CreationTimestamp: hub.GetCreationTimestamp()},
		Spec:   autoscalingv1.ScaleSpec{Replicas: s.Replicas(hub)},
		Status: autoscalingv1.ScaleStatus{Replicas: s.StatusReplicas(hub), Selector: s.Selector(hub)},
	}
}

// Blank makes an empty object of the form t, to decode into.
func (r *Request) Blank(t Target) runtime.Object {
	var obj runtime.Object
	switch {
	case r.Body != nil:
		obj = reflect.New(reflect.TypeOf(r.Body).Elem()).Interface().(runtime.Object)
	case t.Kind == scaleKind && r.scaled():
		obj = &autoscalingv1.Scale{}
	case t.version != nil:
		obj = t.version.New()
	default:
		obj = r.Kind.New()
	}
	obj.GetObjectKind().SetGroupVersionKind(t.Kind)
	return obj
}

// Decode reads a changed object of the form t, as whoever changed it wrote it: what the schema does not have is dropped, or an error if strict.
func (r *Request) Decode(t Target, doc []byte, strict bool) (runtime.Object, error) {
	obj := r.Blank(t)
	mode := metav1.FieldValidationIgnore
	if strict {
		mode = metav1.FieldValidationStrict
	}
	unknown, err := codec.UnmarshalJSON(doc, obj, mode)
	if err != nil {
		return nil, err
	}
	if got := obj.GetObjectKind().GroupVersionKind(); got != t.Kind {
		return nil, fmt.Errorf("it is another kind of object now: %s, not %s", got, t.Kind)
	}
	if t.version != nil && t.version.Settle != nil {
		more, err := t.version.Settle(obj)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, more...)
	}
	if strict && len(unknown) > 0 {
		return nil, errors.Join(unknown...)
	}
	return obj, nil
}

// Mutable tells whether there is an object that a rule could change.
func (r *Request) Mutable() bool {
	return r.Operation != admissionv1.Delete && (r.Object != nil || r.Body != nil)
}

// Set makes obj, in the form t, the request's new object. What the request's verb does not write (identity, and status, spec or whatever else the
// subresource leaves alone) is kept as it was. obj belongs to the request afterwards.
func (r *Request) Set(t Target, obj runtime.Object) error {
	r.Changed()
	switch {
	case r.Body != nil:
		return assign(r.Body, obj)
	case t.Kind == scaleKind && r.scaled():
		scale, ok := obj.(*autoscalingv1.Scale)
		if !ok {
			return fmt.Errorf("%T is no Scale", obj)
		}
		r.Kind.Scale.SetReplicas(r.Object, scale.Spec.Replicas)
		return nil
	}
	hub, err := r.hub(t, obj)
	if err != nil {
		return err
	}
	if hub, err = r.keep(hub); err != nil {
		return err
	}
	return assign(r.Object, hub)
}

// Changed forgets what was shown: somebody has changed the request's object.
func (r *Request) Changed() { r.shown, r.evaluated = nil, nil }

func (r *Request) hub(t Target, obj runtime.Object) (kind.Object, error) {
	hub, ok := obj.(kind.Object)
	if t.version != nil && t.version.From != nil {
		var err error
		if hub, err = t.version.From(obj); err != nil {
			return nil, r.convertError(t, err)
		}
	} else if !ok {
		return nil, fmt.Errorf("%T is no object with metadata", obj)
	}
	hub.GetObjectKind().SetGroupVersionKind(r.Kind.Hub)
	if r.Kind.Default != nil {
		r.Kind.Default(hub)
	}
	return hub, nil
}

// keep restores in next, the changed object, what the request may not change.
func (r *Request) keep(next kind.Object) (kind.Object, error) {
	was := r.Object
	if next.GetNamespace() != was.GetNamespace() {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	next.SetUID(was.GetUID())
	next.SetResourceVersion(was.GetResourceVersion())
	next.SetGeneration(was.GetGeneration())
	next.SetCreationTimestamp(was.GetCreationTimestamp())
	next.SetDeletionTimestamp(was.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	if managedfields.ValidateManagedFields(next.GetManagedFields()) != nil {
		next.SetManagedFields(was.GetManagedFields())
	}
	switch sub := r.Ref.Subresource; {
	case sub == "":
		if r.Kind.CopyStatus != nil && !(r.Operation == admissionv1.Create && r.Kind.StatusOnCreate) {
			r.Kind.CopyStatus(next, was)
		}
	case sub == "status" && r.Kind.CopyStatus != nil:
		out := was.DeepCopyObject().(kind.Object)
		r.Kind.CopyStatus(out, next)
		out.SetLabels(next.GetLabels())
		out.SetAnnotations(next.GetAnnotations())
		out.SetFinalizers(next.GetFinalizers())
		out.SetManagedFields(next.GetManagedFields())
		return out, nil
	default:
		for i := range r.Kind.Subs {
			if s := &r.Kind.Subs[i]; s.Name == sub && s.Replace != nil {
				out := was.DeepCopyObject().(kind.Object)
				s.Replace(out, next)
				return out, nil
			}
		}
	}
	return next, nil
}

// assign makes dst what src is: others hold dst.
func assign(dst, src runtime.Object) error {
	to, from := reflect.ValueOf(dst), reflect.ValueOf(src)
	if to.Type() != from.Type() || to.Kind() != reflect.Pointer {
		return fmt.Errorf("%T cannot take the place of %T", src, dst)
	}
	to.Elem().Set(from.Elem())
	return nil
}
