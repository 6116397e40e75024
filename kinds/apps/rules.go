package apps

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

// selectorWords is how a kind says what is wrong with its selector; clients know each kind's own words.
type selectorWords struct {
	kind       string   // in the refusal of a selector that selects everything
	required   bool     // whether a missing selector is refused as such, and not only as one that selects nothing
	unreadable []string // what is said, beside the fault itself, of one with a fault
}

var (
	daemonSetSelector   = selectorWords{kind: "daemonset"}
	deploymentSelector  = selectorWords{kind: "deployment", required: true, unreadable: []string{"invalid label selector"}}
	statefulSetSelector = selectorWords{kind: "statefulset", required: true, unreadable: []string{""}}
)

// checkSelector checks a required selector, and that the template's pods are selected by it.
func checkSelector(selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, words selectorWords, path *field.Path) field.ErrorList {
	at := path.Child("selector")
	errs := metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)
	switch {
	case selector == nil && words.required:
		errs = append(errs, field.Required(at, ""))
	case selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		errs = append(errs, field.Invalid(at, selector, "empty selector is invalid for "+words.kind))
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return append(errs, rule.Invalid(selector, at, words.unreadable)...)
	}
	if !s.Empty() && !s.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), template.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// checkTemplate checks a template whose pods are kept running.
func checkTemplate(template *corev1.PodTemplateSpec, what string, path *field.Path) field.ErrorList {
	errs := core.ValidatePodTemplate(template, path)
	if template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), template.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in "+what+" is not Supported"))
	}
	return errs
}

// warnTemplate gives the hints for a template that is new or changed, and for a name that pods can't bear well.
func warnTemplate(name string, template *corev1.PodTemplateSpec, create bool) []string {
	var out []string
	if messages := validation.IsDNS1123Label(name); create && len(messages) > 0 {
		out = append(out, fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", messages))
	}
	return append(out, core.WarnPodTemplate(template, field.NewPath("spec", "template"))...)
}

// amount is the number that an integer or percentage stands for: 0 for what is neither.
func amount(v *intstr.IntOrString) int {
	if v == nil {
		return 0
	}
	if percent, ok := rule.Percent(*v); ok {
		return percent
	}
	return v.IntValue()
}

// checkCounts checks the replica counts of a status: none below 0, none of the parts above the whole. ready is what the refusal calls the count of
// those that are ready.
func checkCounts(path *field.Path, whole int32, ready string, parts map[string]int32) field.ErrorList {
	errs := rule.NonNegative(whole, path.Child("replicas"))
	for name, n := range parts {
		errs = append(errs, rule.NonNegative(n, path.Child(name))...)
		if n > whole {
			errs = append(errs, field.Invalid(path.Child(name), n, "cannot be greater than status.replicas"))
		}
	}
	if available := parts["availableReplicas"]; available > parts["readyReplicas"] {
		errs = append(errs, field.Invalid(path.Child("availableReplicas"), available, "cannot be greater than "+ready))
	}
	return errs
}

// checkCollisions checks the count of hash collisions, which only grows.
func checkCollisions(now, was *int32, path *field.Path) field.ErrorList {
	errs := rule.NonNegativePtr(now, path)
	if was != nil && (now == nil || *now < *was) {
		value := int32(0)
		if now != nil {
			value = *now
		}
		errs = append(errs, field.Invalid(path, value, "cannot be decremented"))
	}
	return errs
}

// templateColumns are the wide columns that say what a kind's pods run.
func templateColumns[T any](template func(*T) *corev1.PodTemplateSpec) []kind.Column[T] {
	return []kind.Column[T]{
		{Name: "Containers", Priority: 1, Description: "Names of each container in the template.", Value: func(o *T, _ time.Time) any {
			return cell.ContainerNames(template(o).Spec.Containers)
		}},
		{Name: "Images", Priority: 1, Description: "Images referenced by each container in the template.", Value: func(o *T, _ time.Time) any {
			return cell.ContainerImages(template(o).Spec.Containers)
		}},
	}
}

func selectorText(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}

func defaultPtr[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}
