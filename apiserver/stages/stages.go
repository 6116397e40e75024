// Package stages measures where the time of one request goes, for a client that asks for it.
//
// A request with the header [Header] is answered with the header Server-Timing (W3C Server Timing), which has the milliseconds of each stage up to the
// moment when the answer is sent. A nil *Trace measures nothing and costs a comparison, so that requests nobody asks about pay nothing.
//
// What is measured is time that passed, not time that a processor worked: a stage that waits (for its turn, for the disk) shows it. A Trace belongs to one
// request and is not safe for concurrent use.
package stages

import (
	"net/http"
	"strconv"
	"time"
)

// Header asks for the measurement; its value does not matter.
const Header = "X-Yare-Stages"

// Answer is the header with the result.
const Answer = "Server-Timing"

// Trace is where the time of one request went so far.
type Trace struct {
	last  time.Time
	spent []span
}

type span struct {
	stage string
	took  time.Duration
}

// Of begins a trace if the request asks for one, else it is nil.
func Of(req *http.Request) *Trace {
	if _, asked := req.Header[Header]; !asked {
		return nil
	}
	return &Trace{last: time.Now(), spent: make([]span, 0, 16)}
}

// Mark ends a stage: what passed since the last mark is its. A stage that comes again, as when a write lost a race, adds up.
func (t *Trace) Mark(stage string) {
	if t != nil {
		t.mark(stage)
	}
}

func (t *Trace) mark(stage string) {
	now := time.Now()
	took := now.Sub(t.last)
	t.last = now
	for i := range t.spent {
		if t.spent[i].stage == stage {
			t.spent[i].took += took
			return
		}
	}
	t.spent = append(t.spent, span{stage, took})
}

// Write puts the result into the answer's headers, in the order in which the stages first came.
func (t *Trace) Write(h http.Header) {
	if t == nil {
		return
	}
	text := make([]byte, 0, 256)
	for i, s := range t.spent {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(text, s.stage...)
		text = append(text, ";dur="...)
		text = strconv.AppendFloat(text, float64(s.took)/float64(time.Millisecond), 'f', 4, 64)
	}
	h.Set(Answer, string(text))
}
