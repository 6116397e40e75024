package verbs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

const (
	// freshTimeout is how long a read waits for a resource version that is not visible yet, as Kubernetes' watch cache does.
	freshTimeout = 3 * time.Second
	// settleTimeout is how long a refusal waits for the state that it rests on to become visible.
	settleTimeout = time.Second
	// secondPrecision is that of metav1.Time on the wire.
	secondPrecision = time.Second
)

// List is what a list returns.
type List struct {
	Items []*stored.Object
	Meta  metav1.ListMeta
}

// Ready prepares objects to be shown in a version, all at once where that is cheaper than one by one.
func Ready(ctx context.Context, v *kind.Version, items []*stored.Object) error {
	if v.Many == nil || len(items) == 0 {
		return nil
	}
	hubs := make([]kind.Object, len(items))
	for i, o := range items {
		hubs[i] = o.Hub()
	}
	return v.Many(ctx, hubs)
}

// ReadyEvents is Ready for the objects of events. What it cannot prepare shows its error when it is shown.
func ReadyEvents(ctx context.Context, v *kind.Version, events []Event) {
	if v.Many == nil || len(events) < 2 {
		return
	}
	items := make([]*stored.Object, 0, len(events))
	for i := range events {
		if o := events[i].Object; o != nil {
			items = append(items, o)
		}
	}
	_ = Ready(ctx, v, items)
}

// Get reads one object.
func (r *Resource) Get(ctx context.Context, rq *Request, opts *metav1.GetOptions) (*stored.Object, error) {
	if opts != nil && opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
		rev, err := parseRevision(opts.ResourceVersion)
		if err != nil {
			return nil, err
		}
		if err := r.fresh(ctx, rev); err != nil {
			return nil, err
		}
	}
	item, ok := r.table.Get(r.key(rq.Ref.Namespace, rq.Ref.Name))
	if !ok {
		return nil, apierrors.NewNotFound(rq.named(), rq.Ref.Name)
	}
	if err := r.readable(item); err != nil {
		return nil, err
	}
	return item.Value.(*stored.Object), nil
}

// fresh waits until rev is visible, for a bounded time.
func (r *Resource) fresh(ctx context.Context, rev store.Revision) error {
	if have := r.Store.Revision(); have >= rev {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, freshTimeout)
	defer cancel()
	if err := r.table.WaitFor(wait, rev); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return tooLarge(rev, r.Store.Revision())
	}
	return nil
}

