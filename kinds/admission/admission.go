// Package admission holds the built-in admission plugins: what happens to a request after it was authorized and decoded, and what may
// refuse it before it is stored. One file a plugin; each is a pure decision about a request and the few objects that it looks up.
//
// Mutators run in the order of Build, then validation, then Validators. A plugin passes on what it has no say in. A refusal is a
// *apierrors.StatusError that names the object, the rule and what would be accepted.
//
// Plugins keep no state between requests and are safe for concurrent use.
package admission

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/quota"
	"github.com/yare-project/yare/kind"
)

// Config says what plugins need that is not in the request.
type Config struct {
	// Clock is for waiting for the default service account of a new namespace; the real one when nil.
	Clock clock.Clock
	// Quota is shared with the loop that counts what quotas allow; one of its own when nil, which is right where no such loop runs.
	Quota *quota.Ledger
	// Choice is which plugins run, and File the path of an AdmissionConfiguration (apiserver.config.k8s.io/v1) that configures them. Optional.
	Choice Choice
	File   string
	// Kinds are those that are served; nil: OwnerReferencesPermissionEnforcement finds no owner's resource.
	Kinds func() []*kind.Kind
	// NotReadySeconds and UnreachableSeconds are how long pods stay on a node that is not ready or not reachable unless they say; nil: 300.
	NotReadySeconds, UnreachableSeconds *int64
	// Provision makes a namespace, for NamespaceAutoProvision, which cannot run without.
	Provision func(ctx context.Context, name string) error
}

// Default returns the plugins that run unless switched off, in order.
func Default() ([]kind.Mutator, []kind.Validator) { return New(Config{}) }

// New is Build for a config without a choice or a file, which cannot fail.
func New(cfg Config) ([]kind.Mutator, []kind.Validator) {
	cfg.Choice, cfg.File = Choice{}, ""
	mutators, validators, err := Build(cfg)
	if err != nil {
		panic(err) // by the above, a mistake in this package
	}
	return mutators, validators
}

func (cfg Config) withDefaults() Config {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Quota == nil {
		cfg.Quota = quota.NewLedger()
	}
	return cfg
}

// on tells whether a request is about a resource itself, not a subresource of it, and is one of the operations.
func on(r *kind.AdmissionRequest, group, resource string, operations ...admissionv1.Operation) bool {
	return onSub(r, group, resource, "", operations...)
}

func onSub(r *kind.AdmissionRequest, group, resource, sub string, operations ...admissionv1.Operation) bool {
	if r.Ref.Group != group || r.Ref.Resource != resource || r.Ref.Subresource != sub {
		return false
	}
	for _, o := range operations {
		if r.Operation == o {
			return true
		}
	}
	return false
}

// forbid refuses a request.
func forbid(r *kind.AdmissionRequest, format string, args ...any) error {
	return apierrors.NewForbidden(r.Ref.GroupResource(), nameOf(r), fmt.Errorf(format, args...))
}

// nameOf is the object's name, or what it will begin with.
func nameOf(r *kind.AdmissionRequest) string {
	switch {
	case r.Ref.Name != "":
		return r.Ref.Name
	case r.Object == nil:
		return ""
	case r.Object.GetName() != "":
		return r.Object.GetName()
	}
	return r.Object.GetGenerateName()
}

// get reads an object of a known type.
func get[T kind.Object](ctx context.Context, env kind.Env, group, resource, namespace, name string) (T, error) {
	var none T
	obj, err := env.Get(ctx, schema.GroupResource{Group: group, Resource: resource}, namespace, name)
	if err != nil {
		return none, err
	}
	t, ok := obj.(T)
	if !ok {
		return none, apierrors.NewInternalError(fmt.Errorf("%s %q is stored as %T", resource, name, obj))
	}
	return t, nil
}

// list reads all objects of a known type in a namespace.
func list[T kind.Object](ctx context.Context, env kind.Env, group, resource, namespace string) ([]T, error) {
	objects, err := env.List(ctx, schema.GroupResource{Group: group, Resource: resource}, namespace)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	out := make([]T, 0, len(objects))
	for _, obj := range objects {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}
	return out, nil
}

// notFoundOr returns err itself when it says that something is missing, else a refusal because of it.
func notFoundOr(r *kind.AdmissionRequest, err error) error {
	if apierrors.IsNotFound(err) {
		return err
	}
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Code >= 500 {
		return err
	}
	return forbid(r, "%v", err)
}
