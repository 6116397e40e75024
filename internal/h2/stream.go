package h2

import (
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/net/http2"
)

// gathered is the largest body that is read whole before its handler starts.
const gathered = 64 << 10

// stream is one request and its answer. It is the request's context too (context.go). Fields below mu's line are under the connection's mutex.
type stream struct {
	life
	id     uint32
	conn   *conn
	req    *http.Request
	length int64 // declared length of the body; -1 if none is
	expect bool  // the client waits for a 100 before it sends the body
	early  int   // an answer that needs no handler, by its code

	// under conn.mu
	window  int64         // what the peer's window for this stream lets through
	room    chan struct{} // told when there may be room to write again
	credit  int32         // bytes of body that the peer may still send
	owed    int32
	in      []byte // body not yet read
	got     int64
	ready   chan struct{} // told when there may be more body
	ended   bool          // the request is complete
	repaid  bool          // the connection's credit for the body was given back as it came
	started bool          // a handler has it
	gone    error         // why nobody waits for the answer any more
	readBy  time.Time     // when the body must have come; zero: whenever
	writeBy time.Time     // when what is written must have been taken; zero: whenever
}

// gathers tells whether the body is awaited before the handler starts.
func (st *stream) gathers() bool {
	return st.early == 0 && !st.ended && !st.expect && st.length > 0 && st.length <= gathered
}

// drop ends a stream whose answer nobody awaits. The caller holds mu.
func (c *conn) drop(id uint32, st *stream, why error) {
	delete(c.streams, id)
	if !st.started {
		c.held -= int32(len(st.in))
	} else if !st.repaid {
		c.repay(int32(len(st.in)))
	}
	st.in = nil
	st.gone = why
	st.signalRoom()
	st.signalBody()
	c.vacant()
	if st.started {
		go st.cancel(why) // outside of mu: it runs other people's functions
	}
}

// vacant notes when the last stream ended. The caller holds mu.
func (c *conn) vacant() {
	if len(c.streams) == 0 {
		c.idleSince = c.cfg.Clock.Now()
		c.ended()
	}
}

// wait sleeps until a signal or the deadline that by tells, which may move meanwhile. The caller holds conn.mu, which is let go meanwhile. The
// error is os.ErrDeadlineExceeded. Most streams never wait, and have no signal until they do.
func (st *stream) wait(on *chan struct{}, by *time.Time) error {
	c := st.conn
	if *on == nil {
		*on = make(chan struct{}, 1)
	}
	signal := *on
	if by.IsZero() {
		c.mu.Unlock()
		<-signal
		c.mu.Lock()
		return nil
	}
	left := time.Until(*by)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	c.mu.Unlock()
	select {
	case <-signal:
	case <-timer.C:
	}
	c.mu.Lock()
	return nil
}

// signalRoom and signalBody wake who waits. The caller holds conn.mu.
func (st *stream) signalRoom() { signal(st.room) }
func (st *stream) signalBody() { signal(st.ready) }

func signal(on chan struct{}) {
	select {
	case on <- struct{}{}:
	default: // also if nobody ever waited
	}
}

// repay gives the peer back n bytes of the stream's window. The caller holds conn.mu.
func (st *stream) repay(n int32) {
	c := st.conn
	if st.owed += n; st.owed >= c.cfg.StreamWindow/2 && !st.ended && st.gone == nil {
		c.update(st.id, uint32(st.owed))
		st.credit += st.owed
		st.owed = 0
		c.kick()
	}
}

// serve runs the handler and ends the answer.
func (st *stream) serve() {
	w := newResponse(st)
	ok := false
	defer func() {
		if !ok {
			st.crashed(recover())
		}
		st.finish(w, ok)
	}()
	if st.early != 0 {
		w.refuse(st.early)
	} else {
		st.conn.handler.ServeHTTP(w, st.req)
	}
	w.end()
	ok = true
}

// crashed logs a handler's panic, but for the one that says "cut the answer".
func (st *stream) crashed(p any) {
	if p != nil && p != http.ErrAbortHandler {
		st.conn.cfg.Log.Error("a handler panicked", "method", st.req.Method, "path", st.req.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// finish takes the stream out of its connection.
func (st *stream) finish(w *response, ok bool) {
	c := st.conn
	c.mu.Lock()
	c.handlers--
	if c.streams[st.id] == st {
		delete(c.streams, st.id)
		if !st.repaid {
			c.repay(int32(len(st.in)))
		}
		switch {
		case !ok || !w.complete:
			c.reset(st.id, http2.ErrCodeInternal)
			c.kick()
		case !st.ended:
			c.reset(st.id, http2.ErrCodeNo) // the answer is whole: the rest of the request is not wanted (RFC 9113, 8.1)
			c.kick()
		}
		st.in = nil
		st.gone = errReset
		c.vacant()
	}
	c.mu.Unlock()
	w.free()
	st.cancel(errReset)
}
