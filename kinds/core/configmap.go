package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.ConfigMap]{
	Names: kind.Names{Plural: "configmaps", Short: []string{"cm"}},
})
