// Package rule holds the checks that the validation of many kinds is made of. Each returns the errors of one value at a path, worded as
// clients of the Kubernetes API know them. Every function is pure.
package rule

import (
	"cmp"
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NonNegative refuses a number below 0.
func NonNegative[N ~int | ~int32 | ~int64](n N, path *field.Path) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(int64(n), path)
}

// NonNegativePtr is NonNegative of an optional number.
func NonNegativePtr[N ~int | ~int32 | ~int64](n *N, path *field.Path) field.ErrorList {
	if n == nil {
		return nil
	}
	return NonNegative(*n, path)
}

// Positive refuses a number below 1.
func Positive[N ~int | ~int32 | ~int64](n N, path *field.Path) field.ErrorList {
	if n > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, n, "must be greater than zero")}
}

// Immutable refuses a change of a set value.
func Immutable(now, before any, path *field.Path) field.ErrorList {
	return apivalidation.ValidateImmutableField(now, before, path)
}

// OneOf refuses a value that is none of those allowed.
func OneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	sorted := slices.Clone(allowed)
	slices.SortFunc(sorted, cmp.Compare[T])
	return field.ErrorList{field.NotSupported(path, value, sorted)}
}

// InOrder is OneOf for a value whose choices are told in the order given, where those of OneOf are told sorted.
func InOrder[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// RequiredOneOf is OneOf that refuses an empty value as missing, with the choices as its detail.
func RequiredOneOf[T ~string](value T, path *field.Path, detail string, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, detail)}
	}
	return OneOf(value, path, allowed...)
}

// Invalid makes an error of each message that a checker of k8s.io/apimachinery/pkg/util/validation gave.
func Invalid(value any, path *field.Path, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// Subdomain checks a name that must be a DNS-1123 subdomain, as most objects' names.
func Subdomain(name string, path *field.Path) field.ErrorList {
	return Invalid(name, path, validation.IsDNS1123Subdomain(name))
}

// RequiredSubdomain is Subdomain that refuses an empty name as missing.
func RequiredSubdomain(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Subdomain(name, path)
}

// Label checks a name that must be a DNS-1123 label.
func Label(name string, path *field.Path) field.ErrorList {
	return Invalid(name, path, validation.IsDNS1123Label(name))
}

// QualifiedName checks a key such as example.com/name.
func QualifiedName(name string, path *field.Path) field.ErrorList {
	return Invalid(name, path, validation.IsQualifiedName(name))
}

// PathSegment checks a name that stands in a URL path: any but ".", ".." and those with "/" or "%".
func PathSegment(name string) []string { return pathSegment(name, false) }

func pathSegment(name string, prefix bool) []string {
	var out []string
	if !prefix && (name == "." || name == "..") {
		out = append(out, fmt.Sprintf("may not be '%s'", name))
	}
	for _, c := range []rune{'/', '%'} {
		if slices.Contains([]rune(name), c) {
			out = append(out, fmt.Sprintf("may not contain '%c'", c))
		}
	}
	return out
}

// PathSegmentName is a Def's ValidateName for objects whose name is a path segment.
func PathSegmentName(name string, prefix bool) []string { return pathSegment(name, prefix) }

// Selector checks an optional label selector. strict also checks the values it compares with.
func Selector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// Port checks a port number.
func Port[N ~int | ~int32](n N, path *field.Path) field.ErrorList {
	return Invalid(n, path, validation.IsValidPortNum(int(n)))
}

// IntOrPercent checks a whole number of at least 0, or a percentage of at most 100.
func IntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch v.Type {
	case intstr.String:
		errs = Invalid(v.StrVal, path, validation.IsValidPercent(v.StrVal))
	case intstr.Int:
		errs = NonNegative(v.IntVal, path)
	default:
		errs = field.ErrorList{field.Invalid(path, v, "must be an integer or percentage (e.g '5%%')")}
	}
	if percent, ok := Percent(v); ok && percent > 100 {
		errs = append(errs, field.Invalid(path, v, "must not be greater than 100%"))
	}
	return errs
}

// Percent is the number of a percentage; ok is false for anything else.
func Percent(v intstr.IntOrString) (percent int, ok bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	_, err := fmt.Sscanf(v.StrVal, "%d%%", &percent)
	return percent, err == nil
}
