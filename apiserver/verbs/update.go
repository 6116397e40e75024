package verbs

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// Edit is one change of one object: an update, a patch or an apply, of the object or of a subresource that is part of it.
type Edit struct {
	// Build makes the new state from the newest, which is nil if there is none. What it returns is the edit's to change. It is called again
	// when another writer came between. The result's resourceVersion, if set, must be that of the newest state.
	Build func(old *stored.Object) (kind.Object, error)
	// Sub is the subresource that is written: "", "status", or Replace's.
	Sub     string
	Replace *kind.ErasedSub
	// Options is the request's UpdateOptions or PatchOptions.
	Options runtime.Object
	DryRun  bool
	Manager string
	// Applied says that Build settles managedFields itself.
	Applied bool
	// Create, if not nil, allows the edit to make the object: it asks whether the user may.
	Create func(ctx context.Context) error
	// separated says that what Build made differs from the newest state only in what Sub may change.
	separated bool
	// Internal edits are the server's own: the rules for users (admission, Validate, status separation, field ownership) do not apply.
	Internal bool
}

// Edit carries out a change. created tells that the object was not there before.
func (r *Resource) Edit(ctx context.Context, rq *Request, e *Edit) (o *stored.Object, created bool, err error) {
	key := r.key(rq.Ref.Namespace, rq.Ref.Name)
	for {
		item, exists := r.table.Proposed(key)
		if !exists {
			o, created, err := r.editAbsent(ctx, rq, e)
			if _, raced := r.table.Proposed(key); raced && apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				continue // somebody else made it meanwhile: then it is changed
			}
			return o, created, err
		}
		o, err := r.attempt(ctx, rq, e, item)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) {
			return o, false, err
		}
		if ctx.Err() != nil {
			return nil, false, apierrors.NewTimeoutError(fmt.Sprintf("%s %q changes faster than this request could", rq.named(), rq.Ref.Name), 1)
		}
	}
}

