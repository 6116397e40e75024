package core

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/internal/plain"
)

// problems collects what is wrong with an object, so that a client sees everything at once. The zero value is ready for use.
type problems struct{ list field.ErrorList }

func (p *problems) add(list ...*field.Error) {
	for _, e := range list {
		if e != nil {
			p.list = append(p.list, e)
		}
	}
}

func (p *problems) required(path *field.Path, why string)  { p.add(field.Required(path, why)) }
func (p *problems) forbidden(path *field.Path, why string) { p.add(field.Forbidden(path, why)) }
func (p *problems) invalid(path *field.Path, value any, why string) {
	p.add(field.Invalid(path, value, why))
}

// needs reports whether a text is there, and complains if not.
func (p *problems) needs(path *field.Path, value string) bool {
	if value == "" {
		p.required(path, "")
	}
	return value != ""
}

// each turns the messages of a name check into problems.
func (p *problems) each(path *field.Path, value any, messages []string) {
	for _, m := range messages {
		p.invalid(path, value, m)
	}
}

func (p *problems) label(path *field.Path, value string) {
	if !plain.Label(value) {
		p.each(path, value, validation.IsDNS1123Label(value))
	}
}

func (p *problems) subdomain(path *field.Path, value string) {
	if !plain.Subdomain(value) {
		p.each(path, value, validation.IsDNS1123Subdomain(value))
	}
}

func (p *problems) qualified(path *field.Path, value string) {
	if !plain.Key(value) {
		p.each(path, value, validation.IsQualifiedName(value))
	}
}

// neededLabel checks a DNS label that may not be empty.
func (p *problems) neededLabel(path *field.Path, value string) {
	if p.needs(path, value) {
		p.label(path, value)
	}
}

// neededSubdomain checks a DNS subdomain that may not be empty.
func (p *problems) neededSubdomain(path *field.Path, value string) {
	if p.needs(path, value) {
		p.subdomain(path, value)
	}
}

// ip checks an address. One that was there before passes, whatever older rules let in.
func (p *problems) ip(path *field.Path, value string, before ...string) {
	p.add(validation.IsValidIPForLegacyField(path, value, true, before)...)
}

// cidr checks a range of addresses, as ip does.
func (p *problems) cidr(path *field.Path, value string, before ...string) {
	p.add(validation.IsValidCIDRForLegacyField(path, value, true, before)...)
}

func (p *problems) notNegative(path *field.Path, value int64) {
	if value < 0 {
		p.invalid(path, value, mustNotBeNegative)
	}
}

func (p *problems) positive(path *field.Path, value int64) {
	if value <= 0 {
		p.invalid(path, value, mustBePositive)
	}
}

func (p *problems) between(path *field.Path, value, low, high int64) {
	if value < low || value > high {
		p.invalid(path, value, validation.InclusiveRangeError(int(low), int(high)))
	}
}

// mode checks the permission bits of a file.
func (p *problems) mode(path *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		p.invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

const (
	mustNotBeNegative = "must be greater than or equal to 0"
	mustBePositive    = "must be greater than zero"
	isImmutable       = "field is immutable"
	onlyOneVolume     = "may not specify more than 1 volume type"
)

// oneOf checks a value that must be one of a few.
func oneOf[T ~string](p *problems, path *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		p.add(field.NotSupported(path, value, slices.Sorted(slices.Values(allowed))))
	}
}

// inOrder is oneOf for a value whose choices are told in the order given, where others are told sorted.
func inOrder[T ~string](p *problems, path *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		p.add(field.NotSupported(path, value, allowed))
	}
}

// neededInOrder is inOrder for a value that must be there.
func neededInOrder[T ~string](p *problems, path *field.Path, value T, allowed ...T) {
	if value == "" {
		p.required(path, "")
		return
	}
	inOrder(p, path, value, allowed...)
}

// neededOneOf checks a value that must be there and one of a few.
func neededOneOf[T ~string](p *problems, path *field.Path, value T, allowed ...T) {
	if value == "" {
		p.required(path, "")
		return
	}
	oneOf(p, path, value, allowed...)
}

// optionalOneOf checks a value that may be left out.
func optionalOneOf[T ~string](p *problems, path *field.Path, value *T, allowed ...T) {
	if value != nil {
		oneOf(p, path, *value, allowed...)
	}
}
