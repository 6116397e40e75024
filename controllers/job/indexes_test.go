package job

import (
	"testing"

	"pgregory.net/rapid"
)

func TestIndexesRoundTrip(t *testing.T) {
	for text, want := range map[string]string{"": "", "0": "0", "0,1": "0,1", "0,1,2": "0-2", "1,3-5,7": "1,3-5,7", "5-3": "", "8-12": "8,9", "x,2": "2"} {
		if got := parseIndexes(text, 10).String(); got != want {
			t.Errorf("%q reads as %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := indexes{}
		for _, i := range rapid.SliceOf(rapid.IntRange(0, 60)).Draw(t, "indexes") {
			s[i] = true
		}
		if back := parseIndexes(s.String(), 61); back.String() != s.String() || len(back) != len(s) {
			t.Fatalf("%v became %v by way of %q", s, back, s.String())
		}
	})
}
