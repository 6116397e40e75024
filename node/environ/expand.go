package environ

import (
	"fmt"
	"strings"
)

// Expand replaces $(NAME) by what lookup gives. An unknown reference stays as it is, and $$ is a literal $, so that $$(NAME) stays
// $(NAME). Source: the API documentation of EnvVar.value and Container.command.
func Expand(s string, lookup func(string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i += 2
		case '(':
			end := strings.IndexByte(s[i+2:], ')')
			if end < 0 {
				b.WriteString("$(")
				i += 2
				continue
			}
			name := s[i+2 : i+2+end]
			if v, ok := lookup(name); ok {
				b.WriteString(v)
			} else {
				b.WriteString("$(" + name + ")")
			}
			i += end + 3
		default:
			b.WriteByte('$')
			i++
		}
	}
	return b.String()
}

// ExpandAll expands each word with the variables of an environment.
func ExpandAll(words []string, env []Var) []string {
	if len(words) == 0 {
		return nil
	}
	lookup := Lookup(env)
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = Expand(w, lookup)
	}
	return out
}

// Lookup answers variables by name.
func Lookup(env []Var) func(string) (string, bool) {
	m := make(map[string]string, len(env))
	for _, v := range env {
		m[v.Name] = v.Value
	}
	return func(name string) (string, bool) {
		v, ok := m[name]
		return v, ok
	}
}

// parseFile finds a key in an environment file: lines of KEY='value', as the API documents for fileKeyRef; blank lines and lines that
// start with # are passed over. A value may span lines within its single quotes.
func parseFile(content, key string) (value string, found bool, err error) {
	rest := content
	for n := 1; rest != ""; n++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		name, raw, ok := strings.Cut(line, "=")
		if !ok || !strings.HasPrefix(raw, "'") {
			return "", false, fmt.Errorf("line %d: want KEY='value'", n)
		}
		raw = raw[1:]
		for !strings.Contains(raw, "'") {
			if rest == "" {
				return "", false, fmt.Errorf("line %d: the closing quote is missing", n)
			}
			line, rest, _ = strings.Cut(rest, "\n")
			raw, n = raw+"\n"+line, n+1
		}
		if strings.TrimSpace(name) == key {
			value, found = raw[:strings.IndexByte(raw, '\'')], true
		}
	}
	return value, found, nil
}
