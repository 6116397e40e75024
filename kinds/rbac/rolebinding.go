package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[rbacv1.RoleBinding]{
	Names:          kind.Names{Plural: "rolebindings"},
	ValidateName:   validName,
	CreateOnUpdate: true,
	Default: func(b *rbacv1.RoleBinding) {
		defaultRef(&b.RoleRef)
		defaultSubjects(b.Subjects)
	},
	Validate: func(b, old *rbacv1.RoleBinding) field.ErrorList {
		if old == nil {
			return validateBinding(b.Subjects, b.RoleRef, nil, true)
		}
		return validateBinding(b.Subjects, b.RoleRef, &old.RoleRef, true)
	},
	Columns: bindingColumns(func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
})

func serviceAccountName(name string) []string {
	return validation.ValidateServiceAccountName(name, false)
}
