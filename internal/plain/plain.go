// Package plain tells valid names from others as the API's own validators do, without their regular expressions, which cost a hundred times as
// much. It finds no words for what is wrong: for those, ask the validators.
//
// The functions are pure.
package plain

import "strings"

const (
	maxLabel     = 63
	maxSubdomain = 253
)

// Label tells whether s is a DNS label (RFC 1123).
func Label(s string) bool { return len(s) <= maxLabel && shaped(s) }

// shaped tells whether s is a DNS label but for its length, which the API does not limit inside of a subdomain.
func shaped(s string) bool {
	if len(s) == 0 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// Subdomain tells whether s is a DNS subdomain (RFC 1123): labels joined by dots.
func Subdomain(s string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	for {
		label, rest, more := strings.Cut(s, ".")
		if !shaped(label) {
			return false
		}
		if !more {
			return true
		}
		s = rest
	}
}

// Value tells whether s is a label's value, or the name part of its key if it is not empty.
func Value(s string) bool {
	if len(s) == 0 {
		return true
	}
	if len(s) > maxLabel || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// Key tells whether s is a qualified name, as the keys of labels and annotations are: an optional subdomain, a slash, a name.
func Key(s string) bool {
	prefix, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return s != "" && Value(s)
	}
	return name != "" && Value(name) && Subdomain(prefix)
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
