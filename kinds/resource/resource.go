// Package resource declares the kinds of the group resource.k8s.io: devices that drivers publish, classes of them, and claims of pods on them.
//
// Selectors are compiled when they are written: one that is no CEL, or could cost too much to evaluate, is refused.
package resource

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

// Group is resource.k8s.io.
var Group = kind.Group{Name: "resource.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{resourcev1.AddToScheme}}

// each checks a list of at most limit items; key tells items that must differ, nil means that any may.
func each[T any](list []T, limit int, key func(*T) string, check func(*T, *field.Path) field.ErrorList, path *field.Path) field.ErrorList {
	if len(list) > limit {
		return field.ErrorList{field.TooMany(path, len(list), limit)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range list {
		errs = append(errs, check(&list[i], path.Index(i))...)
		if key == nil {
			continue
		}
		k := key(&list[i])
		if seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

func text(s *string) string { return *s }

func validateDriver(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DriverNameMaxLength))
	}
	return append(errs, rule.Invalid(name, path, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validatePool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, rule.Subdomain(part, path)...)
	}
	return errs
}

// validateQualified checks the name of an attribute or a capacity: an identifier, with the driver's domain before it if it is another's.
func validateQualified(name string, path *field.Path) field.ErrorList {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		return validateIdentifier(name, path)
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
	} else {
		errs = append(errs, validateDriver(domain, path)...)
	}
	if id == "" {
		return append(errs, field.Invalid(path, "", "the name must not be empty"))
	}
	return append(errs, validateIdentifier(id, path)...)
}

func validateFullyQualified(name string, path *field.Path) field.ErrorList {
	errs := validateQualified(name, path)
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs
}

func validateIdentifier(id string, path *field.Path) field.ErrorList {
	errs := rule.Invalid(id, path, validation.IsCIdentifier(id))
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return errs
}

// validateSelectors compiles what is new in the language of today, and what is stored already in that of every release.
func validateSelectors(selectors []resourcev1.DeviceSelector, stored bool, path *field.Path) field.ErrorList {
	return each(selectors, resourcev1.DeviceSelectorsMaxSize, nil, func(s *resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
		switch expression := at.Child("cel", "expression"); {
		case s.CEL == nil:
			return field.ErrorList{field.Required(at.Child("cel"), "")}
		case len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength:
			return field.ErrorList{field.TooLong(expression, "", resourcev1.CELSelectorExpressionMaxLength)}
		default:
			return validateExpression(s.CEL.Expression, stored, expression)
		}
	}, path)
}

func validateConfiguration(c *resourcev1.DeviceConfiguration, path *field.Path) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(path.Child("opaque"), "")}
	}
	errs := validateDriver(c.Opaque.Driver, path.Child("opaque", "driver"))
	parameters := path.Child("opaque", "parameters")
	switch raw := c.Opaque.Parameters.Raw; {
	case len(raw) == 0:
		errs = append(errs, field.Required(parameters, ""))
	case len(raw) > resourcev1.OpaqueParametersMaxLength:
		errs = append(errs, field.TooLong(parameters, "", resourcev1.OpaqueParametersMaxLength))
	case raw[0] != '{':
		errs = append(errs, field.Invalid(parameters, "<value omitted>", "must be a valid JSON object"))
	}
	return errs
}

// requests maps each request's name to the names of its alternatives.
type requests map[string][]string

func requestsOf(claim *resourcev1.DeviceClaim) requests {
	out := requests{}
	for _, r := range claim.Requests {
		out[r.Name] = nil
		for _, s := range r.FirstAvailable {
			out[r.Name] = append(out[r.Name], s.Name)
		}
	}
	return out
}

// check accepts the name of a request, or of a request and one of its alternatives.
func (r requests) check(name string, path *field.Path) field.ErrorList {
	unknown := field.Invalid(path, name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'")
	if strings.Count(name, "/") > 1 {
		return field.ErrorList{unknown}
	}
	request, sub, hasSub := strings.Cut(name, "/")
	errs := rule.Label(request, path)
	if hasSub {
		errs = append(errs, rule.Label(sub, path)...)
	}
	if subs, ok := r[request]; !ok || hasSub && !slices.Contains(subs, sub) {
		errs = append(errs, unknown)
	}
	return errs
}

func (r requests) checkAll(names []string, path *field.Path) field.ErrorList {
	return each(names, resourcev1.DeviceRequestsMaxSize, text, func(n *string, at *field.Path) field.ErrorList { return r.check(*n, at) }, path)
}

// exactlyOne refuses none or several of a union's alternatives.
func exactlyOne(path *field.Path, choices string, set ...bool) field.ErrorList {
	n := 0
	for _, s := range set {
		if s {
			n++
		}
	}
	switch n {
	case 0:
		return field.ErrorList{field.Required(path, fmt.Sprintf("exactly one of %s is required", choices))}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(path, field.OmitValueType{}, fmt.Sprintf("exactly one of %s is required, but multiple fields are set", choices))}
}
