package jointoken

import "testing"

// FuzzParse takes tokens as users mistype them. One that is taken has one spelling.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "abcdef.0123456789abcdef", "abcdef.0123456789abcdef::sha256:00", "K10::x", "a.b.c", "sha256:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(token.String())
		if err != nil || again != token {
			t.Errorf("%q was read as %v, whose own spelling is read as %v (%v)", text, token, again, err)
		}
	})
}
