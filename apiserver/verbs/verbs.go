// Package verbs carries out what the Kubernetes API can do with an object: get, list, watch, create, update, patch, apply, delete, and the
// subresources. It does so for any kind, from the kind's definition, on the store.
//
// A caller has authenticated and authorized the request and, over HTTP, decoded its body; whoever comes in process calls the same
// functions. From there on the order is the same for everybody: admission plugins change the object, it is defaulted (again), separated into
// spec and status, validated, admitted, committed.
//
// Guarantees: objects handed out are the store's own and must not be changed; objects handed in belong to the package from then on.
// A write is answered once it is as durable as its kind promises. Errors are *apierrors.StatusError with the reasons and texts that clients
// of the Kubernetes API know, or a context's error.
//
// Everything is safe for concurrent use. The package names no kind and knows neither HTTP nor who may do what.
package verbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/apply"
	"github.com/yare-project/yare/apiserver/claims"
	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/apiserver/stages"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// Config is what all kinds share.
type Config struct {
	Store store.Store
	// Env is handed to kinds and admission plugins.
	Env        kind.Env
	Clock      clock.Clock
	Mutators   []kind.Mutator
	Validators []kind.Validator
	Types      *apply.Types
	// Measure times the plugins. Nil: nobody does.
	Measure *measure.Admission
	// Sealer says how a kind's objects are sealed on disk. Nil: all are plain.
	Sealer func(*kind.Kind) stored.Sealer
	// Bookmarks is how often a watch that allows bookmarks gets one, in real time.
	Bookmarks time.Duration
	Log       *slog.Logger
}

// Request says who asks for what.
type Request struct {
	// Version is the served form that the request is made in.
	Version *kind.Version
	Ref     resource.Ref
	// Posted says that the client's path named no object: the name in Ref, if any, is the object's own.
	Posted bool
	User   user.Info
	// Manager names the field manager where the options do not.
	Manager string
	// Warn adds a warning to the answer. It is never nil.
	Warn func(text string)
	// Annotate records something about the request for the audit log. Nil where nothing is recorded.
	Annotate func(key, value string)
	// Trace measures stages; nil does not.
	Trace *stages.Trace
}

// Resource is one kind on its table.
type Resource struct {
	Config
	Kind   *kind.Kind
	table  store.Table
	claims *claims.Index
	fields *apply.Managers
	// scaleFields track the owners of what the scale subresource shows.
	scaleFields *apply.Managers
	streams     streams
	carriers    carriers
	templates   templates
	seal        *sealing // nil: plain on disk
	// lookup finds the resource of an attendant.
	lookup func(schema.GroupResource) (*Resource, bool)
}

// open makes the resource of k: its table, with what is stored there already, and its claims.
func open(cfg Config, k *kind.Kind, codec store.TableConfig) (*Resource, error) {
	table, err := cfg.Store.Table(codec)
	if err != nil {
		return nil, fmt.Errorf("open the table of %s: %w", k.Resource(), err)
	}
	r := &Resource{Config: cfg, Kind: k, table: table, fields: apply.For(k, cfg.Types)}
	if k.Scale != nil {
		r.scaleFields = apply.For(scaleKind, cfg.Types)
	}
	if k.Claims != nil {
		r.claims = claims.New()
		r.recoverClaims()
	}
	return r, nil
}

// Table is the resource's table.
func (r *Resource) Table() store.Table { return r.table }

// named is the resource as error messages name it: in the group and by the plural of the version asked for.
func (rq *Request) named() schema.GroupResource { return rq.Ref.GroupResource() }

// key is the key of the object that the request names.
func (r *Resource) key(namespace, name string) string {
	if r.Kind.Scope == kind.Cluster {
		return name
	}
	return namespace + "/" + name
}

// prefix is what the keys of a request's collection have in common.
func (r *Resource) prefix(namespace string) string {
	if r.Kind.Scope == kind.Cluster || namespace == "" {
		return ""
	}
	return namespace + "/"
}

// manager is who owns the fields that a write sets.
func (rq *Request) manager(option string) string {
	if option != "" {
		return option
	}
	if rq.Manager != "" {
		return rq.Manager
	}
	return "unknown"
}

// now is the server's time in the precision that the API keeps.
func (r *Resource) now() metav1.Time { return metav1.NewTime(r.Clock.Now().Truncate(secondPrecision)) }

// traced marks the moment at which a write has its place in the order: what follows is waiting for the disk.
func traced(t *stages.Trace, make func(store.Revision) store.Value) func(store.Revision) store.Value {
	return func(rev store.Revision) store.Value {
		v := make(rev)
		t.Mark("store")
		return v
	}
}

// commit writes, turning the store's errors into the API's; a *store.ConflictError comes back as it is.
func (r *Resource) commit(ctx context.Context, rq *Request, w store.Write, attending ...store.Write) error {
	w.Table = r.table
	if r.seal != nil && !w.Delete {
		var err error
		if w.Make, err = r.seal.with(w.Key, w.Make); err != nil {
			return apierrors.NewInternalError(err)
		}
	}
	if rq.Trace != nil && w.Make != nil {
		w.Make = traced(rq.Trace, w.Make)
	}
	var err error
	if len(attending) == 0 {
		_, err = r.Store.Commit(ctx, w)
	} else {
		_, err = r.Store.Commit(ctx, append(attending, w)...)
	}
	rq.Trace.Mark("commit")
	var conflict *store.ConflictError
	switch {
	case err == nil, errors.As(err, &conflict) && conflict.Table == r.table.Name():
		return err
	case conflict != nil:
		r.settle(ctx, conflict.Current.Revision)
		return apierrors.NewConflict(rq.named(), rq.Ref.Name, fmt.Errorf("%s %q was written meanwhile: try again", conflict.Table, conflict.Key))
	case errors.Is(err, store.ErrFull):
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 507, Reason: "InsufficientStorage",
			Message: "the server's data disk is full: nothing was written; free some space and try again"}}
	case errors.Is(err, store.ErrClosed):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError(fmt.Sprintf("writing %s %q was not confirmed in time: it may have been done", rq.named(), rq.Ref.Name), 1)
	default:
		return apierrors.NewInternalError(err)
	}
}

// settle waits until a state that was only proposed is visible, so that no answer rests on what a crash could undo.
func (r *Resource) settle(ctx context.Context, rev store.Revision) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = r.table.WaitFor(ctx, rev) // on failure the caller answers from what it knows
}
