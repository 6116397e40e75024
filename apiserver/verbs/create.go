package verbs

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// nameAttempts is how many generated names are tried before giving up, as Kubernetes.
const nameAttempts = 8

// Create adds an object of the hub version, which now belongs to the store. A virtual kind answers instead.
func (r *Resource) Create(ctx context.Context, rq *Request, obj kind.Object, opts *metav1.CreateOptions) (*stored.Object, error) {
	if r.Kind.Virtual {
		return r.answer(ctx, rq, obj, opts)
	}
	return r.create(ctx, rq, obj, opts, false)
}

// create adds an object. applied says that its managedFields are settled. Mutating admission sees it as Kubernetes' does: it has no identity yet, and
// no name if that is to be generated.
func (r *Resource) create(ctx context.Context, rq *Request, obj kind.Object, opts *metav1.CreateOptions, applied bool) (*stored.Object, error) {
	named := *rq
	named.Posted = rq.Ref.Name == ""
	named.Ref.Name = obj.GetName()
	rq = &named
	if err := r.place(rq, obj); err != nil {
		return nil, err
	}
	unborn(obj)
	dedupeOwners(rq, obj)
	if r.Kind.ResetStatus != nil && !r.Kind.StatusOnCreate && !rq.Version.NoStatus {
		r.Kind.ResetStatus(obj)
	}
	if !applied {
		var err error
		if obj, err = r.own(r.empty(), obj, rq, "", rq.manager(opts.FieldManager)); err != nil {
			return nil, err
		}
	}
	rq.Trace.Mark("own")
	a := r.admission(rq, admissionv1.Create, obj, nil, nil, opts, dryRun(opts.DryRun))
	if err := r.mutate(ctx, rq, a); err != nil {
		return nil, err
	}
	dedupeOwners(rq, a.Object)
	if a.Object.GetName() != "" || a.Object.GetGenerateName() == "" {
		return r.add(ctx, rq, a)
	}
	pristine := a.Object
	for attempt := 1; ; attempt++ {
		a.Object = stored.Copy(pristine)
		a.Object.SetName(generateName(a.Object.GetGenerateName()))
		out, err := r.add(ctx, rq, a)
		if !apierrors.IsAlreadyExists(err) || attempt == nameAttempts {
			if apierrors.IsAlreadyExists(err) {
				return nil, apierrors.NewGenerateNameConflict(rq.named(), a.Object.GetName(), 1)
			}
			return out, err
		}
	}
}

// add gives a mutated object its identity, judges it and puts it into the store.
func (r *Resource) add(ctx context.Context, rq *Request, a *kind.AdmissionRequest) (*stored.Object, error) {
	r.born(a.Object)
	rq.Ref.Name, a.Ref.Name = a.Object.GetName(), a.Object.GetName()
	if err := r.judgeNew(ctx, rq, a); err != nil {
		return nil, err
	}
	return r.insert(ctx, rq, a.Object, a.DryRun)
}

// judgeNew settles and validates a new object.
func (r *Resource) judgeNew(ctx context.Context, rq *Request, a *kind.AdmissionRequest) error {
	obj := a.Object
	if r.Kind.Prepare != nil {
		r.Kind.Prepare(obj, nil)
	}
	r.round(obj)
	judged := r.templates.share(r.Kind, obj) && rq.Version.Validate == nil
	errs := r.validateMeta(obj)
	if !judged {
		errs = append(errs, r.check(rq, obj, nil)...)
	}
	rq.Trace.Mark("validate")
	if len(errs) > 0 {
		return Invalid(r.Kind.Hub.GroupKind(), obj.GetName(), errs)
	}
	if !judged && r.warn(rq, obj, nil) == 0 {
		r.templates.keep(r.Kind, obj)
	}
	return r.admit(ctx, rq, a)
}

// warn tells the client what the kind warns of; it returns how much that is.
func (r *Resource) warn(rq *Request, obj, old kind.Object) int {
	if r.Kind.Warn == nil {
		return 0
	}
	texts := r.Kind.Warn(obj, old)
	for _, text := range texts {
		rq.Warn(text)
	}
	return len(texts)
}

// check validates a whole object by the rules of its kind, then by those of the version that the request came through.
func (r *Resource) check(rq *Request, obj, old kind.Object) field.ErrorList {
	var errs field.ErrorList
	if r.Kind.Validate != nil {
		errs = r.Kind.Validate(obj, old)
	}
	if rq.Version.Validate != nil {
		errs = append(errs, rq.Version.Validate(obj, old)...)
	}
	return errs
}

