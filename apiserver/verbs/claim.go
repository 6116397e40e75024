package verbs

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// recoverClaims rebuilds the index from what is stored.
func (r *Resource) recoverClaims() {
	l := r.claims.Lock()
	defer l.Unlock()
	r.table.Snapshot().Ascend("", "", func(item store.Item) bool {
		obj := item.Value.(*stored.Object).Hub()
		if taken := l.Reserve(obj.GetUID(), r.Kind.Claims(obj)); taken != nil {
			r.Log.Error("two stored objects hold one value: the second keeps it without a claim",
				"resource", r.Kind.Resource().String(), "key", item.Key, "pool", taken.Pool, "value", taken.Value)
		}
		return true
	})
}

// claim hands out what the cluster assigns to obj and reserves what it then holds. The reservation stands until settle is told
// whether obj was written: then that of old ends, otherwise obj's own does.
func (r *Resource) claim(obj, old kind.Object, dryRun bool) (settle func(written bool), err error) {
	nothing := func(bool) {}
	if r.claims == nil {
		return nothing, r.assign(func(string, string) bool { return false }, obj, old)
	}
	l := r.claims.Lock()
	defer l.Unlock()
	uid := obj.GetUID()
	taken := func(pool, value string) bool { return l.Taken(uid, kind.Claim{Pool: pool, Value: value}) }
	if err := r.assign(taken, obj, old); err != nil {
		return nothing, err
	}
	if dryRun {
		return nothing, nil
	}
	held := r.Kind.Claims(obj)
	if c := l.Reserve(uid, held); c != nil {
		return nothing, apierrors.NewInvalid(r.Kind.Hub.GroupKind(), obj.GetName(), field.ErrorList{field.Invalid(field.NewPath(c.Pool), c.Value,
			fmt.Sprintf("another %s has it already", r.Kind.Names.Singular))})
	}
	return func(written bool) {
		if !written {
			r.claims.Release(uid, held)
		} else if old != nil {
			r.unclaim(old)
		}
	}, nil
}

func (r *Resource) assign(taken func(pool, value string) bool, obj, old kind.Object) error {
	if r.Kind.Assign == nil {
		return nil
	}
	if errs := r.Kind.Assign(r.Env, taken, obj, old); len(errs) > 0 {
		return Invalid(r.Kind.Hub.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// unclaim ends the reservation of a stored state that has gone.
func (r *Resource) unclaim(obj kind.Object) {
	if r.claims != nil {
		r.claims.Release(obj.GetUID(), r.Kind.Claims(obj))
	}
}
