package networking

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[networkingv1.IngressClass]{
	Names:    kind.Names{Plural: "ingressclasses"},
	Scope:    kind.Cluster,
	Default:  defaultIngressClass,
	Validate: validateIngressClass,
	NoName:   true,
	Columns: []kind.Column[networkingv1.IngressClass]{
		{Name: "Name", Format: "name", Description: "The class's name; the cluster's default is marked.",
			Value: func(c *networkingv1.IngressClass, _ time.Time) any {
				if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
					return c.Name + " (default)"
				}
				return c.Name
			}},
		{Name: "Controller", Description: "The controller that serves ingresses of this class.",
			Value: func(c *networkingv1.IngressClass, _ time.Time) any { return c.Spec.Controller }},
		{Name: "Parameters", Description: "The object with further parameters.",
			Value: func(c *networkingv1.IngressClass, _ time.Time) any { return parameters(c.Spec.Parameters) }},
	},
})

func parameters(p *networkingv1.IngressClassParametersReference) string {
	if p == nil {
		return cell.None
	}
	if p.APIGroup != nil {
		return p.Kind + "." + *p.APIGroup + "/" + p.Name
	}
	return p.Kind + "/" + p.Name
}

func defaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil && c.Spec.Parameters.Scope == nil {
		c.Spec.Parameters.Scope = ptr.To(networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

// maxController is the longest name of an ingress controller.
const maxController = 250

func validateIngressClass(c, old *networkingv1.IngressClass) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if old != nil {
		errs = rule.Immutable(c.Spec.Controller, old.Spec.Controller, path.Child("controller"))
	}
	if len(c.Spec.Controller) > maxController {
		errs = append(errs, field.TooLong(path.Child("controller"), c.Spec.Controller, maxController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	if c.Spec.Parameters != nil {
		errs = append(errs, validateParameters(c.Spec.Parameters, path.Child("parameters"))...)
	}
	return errs
}

func validateParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.APIGroup != nil {
		errs = append(errs, rule.Subdomain(*p.APIGroup, path.Child("apiGroup"))...)
	}
	errs = append(errs, requiredSegment(p.Kind, path.Child("kind"))...)
	errs = append(errs, requiredSegment(p.Name, path.Child("name"))...)
	scope, namespace := path.Child("scope"), path.Child("namespace")
	if p.Scope == nil {
		return append(errs, field.Required(scope, ""))
	}
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			return append(errs, field.Required(namespace, "`parameters.scope` is set to 'Namespace'"))
		}
		return append(errs, rule.Label(*p.Namespace, namespace)...)
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'"))
		}
		return errs
	}
	return append(errs, field.NotSupported(scope, *p.Scope, []string{"Cluster", "Namespace"}))
}
