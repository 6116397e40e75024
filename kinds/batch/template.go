package batch

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func defaultTemplate(t *corev1.PodTemplateSpec) {}

func validateTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList { return nil }
