package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

func checkDeleteOptions(opts *metav1.DeleteOptions) error {
	if errs := metav1validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("DeleteOptions").GroupKind(), "", errs)
	}
	return nil
}

// Delete removes an object, or marks it deleted if something must happen first: a grace period, finalizers, dependents. removed tells
// which; the object returned is its last or its marked state.
func (r *Resource) Delete(ctx context.Context, rq *Request, opts *metav1.DeleteOptions) (o *stored.Object, removed bool, err error) {
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	if err := checkDeleteOptions(opts); err != nil {
		return nil, false, err
	}
	if r.Kind.OrphanWarning != "" && opts.PropagationPolicy == nil && opts.OrphanDependents == nil {
		rq.Warn(r.Kind.OrphanWarning)
	}
	key := r.key(rq.Ref.Namespace, rq.Ref.Name)
	for {
		item, exists := r.table.Proposed(key)
		if !exists {
			return nil, false, apierrors.NewNotFound(rq.named(), rq.Ref.Name)
		}
		o, removed, err := r.tryDelete(ctx, rq, opts, item)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || ctx.Err() != nil {
			return o, removed, err
		}
	}
}

func (r *Resource) tryDelete(ctx context.Context, rq *Request, opts *metav1.DeleteOptions, item store.Item) (*stored.Object, bool, error) {
	if err := r.readable(item); err != nil {
		return r.deleteUnread(ctx, rq, opts, item, err)
	}
	value, err := r.renew(item)
	if err != nil { // what cannot be converted can still be deleted, as it is
		value = item.Value.(*stored.Object)
	}
	old := value.Hub()
	if err := preconditions(rq, opts.Preconditions, old); err != nil {
		r.settle(ctx, item.Revision)
		return nil, false, err
	}
	a := r.admission(rq, admissionv1.Delete, nil, old, nil, opts, dryRun(opts.DryRun))
	if err := r.mutate(ctx, rq, a); err != nil {
		return nil, false, err
	}
	if err := r.admit(ctx, rq, a); err != nil {
		return nil, false, err
	}
	next, remove := planDelete(r.Kind, old, opts, r.now().Time)
	switch {
	case remove:
		answer := value
		if next != nil {
			answer = stored.New(value.Kind(), next)
		}
		return answer, true, r.remove(ctx, rq, item, value, a.DryRun)
	case next == nil:
		o, err := r.same(ctx, item)
		return o, false, err
	}
	marked := stored.New(value.Kind(), next)
	if a.DryRun {
		return marked, false, nil
	}
	settle, err := r.claimAgain(next, old)
	if err != nil {
		return nil, false, err
	}
	err = r.commit(ctx, rq, store.Write{Key: item.Key, Expect: store.At(item.Revision), Make: func(rev store.Revision) store.Value { return marked.Stamp(rev) }})
	settle(err == nil)
	return marked, false, err
}

// remove commits the end of an object; last is what watchers see of it.
func (r *Resource) remove(ctx context.Context, rq *Request, item store.Item, last *stored.Object, dry bool) error {
	if dry {
		return nil
	}
	attending, err := r.attend(nil, item.Value.(*stored.Object).Hub())
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	err = r.commit(ctx, rq, store.Write{Key: item.Key, Expect: store.At(item.Revision), Delete: true,
		Make: func(rev store.Revision) store.Value { return last.Deleted(rev) }}, attending...)
	if err == nil {
		r.unclaim(item.Value.(*stored.Object).Hub())
	}
	return err
}

func preconditions(rq *Request, p *metav1.Preconditions, old kind.Object) error {
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != old.GetUID() {
		return uidConflict(rq, *p.UID, old.GetUID())
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
		return apierrors.NewConflict(rq.named(), rq.Ref.Name, fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			*p.ResourceVersion, old.GetResourceVersion()))
	}
	return nil
}

