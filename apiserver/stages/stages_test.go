package stages

import (
	"net/http"
	"regexp"
	"testing"
)

func TestOnlyWhoAsksIsMeasured(t *testing.T) {
	h := http.Header{}
	var none *Trace
	if none = Of(&http.Request{Header: http.Header{}}); none != nil {
		t.Fatal("a request that asks for nothing is measured")
	}
	none.Mark("decode")
	none.Write(h)
	if len(h) > 0 {
		t.Errorf("headers %v", h)
	}
	if n := testing.AllocsPerRun(100, func() { none.Mark("decode") }); n > 0 {
		t.Errorf("a mark that measures nothing allocates %v times", n)
	}
}

func TestStagesAddUpInOrder(t *testing.T) {
	trace := Of(&http.Request{Header: http.Header{Header: {"1"}}})
	for _, stage := range []string{"decode", "store", "decode"} {
		trace.Mark(stage)
	}
	h := http.Header{}
	trace.Write(h)
	if got := h.Get(Answer); !regexp.MustCompile(`^decode;dur=\d+\.\d{4}, store;dur=\d+\.\d{4}$`).MatchString(got) {
		t.Errorf("%s: %q", Answer, got)
	}
}
