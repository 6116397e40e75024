package batch

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kinds/core"
)

func defaultTemplate(t *corev1.PodTemplateSpec) { core.DefaultPodTemplate(t) }

func validateTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return core.ValidatePodTemplate(t, path)
}
