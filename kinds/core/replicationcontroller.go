package core

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var _ = kind.Add(&Group, kind.Def[corev1.ReplicationController]{
	Names:           kind.Names{Plural: "replicationcontrollers", Short: []string{"rc"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	Default:         defaultReplicationController,
	Prepare: func(r, old *corev1.ReplicationController) {
		if old == nil {
			old = &corev1.ReplicationController{}
		}
		DropDisabled(r.Spec.Template, old.Spec.Template)
	},
	Validate:       validateReplicationController,
	ValidateStatus: validateReplicationControllerStatus,
	Warn:           warnReplicationController,
	Columns: []kind.Column[corev1.ReplicationController]{
		{Name: "Desired", Type: "integer", Description: "Number of pods wanted.", Value: func(r *corev1.ReplicationController, _ time.Time) any { return int64(ptr.Deref(r.Spec.Replicas, 0)) }},
		{Name: "Current", Type: "integer", Description: "Number of pods there are.", Value: func(r *corev1.ReplicationController, _ time.Time) any { return int64(r.Status.Replicas) }},
		{Name: "Ready", Type: "integer", Description: "Number of pods that are ready.", Value: func(r *corev1.ReplicationController, _ time.Time) any { return int64(r.Status.ReadyReplicas) }},
		{Name: "Containers", Priority: 1, Description: "Names of each container in the template.", Value: func(r *corev1.ReplicationController, _ time.Time) any {
			return cell.ContainerNames(containersOf(r))
		}},
		{Name: "Images", Priority: 1, Description: "Images referenced by each container in the template.", Value: func(r *corev1.ReplicationController, _ time.Time) any {
			return cell.ContainerImages(containersOf(r))
		}},
		{Name: "Selector", Priority: 1, Description: "Labels of the pods.", Value: func(r *corev1.ReplicationController, _ time.Time) any { return labels.FormatLabels(r.Spec.Selector) }},
	},
	Fields: map[string]func(*corev1.ReplicationController) string{
		"status.replicas": func(r *corev1.ReplicationController) string { return strconv.Itoa(int(r.Status.Replicas)) },
	},
	Scale: &kind.Scale[corev1.ReplicationController]{
		Replicas:       func(r *corev1.ReplicationController) int32 { return ptr.Deref(r.Spec.Replicas, 0) },
		SetReplicas:    func(r *corev1.ReplicationController, n int32) { r.Spec.Replicas = &n },
		StatusReplicas: func(r *corev1.ReplicationController) int32 { return r.Status.Replicas },
		Selector:       func(r *corev1.ReplicationController) string { return labels.Set(r.Spec.Selector).AsSelector().String() },
	},
})

func containersOf(r *corev1.ReplicationController) []corev1.Container {
	if r.Spec.Template == nil {
		return nil
	}
	return r.Spec.Template.Spec.Containers
}

func defaultReplicationController(r *corev1.ReplicationController) {
	defaultPtr(&r.Spec.Replicas, 1)
	t := r.Spec.Template
	if t == nil {
		return
	}
	if t.Labels != nil && len(r.Spec.Selector) == 0 {
		r.Spec.Selector = maps.Clone(t.Labels)
	}
	if t.Labels != nil && len(r.Labels) == 0 {
		r.Labels = maps.Clone(t.Labels)
	}
	DefaultPodTemplate(t)
}

func validateReplicationController(r, _ *corev1.ReplicationController) field.ErrorList {
	var p problems
	path := field.NewPath("spec")
	p.notNegative(path.Child("minReadySeconds"), int64(r.Spec.MinReadySeconds))
	if len(r.Spec.Selector) == 0 {
		p.required(path.Child("selector"), "")
	}
	if r.Spec.Replicas == nil {
		p.required(path.Child("replicas"), "")
	} else {
		p.notNegative(path.Child("replicas"), int64(*r.Spec.Replicas))
	}
	t, at := r.Spec.Template, path.Child("template")
	if t == nil {
		p.required(at, "")
		return p.list
	}
	if len(r.Spec.Selector) > 0 && !labels.SelectorFromSet(r.Spec.Selector).Matches(labels.Set(t.Labels)) {
		p.invalid(at.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")
	}
	p.add(ValidatePodTemplate(t, at)...)
	oneOf(&p, at.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if t.Spec.ActiveDeadlineSeconds != nil {
		p.forbidden(at.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported")
	}
	return p.list
}

func validateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	var p problems
	path, s := field.NewPath("status"), &r.Status
	p.notNegative(path.Child("replicas"), int64(s.Replicas))
	p.notNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	for name, n := range map[string]int32{"fullyLabeledReplicas": s.FullyLabeledReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas} {
		p.notNegative(path.Child(name), int64(n))
		if n > s.Replicas {
			p.invalid(path.Child(name), n, "cannot be greater than status.replicas")
		}
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		p.invalid(path.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
	return p.list
}

func warnReplicationController(r, old *corev1.ReplicationController) []string {
	var out []string
	if messages := validation.IsDNS1123Label(r.Name); old == nil && len(messages) > 0 {
		out = append(out, fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", messages))
	}
	if r.Spec.Template == nil || old != nil && apiequality.Semantic.DeepEqual(r.Spec, old.Spec) {
		return out
	}
	return append(out, WarnPodTemplate(r.Spec.Template, field.NewPath("spec", "template"))...)
}
