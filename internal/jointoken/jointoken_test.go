package jointoken

import (
	"strings"
	"testing"
)

var pin = "sha256:" + strings.Repeat("0a", 32)

func TestATokenReadsAsItWasWritten(t *testing.T) {
	want, err := New(pin)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(want.String() + "\n")
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestTwoTokensDiffer(t *testing.T) {
	a, _ := New(pin)
	b, _ := New(pin)
	if a.Secret == b.Secret || a.ID == b.ID {
		t.Errorf("%v and %v share a part", a, b)
	}
}

func TestWhatIsNoTokenIsRefused(t *testing.T) {
	good, _ := New(pin)
	for _, text := range []string{"", "abc", good.Bearer(), strings.ToUpper(good.String()), good.String() + "x", "K10::" + good.Bearer()} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), "yare token create") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
