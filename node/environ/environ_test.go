package environ

import "testing"

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "two", "EMPTY": ""}
	lookup := func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
	for in, want := range map[string]string{
		"plain": "plain", "$(A)": "1", "x$(A)y$(B)z": "x1ytwoz", "$$(A)": "$(A)", "$$$(A)": "$1", "$(NONE)": "$(NONE)", "$(A": "$(A", "$": "$",
		"$A": "$A", "$(EMPTY)|": "|", "$()": "$()", "a$$b": "a$b", "$($(A))": "$($(A))", "100$": "100$",
	} {
		if got := Expand(in, lookup); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEnvironmentFile(t *testing.T) {
	file := "# comment\n\nA='one'\nB='two words'\nMULTI='x\ny'\nA='last wins'\n"
	for key, want := range map[string]string{"A": "last wins", "B": "two words", "MULTI": "x\ny"} {
		if got, ok, err := parseFile(file, key); err != nil || !ok || got != want {
			t.Errorf("%s: %q %v %v, want %q", key, got, ok, err, want)
		}
	}
	if _, ok, err := parseFile(file, "C"); ok || err != nil {
		t.Errorf("a missing key: %v %v", ok, err)
	}
	for _, bad := range []string{"A=unquoted\n", "A='open", "nonsense"} {
		if _, _, err := parseFile(bad, "A"); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$", "$(", "$()$", "((A))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		Expand(s, func(string) (string, bool) { return "v", true }) // must not panic
	})
}