// planDelete decides what a delete does to an object: remove it, with next as the answer if it is not nil, or leave it in the state next (nil: as it is).
func planDelete(k *kind.Kind, old kind.Object, opts *metav1.DeleteOptions, now time.Time) (next kind.Object, remove bool) {
	finalizers := finalizersFor(k, old, opts)
	grace := int64(0)
	if k.Grace != nil {
		grace = max(0, k.Grace(old, withGrace(opts)))
	}
	held := len(finalizers) > 0 || k.KeepDeleted != nil && k.KeepDeleted(old)
	at := now.Add(time.Duration(grace) * time.Second)
	if old.GetDeletionTimestamp() != nil {
		had := int64(0)
		if g := old.GetDeletionGracePeriodSeconds(); g != nil {
			had = *g
		}
		if opts.GracePeriodSeconds == nil || k.Grace == nil || grace >= had {
			grace = had // a deletion under way can only be hastened
		}
		at = old.GetDeletionTimestamp().Add(time.Duration(grace-had) * time.Second)
		if grace == had && slices.Equal(finalizers, old.GetFinalizers()) && (grace > 0 || held) {
			return nil, false
		}
	}
	first := old.GetDeletionTimestamp() == nil
	if grace == 0 && !held {
		if k.Grace != nil && first { // who deletes it is told that nothing is left to wait for
			next = stored.Copy(old)
			mark(next, metav1.NewTime(now), 0, true)
		}
		return next, true
	}
	next = stored.Copy(old)
	mark(next, metav1.NewTime(at), grace, first)
	next.SetFinalizers(finalizers)
	if first && k.OnDelete != nil {
		k.OnDelete(next)
	}
	if k.Round != nil {
		k.Round(next)
	}
	return next, false
}

func mark(obj kind.Object, at metav1.Time, grace int64, first bool) {
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(&grace)
	if first && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
}

// withGrace reads a negative grace period as one second, as Kubernetes does.
func withGrace(opts *metav1.DeleteOptions) *metav1.DeleteOptions {
	if opts.GracePeriodSeconds == nil || *opts.GracePeriodSeconds >= 0 {
		return opts
	}
	c := *opts
	one := int64(1)
	c.GracePeriodSeconds = &one
	return &c
}

// finalizersFor is what the object's finalizers become: the garbage collector's own two express how dependents are treated.
func finalizersFor(k *kind.Kind, old kind.Object, opts *metav1.DeleteOptions) []string {
	orphan, foreground := propagation(k, old.GetFinalizers(), opts)
	var out []string
	for _, f := range old.GetFinalizers() {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			out = append(out, f)
		}
	}
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	if slices.Equal(sorted(out), sorted(old.GetFinalizers())) {
		return old.GetFinalizers()
	}
	return out
}

func sorted(s []string) []string {
	c := slices.Clone(s)
	slices.Sort(c)
	return c
}

// propagation decides how dependents are treated: by the request, else by the finalizers that are there, else by the kind.
func propagation(k *kind.Kind, finalizers []string, opts *metav1.DeleteOptions) (orphan, foreground bool) {
	switch {
	case opts.OrphanDependents != nil:
		return *opts.OrphanDependents, false
	case opts.PropagationPolicy != nil:
		return *opts.PropagationPolicy == metav1.DeletePropagationOrphan, *opts.PropagationPolicy == metav1.DeletePropagationForeground
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return true, false
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return false, true
	}
	return k.OrphanByDefault, false
}

// claimAgain reserves for a marked state what its former state holds.
func (r *Resource) claimAgain(obj, old kind.Object) (func(bool), error) {
	if r.claims == nil {
		return func(bool) {}, nil
	}
	l := r.claims.Lock()
	defer l.Unlock()
	held := r.Kind.Claims(obj)
	if c := l.Reserve(obj.GetUID(), held); c != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s holds %s %s, which another has", r.Kind.Names.Singular, c.Pool, c.Value))
	}
	return func(written bool) {
		if written {
			r.unclaim(old)
			return
		}
		r.claims.Release(obj.GetUID(), held)
	}, nil
}

// DeleteCollection deletes what a list selects, one by one, and returns what it deleted. Objects that go meanwhile are no error.
func (r *Resource) DeleteCollection(ctx context.Context, rq *Request, opts *metav1.DeleteOptions, list *metav1.ListOptions) (*List, error) {
	if opts != nil {
		if err := checkDeleteOptions(opts); err != nil {
			return nil, err
		}
	}
	found, err := r.List(ctx, rq, list)
	if err != nil {
		return nil, err
	}
	out := &List{Meta: metav1.ListMeta{ResourceVersion: found.Meta.ResourceVersion}}
	for _, item := range found.Items {
		one := *rq
		one.Ref.Namespace, one.Ref.Name = item.Hub().GetNamespace(), item.Hub().GetName()
		uid := item.Hub().GetUID()
		o, _, err := r.Delete(ctx, &one, withUID(opts, &uid))
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // gone, or another by its name
		case err != nil:
			return nil, err
		default:
			out.Items = append(out.Items, o)
		}
	}
	return out, nil
}

// withUID makes sure that a delete hits the object that was listed, unless the client set preconditions of its own.
func withUID(opts *metav1.DeleteOptions, uid *types.UID) *metav1.DeleteOptions {
	c := metav1.DeleteOptions{}
	if opts != nil {
		c = *opts
	}
	if c.Preconditions == nil {
		c.Preconditions = &metav1.Preconditions{UID: uid}
	}
	return &c
}
