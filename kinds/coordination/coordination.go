// Package coordination declares the kinds of the group coordination.k8s.io: the Lease.
package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// Group is coordination.k8s.io.
var Group = kind.Group{Name: "coordination.k8s.io", Versions: []string{"v1"}, AnyFinalizer: true, AddToScheme: []func(*runtime.Scheme) error{coordinationv1.AddToScheme}}

var _ = kind.Add(&Group, kind.Def[coordinationv1.Lease]{
	Names:           kind.Names{Plural: "leases"},
	AnyGenerateName: true,
	Relaxed:         true, // rewritten every few seconds; a lost renewal is made good by the next
	CreateOnUpdate:  true,
	RequireVersion:  true,
	NoGeneration:    true,
	Prepare:         prepareLease,
	Validate:        validateLease,
	Columns: []kind.Column[coordinationv1.Lease]{
		{Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
			Value: func(l *coordinationv1.Lease, _ time.Time) any { return ptr.Deref(l.Spec.HolderIdentity, "") }},
	},
})

// prepareLease drops what belongs to coordinated leader election, which Kubernetes 1.36 has off by default.
func prepareLease(l, old *coordinationv1.Lease) {
	if old == nil || old.Spec.Strategy == nil {
		l.Spec.Strategy = nil
	}
	if old == nil || old.Spec.PreferredHolder == nil {
		l.Spec.PreferredHolder = nil
	}
}

func validateLease(l, _ *coordinationv1.Lease) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *s, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	if s := l.Spec.Strategy; s != nil && *s != coordinationv1.OldestEmulationVersion {
		errs = append(errs, field.NotSupported(path.Child("strategy"), *s, []coordinationv1.CoordinatedLeaseStrategy{coordinationv1.OldestEmulationVersion}))
	}
	if ptr.Deref(l.Spec.PreferredHolder, "") != "" && ptr.Deref(l.Spec.Strategy, "") == "" {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}