// List reads a collection: a page of it when options.limit is set. Every page of one list shows the same revision.
func (r *Resource) List(ctx context.Context, rq *Request, opts *metav1.ListOptions) (*List, error) {
	if err := checkListOptions(opts); err != nil {
		return nil, err
	}
	sel, err := selectorOf(r.Kind, rq, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	prefix := r.prefix(rq.Ref.Namespace)
	from, began := "", r.Clock.Now()
	var snap store.Snapshot
	if opts.Continue != "" {
		var token continueToken
		if token, err = decodeContinue(opts.Continue); err != nil {
			return nil, err
		}
		from, began = prefix+token.Start, token.began(began)
		snap, err = r.resume(token)
	} else {
		snap, err = r.snapshot(ctx, opts)
	}
	if err == nil {
		err = r.allReadable(snap, prefix, from, &sel)
	}
	if err != nil {
		return nil, err
	}
	return r.page(snap, prefix, from, began, &sel, opts.Limit), nil
}

// All are the newest states of a namespace's objects, or of all, in the hub version, in order of their keys: what a list without options shows.
func (r *Resource) All(namespace string) ([]kind.Object, error) {
	snap, prefix := r.table.Snapshot(), r.prefix(namespace)
	if err := r.allReadable(snap, prefix, "", &selector{}); err != nil {
		return nil, err
	}
	var out []kind.Object
	snap.Ascend(prefix, "", func(item store.Item) bool {
		out = append(out, item.Value.(*stored.Object).Hub())
		return true
	})
	return out, nil
}

// invalidList checks the options that say which state is asked for against each other.
func invalidList(o *metav1.ListOptions, watch bool) error {
	errs := validation.ValidateListOptions(&internalversion.ListOptions{Watch: watch, ResourceVersion: o.ResourceVersion,
		ResourceVersionMatch: o.ResourceVersionMatch, Continue: o.Continue, SendInitialEvents: o.SendInitialEvents}, true)
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", errs)
}

func checkListOptions(o *metav1.ListOptions) error {
	if o.ResourceVersionMatch != "" || o.SendInitialEvents != nil {
		if err := invalidList(o, false); err != nil {
			return err
		}
	}
	if o.Continue != "" && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return nil
}

// snapshot picks the state that a first page reads, by the rules of the API's resourceVersion semantics. The newest state is always at hand, so
// it also serves those who would take an older one.
func (r *Resource) snapshot(ctx context.Context, opts *metav1.ListOptions) (store.Snapshot, error) {
	if opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		return r.table.Snapshot(), nil
	}
	rev, err := parseRevision(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if err := r.fresh(ctx, rev); err != nil {
		return nil, err
	}
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Limit > 0 {
		return r.snapshotAt(rev)
	}
	return r.table.Snapshot(), nil
}

func (r *Resource) snapshotAt(rev store.Revision) (store.Snapshot, error) {
	snap, err := r.table.SnapshotAt(rev)
	switch {
	case err == nil:
		return snap, nil
	case errors.Is(err, store.ErrCompacted):
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old: %d is no longer retained", rev))
	case errors.Is(err, store.ErrFuture):
		return nil, tooLarge(rev, r.Store.Revision())
	default:
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
}

func (r *Resource) resume(t continueToken) (store.Snapshot, error) {
	if t.Revision < 0 {
		return r.table.Snapshot(), nil
	}
	if t.old(r.Clock.Now()) {
		return nil, t.expired()
	}
	snap, err := r.table.SnapshotAt(store.Revision(t.Revision))
	switch {
	case err == nil:
		return snap, nil
	case errors.Is(err, store.ErrCompacted):
		return nil, t.expired()
	case errors.Is(err, store.ErrFuture):
		return nil, apierrors.NewBadRequest("continue key is not valid: its resource version lies in the future")
	default:
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
}

func (r *Resource) page(snap store.Snapshot, prefix, from string, began time.Time, sel *selector, limit int64) *List {
	out := &List{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(snap.Revision(), 10)}}
	if sel.name != "" && prefix != "" || sel.name != "" && r.prefix("-") == "" {
		if item, ok := snap.Get(prefix + sel.name); ok && item.Key >= from && sel.matches(item.Value.(*stored.Object)) {
			out.Items = append(out.Items, item.Value.(*stored.Object))
		}
		return out
	}
	if all := sel.all(); all && limit == 0 && prefix == "" {
		out.Items = make([]*stored.Object, 0, snap.Len())
	} else if all && limit > 0 {
		out.Items = make([]*stored.Object, 0, min(limit, int64(snap.Len())))
	}
	var remaining int64
	last := ""
	snap.Ascend(prefix, from, func(item store.Item) bool {
		if !sel.mayMatch(stored.Sketch(item.Mark)) {
			return true // without a look at the object
		}
		o := item.Value.(*stored.Object)
		if !sel.matches(o) {
			return true
		}
		if limit > 0 && int64(len(out.Items)) == limit {
			if out.Meta.Continue == "" {
				out.Meta.Continue = after(prefix, last, snap.Revision(), began)
			}
			remaining++
			return sel.all() // only an unselected list says how much remains
		}
		out.Items = append(out.Items, o)
		last = item.Key
		return true
	})
	if out.Meta.Continue != "" && sel.all() {
		out.Meta.RemainingItemCount = &remaining
	}
	return out
}

func parseRevision(s string) (store.Revision, error) {
	rev, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid resource version: " + field.Invalid(field.NewPath("resourceVersion"), s, err.Error()).Error())
	}
	return rev, nil
}
