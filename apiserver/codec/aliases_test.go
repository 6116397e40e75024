package codec_test

import (
	"strings"
	"testing"

	"github.com/yare-project/yare/apiserver/codec"
)

func TestAliases(t *testing.T) {
	long := "k: &k " + strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		doc string
		ok  bool
	}{
		"none":               {"a: 1", true},
		"signs in text":      {"a: 'x & y * z'", true},
		"a few":              {"base: &b {cpu: 1}\none: *b\ntwo: {<<: *b, memory: 2}", true},
		"not YAML":           {"a: &b *c: [", true},
		"one long value":     {long + strings.Repeat("\n- *k", 1), true},
		"a long value again": {long + "\nl: [" + strings.Repeat("*k, ", 100) + "]", false},
		"laughs": {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]", false},
		"itself": {"a: &a [*a]", false},
	} {
		if err := codec.CheckAliases([]byte(c.doc)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
