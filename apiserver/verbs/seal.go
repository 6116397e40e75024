package verbs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// sealing is what a resource knows about how its objects are on disk.
type sealing struct {
	stored.Sealer
	// unreadable says that some objects could not be read.
	unreadable atomic.Bool
}

// openSealed is open for a resource whose objects may be sealed on disk.
func openSealed(cfg Config, k *kind.Kind, table store.TableConfig) (*Resource, error) {
	s := &sealing{Sealer: cfg.Sealer(k)}
	table.Decode = stored.SealedDecoder(k, s.Sealer, &s.unreadable)
	r, err := open(cfg, k, table)
	if err != nil {
		return nil, err
	}
	if !s.unreadable.Load() { // a table that was open already has told another
		s.unreadable.Store(r.firstFault(r.table.Snapshot(), "", "") != nil)
	}
	if s.unreadable.Load() {
		cfg.Log.Error("stored objects cannot be read; lists of them fail until they can", "resource", k.Resource().String(),
			"first", r.firstFault(r.table.Snapshot(), "", ""))
	}
	r.seal = s
	return r, nil
}

// with makes a write seal its value by the key of now.
func (s *sealing) with(key string, made func(store.Revision) store.Value) (func(store.Revision) store.Value, error) {
	seal, err := s.Current()
	if err != nil || seal == nil {
		return made, err
	}
	return func(rev store.Revision) store.Value { return made(rev).(*stored.Object).SealWith(seal, key) }, nil
}

// stale tells whether a state is sealed otherwise than it would be now, so that even a write that changes nothing must be done.
func (r *Resource) stale(item store.Item) bool {
	return r.seal != nil && r.seal.Stale(item.Value.(*stored.Object).SealID())
}

// rewrite stores a state again as it is.
func (r *Resource) rewrite(ctx context.Context, rq *Request, item store.Item) (*stored.Object, error) {
	again := item.Value.(*stored.Object).Again()
	err := r.commit(ctx, rq, store.Write{Key: item.Key, Expect: store.At(item.Revision), Make: func(rev store.Revision) store.Value { return again.Stamp(rev) }})
	if err != nil {
		return nil, err
	}
	return again, nil
}

// readable refuses a state that could not be read from disk.
func (r *Resource) readable(item store.Item) error {
	if r.seal == nil {
		return nil
	}
	if err := item.Value.(*stored.Object).Fault(); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// allReadable refuses a collection in which an object could not be read.
func (r *Resource) allReadable(snap store.Snapshot, prefix, from string, sel *selector) error {
	if r.seal == nil || !r.seal.unreadable.Load() {
		return nil
	}
	if sel.name != "" && (prefix != "" || r.prefix("-") == "") {
		item, ok := snap.Get(prefix + sel.name)
		if !ok {
			return nil
		}
		return r.readable(item)
	}
	if fault := r.firstFault(snap, prefix, from); fault != nil {
		return apierrors.NewInternalError(fault)
	}
	return nil
}

func (r *Resource) firstFault(snap store.Snapshot, prefix, from string) (fault error) {
	snap.Ascend(prefix, from, func(item store.Item) bool {
		fault = item.Value.(*stored.Object).Fault()
		return fault == nil
	})
	return fault
}

// deleteUnread removes an object that cannot be read, if the request says that it may break the cluster: nothing that the object would have asked
// for is done, not its finalizers either. fault is why it cannot be read.
func (r *Resource) deleteUnread(ctx context.Context, rq *Request, opts *metav1.DeleteOptions, item store.Item, fault error) (*stored.Object, bool, error) {
	unsafe := opts.IgnoreStoreReadErrorWithClusterBreakingPotential
	if unsafe == nil || !*unsafe {
		return nil, false, fault
	}
	last := item.Value.(*stored.Object)
	if p := opts.Preconditions; p != nil {
		if err := preconditions(rq, p, last.Hub()); err != nil {
			return nil, false, err
		}
	}
	return last, true, r.remove(ctx, rq, item, last, dryRun(opts.DryRun))
}

// Reread tries again to read what could not be read, when there may be a key for it. What can be read now is written again.
func (r *Resource) Reread(ctx context.Context) error {
	if r.seal == nil || !r.seal.unreadable.Load() {
		return nil
	}
	var items []store.Item
	r.table.Snapshot().Ascend("", "", func(item store.Item) bool {
		if item.Value.(*stored.Object).Fault() != nil {
			items = append(items, item)
		}
		return true
	})
	var failed error
	for _, item := range items {
		if err := r.reread(ctx, item); err != nil {
			failed = err
		}
	}
	r.seal.unreadable.Store(failed != nil)
	return failed
}

func (r *Resource) reread(ctx context.Context, item store.Item) error {
	o, err := item.Value.(*stored.Object).Retry()
	if err != nil {
		return err
	}
	obj := o.Hub()
	if r.claims != nil {
		l := r.claims.Lock()
		taken := l.Reserve(obj.GetUID(), r.Kind.Claims(obj))
		l.Unlock()
		if taken != nil {
			r.Log.Error("an object that can be read again holds what another has got meanwhile", "resource", r.Kind.Resource().String(), "key", item.Key, "value", taken.Value)
		}
	}
	item.Value = o
	_, err = r.rewrite(ctx, r.Own(obj.GetNamespace(), obj.GetName()), item)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) { // somebody removed it
		return nil
	}
	return err
}

// Reseal writes again every object that is sealed otherwise than it would be now.
func (r *Resource) Reseal(ctx context.Context) (written int, err error) {
	if r.seal == nil {
		return 0, nil
	}
	var items []store.Item
	r.table.Snapshot().Ascend("", "", func(item store.Item) bool {
		if r.stale(item) && item.Value.(*stored.Object).Fault() == nil {
			items = append(items, item)
		}
		return true
	})
	for _, item := range items {
		obj := item.Value.(*stored.Object).Hub()
		_, err := r.rewrite(ctx, r.Own(obj.GetNamespace(), obj.GetName()), item)
		var conflict *store.ConflictError
		switch {
		case err == nil:
			written++
		case !errors.As(err, &conflict): // else another writer has done it
			return written, fmt.Errorf("write %s %q again: %w", r.Kind.Resource(), item.Key, err)
		}
	}
	return written, nil
}

// Reread tries again to read all objects that could not be read.
func (r *Registry) Reread(ctx context.Context) {
	for _, res := range r.Resources() {
		if err := res.Reread(ctx); err != nil {
			r.cfg.Log.Error("stored objects still cannot be read", "resource", res.Kind.Resource().String(), "error", err)
		}
	}
}
