package admissionregistration

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

// validateMatch checks a policy's or a binding's choice of requests. A mutating one cannot choose deletions: there is nothing to change.
func validateMatch(m *admissionv1.MatchResources, mutating bool, path *field.Path) field.ErrorList {
	errs := rule.OneOf(ptr.Deref(m.MatchPolicy, ""), path.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)
	if m.NamespaceSelector == nil {
		errs = append(errs, field.Required(path.Child("namespaceSelector"), ""))
	}
	errs = append(errs, rule.Selector(m.NamespaceSelector, path.Child("namespaceSelector"))...)
	if m.ObjectSelector == nil {
		errs = append(errs, field.Required(path.Child("objectSelector"), ""))
	}
	errs = append(errs, rule.Selector(m.ObjectSelector, path.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
		for _, o := range m.ResourceRules[i].Operations {
			if mutating { // what is deleted can't be changed any more
				errs = append(errs, rule.OneOf(o, path.Child("resourceRules", "operations"), admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update)...)
			}
		}
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateNamedRule(r *admissionv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		errs = append(errs, rule.Invalid(name, at, rule.PathSegment(name))...)
		if slices.Contains(r.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
	}
	return append(errs, validateOperations(&r.RuleWithOperations, path)...)
}

func validateParamKind(k *admissionv1.ParamKind, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	version := path.Child("apiVersion")
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(version, ""))
	case err != nil:
		errs = append(errs, field.Invalid(version, k.APIVersion, err.Error()))
	default:
		if messages := validation.IsDNS1123Subdomain(gv.Group); gv.Group != "" && len(messages) > 0 {
			errs = append(errs, field.Invalid(version, gv.Group, strings.Join(messages, ",")))
		}
		if gv.Version == "" {
			errs = append(errs, field.Invalid(version, k.APIVersion, "version must be specified"))
		} else if messages := validation.IsDNS1035Label(gv.Version); len(messages) > 0 {
			errs = append(errs, field.Invalid(version, gv.Version, strings.Join(messages, ",")))
		}
	}
	if k.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	if messages := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(messages) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(messages, ",")))
	}
	return errs
}

func validateParamRef(r *admissionv1.ParamRef, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	const exclusive = "name and selector are mutually exclusive"
	switch named, selects := r.Name != "", r.Selector != nil; {
	case named && selects:
		errs = append(errs, field.Forbidden(path.Child("name"), exclusive), field.Forbidden(path.Child("selector"), exclusive))
	case !named && !selects:
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	if r.Name != "" {
		errs = append(errs, rule.Invalid(r.Name, path.Child("name"), rule.PathSegment(r.Name))...)
	}
	errs = append(errs, rule.Selector(r.Selector, path.Child("selector"))...)
	if ptr.Deref(r.ParameterNotFoundAction, "") == "" {
		return append(errs, field.Required(path.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, rule.InOrder(*r.ParameterNotFoundAction, path.Child("parameterNotFoundAction"), admissionv1.DenyAction, admissionv1.AllowAction)...)
}

// paramKind and paramRef are the cells of a policy's and a binding's parameters.
func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return cell.Unset
	}
	return k.APIVersion + "/" + k.Kind
}

func paramRef(r *admissionv1.ParamRef) string {
	switch {
	case r == nil:
		return cell.Unset
	case r.Name != "" && r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return "*/" + r.Name
	case r.Selector != nil:
		return r.Selector.String()
	}
	return cell.Unset
}
