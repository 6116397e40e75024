package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var _ = kind.Add(&Group, kind.Def[corev1.PodTemplate]{
	Names:           kind.Names{Plural: "podtemplates"},
	ReturnDeleted:   true,
	AnyGenerateName: true,
	Default:         func(t *corev1.PodTemplate) { DefaultPodTemplate(&t.Template) },
	Prepare: func(t, old *corev1.PodTemplate) {
		if old == nil {
			old = &corev1.PodTemplate{}
		}
		DropDisabled(&t.Template, &old.Template)
	},
	Validate: func(t, _ *corev1.PodTemplate) field.ErrorList {
		return ValidatePodTemplate(&t.Template, field.NewPath("template"))
	},
	Warn: func(t, old *corev1.PodTemplate) []string {
		if old != nil && apiequality.Semantic.DeepEqual(t.Template, old.Template) {
			return nil
		}
		return WarnPodTemplate(&t.Template, field.NewPath("template"))
	},
	SpecOf: func(t *corev1.PodTemplate) any { return &t.Template },
	NoAge:  true,
	Columns: []kind.Column[corev1.PodTemplate]{
		{Name: "Containers", Description: "Names of each container in the template.", Value: func(t *corev1.PodTemplate, _ time.Time) any {
			return cell.ContainerNames(t.Template.Spec.Containers)
		}},
		{Name: "Images", Description: "Images referenced by each container in the template.", Value: func(t *corev1.PodTemplate, _ time.Time) any {
			return cell.ContainerImages(t.Template.Spec.Containers)
		}},
		{Name: "Pod Labels", Description: "The labels for the pod template.", Value: func(t *corev1.PodTemplate, _ time.Time) any { return labels.FormatLabels(t.Template.Labels) }},
	},
})