// insert claims and commits a judged new object.
func (r *Resource) insert(ctx context.Context, rq *Request, obj kind.Object, dry bool) (*stored.Object, error) {
	if !dry && obj.GetResourceVersion() != "" { // a rule of storage: a dry run, which stores nothing, is not held to it
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	key := r.key(obj.GetNamespace(), obj.GetName())
	if item, exists := r.table.Proposed(key); exists {
		return nil, r.alreadyExists(ctx, rq, item)
	}
	settle, err := r.claim(obj, nil, dry)
	if err != nil {
		return nil, err
	}
	value := stored.New(r.Kind, obj)
	if dry {
		return value, nil
	}
	attending, err := r.attend(obj, nil)
	if err != nil {
		settle(false)
		return nil, apierrors.NewInternalError(err)
	}
	err = r.commit(ctx, rq, store.Write{Key: key, Expect: store.Absent(), Make: func(rev store.Revision) store.Value { return value.Stamp(rev) }}, attending...)
	settle(err == nil)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		return nil, r.alreadyExists(ctx, rq, conflict.Current)
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

func (r *Resource) alreadyExists(ctx context.Context, rq *Request, item store.Item) error {
	r.settle(ctx, item.Revision)
	return apierrors.NewAlreadyExists(rq.named(), rq.Ref.Name)
}

// empty is an object of the hub type with nothing but its type.
func (r *Resource) empty() kind.Object {
	obj := r.Kind.New()
	obj.GetObjectKind().SetGroupVersionKind(r.Kind.Hub)
	return obj
}

// own records in obj's managedFields what manager changed of old, which may be an empty object.
func (r *Resource) own(old, obj kind.Object, rq *Request, sub, manager string) (kind.Object, error) {
	out, err := r.fields.Update(old, obj, rq.Version, sub, manager)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out, nil
}

// answer runs a virtual kind: nothing is stored.
func (r *Resource) answer(ctx context.Context, rq *Request, obj kind.Object, opts *metav1.CreateOptions) (*stored.Object, error) {
	if err := r.place(rq, obj); err != nil {
		return nil, err
	}
	a := r.admission(rq, admissionv1.Create, obj, nil, nil, opts, dryRun(opts.DryRun))
	if err := r.mutate(ctx, rq, a); err != nil {
		return nil, err
	}
	if errs := r.check(rq, obj, nil); len(errs) > 0 {
		return nil, Invalid(r.Kind.Hub.GroupKind(), obj.GetName(), errs)
	}
	if err := r.admit(ctx, rq, a); err != nil {
		return nil, err
	}
	if a.DryRun {
		ctx = kind.WithDryRun(ctx)
	}
	out, err := r.Kind.Answer(ctx, r.Env, obj)
	if err != nil {
		return nil, err
	}
	if out == nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s gave no answer", r.Kind.Resource()))
	}
	return stored.New(r.Kind, out), nil
}

// CreateSub posts body to a subresource of a stored object (a binding, an eviction, a token request).
func (r *Resource) CreateSub(ctx context.Context, rq *Request, sub *kind.ErasedSub, body runtime.Object, opts *metav1.CreateOptions) (runtime.Object, error) {
	parent, err := r.Get(ctx, rq, nil)
	if err != nil {
		return nil, err
	}
	if err := r.placeBody(rq, sub, body); err != nil {
		return nil, err
	}
	a := r.admission(rq, admissionv1.Create, nil, parent.Hub(), body, opts, dryRun(opts.DryRun))
	if err := r.mutate(ctx, rq, a); err != nil {
		return nil, err
	}
	if err := r.admit(ctx, rq, a); err != nil {
		return nil, err
	}
	return sub.Create(ctx, r.Env, parent.Hub(), body, *opts)
}

// placeBody makes a posted body speak of the object in the path.
func (r *Resource) placeBody(rq *Request, sub *kind.ErasedSub, body runtime.Object) error {
	m, ok := body.(metav1.Object)
	if !ok {
		return nil
	}
	switch {
	case !sub.BodyNamed && m.GetName() != "" && m.GetName() != rq.Ref.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), rq.Ref.Name))
	case m.GetNamespace() != "" && m.GetNamespace() != rq.Ref.Namespace:
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the URL (%s)", m.GetNamespace(), rq.Ref.Namespace))
	}
	if !sub.BodyNamed {
		m.SetName(rq.Ref.Name)
	}
	m.SetNamespace(rq.Ref.Namespace)
	return nil
}
