package h2_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// prompt is what handlers find in this package's answers.
type prompt interface {
	Offer(p []byte) bool
	Push()
}

// What is offered arrives in order with what is written; an offer that would have to wait is refused whole.
func TestOffersNeverWait(t *testing.T) {
	taken := make(chan int, 1)
	read := make(chan struct{})
	srv := start(t, true, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p := w.(prompt)
		if p.Offer([]byte("early")) {
			t.Error("an offer was taken before the header had gone")
		}
		_ = http.NewResponseController(w).Flush()
		for _, text := range []string{"one\n", "two\n", strings.Repeat("x", 40<<10) + "\n"} {
			if !p.Offer([]byte(text)) {
				t.Errorf("an offer of %d bytes was refused", len(text))
			}
		}
		p.Push()
		_, _ = io.WriteString(w, "written\n")
		if p.Offer([]byte("too early\n")) {
			t.Error("an offer overtook what was written and not flushed")
		}
		_ = http.NewResponseController(w).Flush()
		n := 0
		for ; n < 10_000 && p.Offer([]byte(strings.Repeat("y", 1023)+"\n")); n++ {
			p.Push()
		}
		taken <- n
		<-read
		_, _ = io.WriteString(w, "end\n")
	}))
	res, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	n := <-taken // nobody has read until now
	if n == 10_000 {
		t.Fatal("10 MB were taken for a client that does not read")
	}
	close(read)
	var got []string
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		got = append(got, in.Text())
	}
	if len(got) != n+5 || got[0] != "one" || got[1] != "two" || len(got[2]) != 40<<10 || got[3] != "written" || got[len(got)-1] != "end" {
		t.Errorf("%d lines arrived of %d, beginning with %.40q", len(got), n+5, got)
	}
}
