package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[rbacv1.ClusterRoleBinding]{
	Names:          kind.Names{Plural: "clusterrolebindings"},
	Scope:          kind.Cluster,
	ValidateName:   validName,
	CreateOnUpdate: true,
	Default: func(b *rbacv1.ClusterRoleBinding) {
		defaultRef(&b.RoleRef)
		defaultSubjects(b.Subjects)
	},
	Validate: func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
		if old == nil {
			return validateBinding(b.Subjects, b.RoleRef, nil, false)
		}
		return validateBinding(b.Subjects, b.RoleRef, &old.RoleRef, false)
	},
	Columns: bindingColumns(func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
})
