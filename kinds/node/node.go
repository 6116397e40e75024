// Package node declares the kinds of the group node.k8s.io: the RuntimeClass.
package node

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

// Group is node.k8s.io.
var Group = kind.Group{Name: "node.k8s.io", Versions: []string{"v1"}, AnyFinalizer: true, AddToScheme: []func(*runtime.Scheme) error{nodev1.AddToScheme}}

var _ = kind.Add(&Group, kind.Def[nodev1.RuntimeClass]{
	Names:          kind.Names{Plural: "runtimeclasses"},
	Scope:          kind.Cluster,
	CreateOnUpdate: true,
	RequireVersion: true,
	Validate:       validateRuntimeClass,
	Columns: []kind.Column[nodev1.RuntimeClass]{
		{Name: "Handler", Description: nodev1.RuntimeClass{}.SwaggerDoc()["handler"],
			Value: func(c *nodev1.RuntimeClass, _ time.Time) any { return c.Handler }},
	},
})

func validateRuntimeClass(c, old *nodev1.RuntimeClass) field.ErrorList {
	handler := field.NewPath("handler")
	var errs field.ErrorList
	if c.Handler == "" {
		errs = append(errs, field.Required(handler, ""))
	} else {
		errs = append(errs, rule.Label(c.Handler, handler)...)
	}
	if c.Overhead != nil {
		errs = append(errs, validateOverhead(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if c.Scheduling != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(c.Scheduling.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(c.Scheduling.Tolerations, path.Child("tolerations"))...)
	}
	if old != nil {
		errs = append(errs, rule.Immutable(c.Handler, old.Handler, handler)...)
	}
	return errs
}

func validateOverhead(resources corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, quantity := range resources {
		at := path.Key(string(name))
		errs = append(errs, rule.QualifiedName(string(name), at)...)
		if !strings.Contains(string(name), "/") {
			errs = append(errs, validateStandardResource(name, at)...)
		}
		if quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}

func validateStandardResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	switch {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be a standard resource for containers")}
}

func validateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	errs := core.ValidateTolerations(tolerations, path)
	type key struct {
		key, value string
		operator   corev1.TolerationOperator
		effect     corev1.TaintEffect
	}
	seen := map[key]bool{}
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		k := key{t.Key, t.Value, t.Operator, t.Effect}
		if seen[k] {
			errs = append(errs, field.Duplicate(at, *t))
		}
		seen[k] = true
	}
	return errs
}