func (r *Resource) editAbsent(ctx context.Context, rq *Request, e *Edit) (*stored.Object, bool, error) {
	if e.Create == nil || e.Sub != "" {
		return nil, false, apierrors.NewNotFound(rq.named(), rq.Ref.Name)
	}
	obj, err := e.Build(nil)
	if err != nil {
		return nil, false, err
	}
	if err := nameMatches(rq, obj); err != nil {
		return nil, false, err
	}
	if uid := obj.GetUID(); uid != "" && e.Applied {
		return nil, false, apierrors.NewConflict(rq.named(), rq.Ref.Name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	} else if uid != "" {
		return nil, false, uidConflict(rq, uid, "")
	}
	if err := e.Create(ctx); err != nil {
		return nil, false, err
	}
	obj.SetResourceVersion("")
	opts := &metav1.CreateOptions{FieldManager: e.Manager}
	if e.DryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	o, err := r.create(ctx, rq, obj, opts, e.Applied)
	return o, err == nil, err
}

// attempt tries the edit on one state. A *store.ConflictError says that the state has changed meanwhile.
func (r *Resource) attempt(ctx context.Context, rq *Request, e *Edit, item store.Item) (*stored.Object, error) {
	if err := r.readable(item); err != nil {
		return nil, err
	}
	old, err := r.renew(item)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	obj, err := e.Build(old)
	if err != nil {
		return nil, err
	}
	rq.Trace.Mark("build")
	if obj == nil { // an apply that changes nothing
		if r.stale(item) && !e.DryRun {
			return r.rewrite(ctx, rq, item)
		}
		return r.same(ctx, item)
	}
	if err := r.fits(ctx, rq, obj, old.Hub(), item.Revision); err != nil {
		return nil, err
	}
	r.inherit(obj, old.Hub())
	obj = r.separate(rq, e, obj, old.Hub())
	if !e.Internal {
		dedupeOwners(rq, obj)
	}
	if !e.Applied && !e.Internal {
		if obj, err = r.own(old.Hub(), obj, rq, e.Sub, rq.manager(e.Manager)); err != nil {
			return nil, err
		}
	}
	rq.Trace.Mark("own")
	a := r.admission(rq, admissionv1.Update, obj, old.Hub(), nil, e.Options, e.DryRun)
	if !e.Internal {
		if err := r.mutate(ctx, rq, a); err != nil {
			return nil, err
		}
	}
	if err := r.judgeChanged(ctx, rq, e, a); err != nil {
		return nil, err
	}
	return r.replace(ctx, rq, a.Object, item, e.DryRun)
}

// renew is a stored state in the hub version of now. Only a kind without a Go type can have stored it in another.
func (r *Resource) renew(item store.Item) (*stored.Object, error) {
	o := item.Value.(*stored.Object)
	if !r.Kind.Dynamic || o.Kind() == r.Kind && o.Hub().GetObjectKind().GroupVersionKind() == r.Kind.Hub {
		return o, nil
	}
	obj, err := stored.Convert(&r.Kind.Versions[0], o.Hub())
	if err != nil {
		return nil, err
	}
	return stored.New(r.Kind, obj.(kind.Object)), nil
}

// same answers with a state that was found, once nothing can undo it.
func (r *Resource) same(ctx context.Context, item store.Item) (*stored.Object, error) {
	r.settle(ctx, item.Revision)
	if now, ok := r.table.Get(item.Key); ok {
		return now.Value.(*stored.Object), nil
	}
	return nil, &store.ConflictError{Table: r.table.Name(), Key: item.Key, Expect: store.At(item.Revision)}
}

// fits checks that the new state is of the object in the path, and of the state that the client knew.
func (r *Resource) fits(ctx context.Context, rq *Request, obj, old kind.Object, rev store.Revision) error {
	if err := nameMatches(rq, obj); err != nil {
		return err
	}
	if err := r.place(rq, obj); err != nil {
		return err
	}
	if uid := obj.GetUID(); uid != "" && uid != old.GetUID() {
		r.settle(ctx, rev)
		return uidConflict(rq, uid, old.GetUID())
	}
	switch rv := obj.GetResourceVersion(); {
	case rv == old.GetResourceVersion():
		return nil
	case rv == "" || rv == "0":
		if r.Kind.RequireVersion {
			return apierrors.NewInvalid(r.Kind.Hub.GroupKind(), rq.Ref.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")})
		}
		obj.SetResourceVersion(old.GetResourceVersion())
		return nil
	default:
		r.settle(ctx, rev) // so that the client's next read shows what it lost to
		return conflictError(rq)
	}
}

func conflictError(rq *Request) error {
	return apierrors.NewConflict(rq.named(), rq.Ref.Name,
		errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

func nameMatches(rq *Request, obj kind.Object) error {
	switch obj.GetName() {
	case rq.Ref.Name:
	case "":
		obj.SetName(rq.Ref.Name)
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), rq.Ref.Name))
	}
	return nil
}

func uidConflict(rq *Request, want, have types.UID) error {
	return apierrors.NewConflict(rq.named(), rq.Ref.Name,
		fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", want, have))
}

// separate keeps of obj what the edit's subresource may change, and takes the rest from old.
func (r *Resource) separate(rq *Request, e *Edit, obj, old kind.Object) kind.Object {
	switch {
	case e.Internal || e.separated:
		return obj
	case e.Sub == "":
		if r.Kind.CopyStatus != nil && !rq.Version.NoStatus {
			r.Kind.CopyStatus(obj, old)
		}
		return obj
	case e.Replace != nil:
		next := stored.Copy(old)
		e.Replace.Replace(next, obj)
		next.SetManagedFields(obj.GetManagedFields())
		return next
	case e.Sub == "status":
		// What a status cannot change is shared with the stored state: nothing after this writes to it, and comparing it is free.
		next := stored.Shallow(old)
		r.Kind.MoveStatus(next, obj)
		next.SetLabels(obj.GetLabels())
		next.SetAnnotations(obj.GetAnnotations())
		next.SetFinalizers(obj.GetFinalizers())
		next.SetManagedFields(obj.GetManagedFields())
		return next
	}
	return obj
}

// judgeChanged settles and validates the new state.
func (r *Resource) judgeChanged(ctx context.Context, rq *Request, e *Edit, a *kind.AdmissionRequest) error {
	obj, old := a.Object, a.Old
	prepare := r.Kind.Prepare
	validate := func(obj, old kind.Object) field.ErrorList { return r.check(rq, obj, old) }
	switch {
	case e.Internal:
		prepare, validate = nil, nil
	case e.Replace != nil:
		prepare, validate = nil, e.Replace.Validate
	case e.Sub == "status":
		prepare, validate = r.Kind.PrepareStatus, r.Kind.ValidateStatus
		if rq.Version.ValidateStatus != nil {
			validate = rq.Version.ValidateStatus
		}
	}
	if prepare != nil {
		prepare(obj, old)
	}
	r.round(obj)
	if r.Kind.Share != nil && e.Sub == "" && !e.Internal {
		r.Kind.Share(obj, old) // what did not change is also compared in no time
	}
	r.count(obj, old)
	errs := r.validateMetaUpdate(obj, old)
	if validate != nil {
		errs = append(errs, validate(obj, old)...)
	}
	rq.Trace.Mark("validate")
	if len(errs) > 0 {
		return Invalid(r.Kind.Hub.GroupKind(), obj.GetName(), errs)
	}
	if e.Internal {
		return nil
	}
	if e.Sub == "" {
		r.warn(rq, obj, old)
	}
	return r.admit(ctx, rq, a)
}

// replace commits a judged new state; one that was only waiting for its last finalizer goes instead.
func (r *Resource) replace(ctx context.Context, rq *Request, obj kind.Object, item store.Item, dry bool) (*stored.Object, error) {
	old := item.Value.(*stored.Object).Hub()
	if finished(r.Kind, obj) {
		last := stored.New(r.Kind, obj)
		return last, r.remove(ctx, rq, item, last, dry)
	}
	if unchanged(r.Kind, obj, old) && !r.stale(item) {
		return r.same(ctx, item)
	}
	settle, err := r.claim(obj, old, dry)
	if err != nil {
		return nil, err
	}
	value := stored.New(r.Kind, obj)
	if dry {
		return value, nil
	}
	attending, err := r.attend(obj, old)
	if err != nil {
		settle(false)
		return nil, apierrors.NewInternalError(err)
	}
	err = r.commit(ctx, rq, store.Write{Key: item.Key, Expect: store.At(item.Revision), Make: func(rev store.Revision) store.Value { return value.Stamp(rev) }}, attending...)
	settle(err == nil)
	if err != nil {
		return nil, err
	}
	return value, nil
}

// finished tells that an object is marked deleted and nothing holds it any more: no finalizer, no grace, nothing of its kind's own.
func finished(k *kind.Kind, obj kind.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	grace := obj.GetDeletionGracePeriodSeconds()
	return (grace == nil || *grace == 0) && (k.KeepDeleted == nil || !k.KeepDeleted(obj))
}

// noName refuses an object that does not say its own name, though the URL does.
func noName(rq *Request) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", rq.Ref.Name))
}

// Update replaces an object, or a subresource that is part of it, by obj (hub version, defaulted), which now belongs to the store.
func (r *Resource) Update(ctx context.Context, rq *Request, obj kind.Object, opts *metav1.UpdateOptions, mayCreate func(context.Context) error) (*stored.Object, bool, error) {
	if obj.GetName() == "" {
		return nil, false, noName(rq)
	}
	if err := nameMatches(rq, obj); err != nil {
		return nil, false, err
	}
	e := &Edit{Sub: rq.Ref.Subresource, Replace: r.replaceSub(rq.Ref.Subresource), Options: opts, DryRun: dryRun(opts.DryRun), Manager: opts.FieldManager}
	if r.Kind.CreateOnUpdate {
		e.Create = mayCreate
	}
	// The first attempt takes obj itself; should it lose a race, the next needs it unspoilt. A client that names a resourceVersion has
	// one attempt only, so that nothing is copied for it.
	var pristine kind.Object
	if rv := obj.GetResourceVersion(); rv == "" || rv == "0" {
		pristine = stored.Copy(obj)
	}
	first := true
	e.Build = func(*stored.Object) (kind.Object, error) {
		if first {
			first = false
			return obj, nil
		}
		if pristine == nil {
			return nil, conflictError(rq)
		}
		return stored.Copy(pristine), nil
	}
	return r.Edit(ctx, rq, e)
}

func (r *Resource) replaceSub(name string) *kind.ErasedSub {
	for i := range r.Kind.Subs {
		if r.Kind.Subs[i].Name == name && r.Kind.Subs[i].Replace != nil {
			return &r.Kind.Subs[i]
		}
	}
	return nil
}
