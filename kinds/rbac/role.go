package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[rbacv1.Role]{
	Names:          kind.Names{Plural: "roles"},
	ValidateName:   validName,
	CreateOnUpdate: true,
	Validate:       func(r, _ *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) },
	NoAge:          true,
	Columns: []kind.Column[rbacv1.Role]{{Name: "Created At", Type: "date", Description: "When the role was created.", Value: func(r *rbacv1.Role, _ time.Time) any {
		return created(func() metav1.Time { return r.CreationTimestamp })
	}}},
})
