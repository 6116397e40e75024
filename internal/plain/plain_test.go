package plain

import (
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// check compares with the API's own validators: whatever is called plain, they accept; and the usual names are called plain.
func check(t *testing.T, s string) {
	t.Helper()
	for name, c := range map[string]struct {
		plain bool
		valid func(string) []string
	}{
		"label":     {Label(s), validation.IsDNS1123Label},
		"subdomain": {Subdomain(s), validation.IsDNS1123Subdomain},
		"value":     {Value(s), validation.IsValidLabelValue},
		"key":       {Key(s), validation.IsQualifiedName},
	} {
		if ok := len(c.valid(s)) == 0; ok != c.plain {
			t.Errorf("%s %q: plain %v, valid %v", name, s, c.plain, ok)
		}
	}
}

func TestPlainIsWhatTheAPIAccepts(t *testing.T) {
	for _, s := range []string{"", "a", "A", "a-b", "-a", "a-", "a.b", "a..b", ".a", "a.", "a/b", "/b", "a/", "a/b/c", "A/b", "a_b", "_a", "a.example.com/B_c.d", "é", "a b",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 127) + "a", strings.Repeat("a", 64) + ".b",
		strings.Repeat("a.", 126) + "a/b", strings.Repeat("a.", 127) + "a/b", "a\n"} {
		check(t, s)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const letters = "abcAZ09-_./:é "
	for range 20000 {
		var b strings.Builder
		for range r.IntN(8) {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
		check(t, b.String())
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("app.kubernetes.io/name")
	f.Fuzz(func(t *testing.T, s string) { check(t, s) })
}
