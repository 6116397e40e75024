package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[rbacv1.ClusterRole]{
	Names:          kind.Names{Plural: "clusterroles"},
	Scope:          kind.Cluster,
	ValidateName:   validName,
	CreateOnUpdate: true,
	Validate:       validateClusterRole,
	NoAge:          true,
	Columns: []kind.Column[rbacv1.ClusterRole]{{Name: "Created At", Type: "date", Description: "When the role was created.", Value: func(r *rbacv1.ClusterRole, _ time.Time) any {
		return created(func() metav1.Time { return r.CreationTimestamp })
	}}},
})

func validateClusterRole(r, _ *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&r.AggregationRule.ClusterRoleSelectors[i], metav1validation.LabelSelectorValidationOptions{}, at.Index(i))...)
	}
	return errs
}
