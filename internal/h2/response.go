package h2

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pending is how much of a body waits for more before it is sent, so that short answers go out with their header in one piece.
const pending = 4 << 10

// memory is what an answer needs while it is made.
type memory struct {
	buf    []byte
	frozen http.Header
}

var memories = sync.Pool{New: func() any { return &memory{make([]byte, 0, pending), make(http.Header, 16)} }}

// response is a handler's http.ResponseWriter. It is for one goroutine at a time, as that of net/http.
type response struct {
	st       *stream
	header   http.Header
	status   int
	frozen   http.Header // the header as it was at WriteHeader, until it is sent
	sent     bool        // the header has gone
	declared int64       // content length that the handler declared; -1 if none
	written  int64
	buf      *[]byte // memory's
	memory   *memory
	bulk     *bulk // of a long answer, instead of buf
	closed   bool  // the end of the stream has gone
	complete bool  // all that was declared has gone
	over     bool  // the handler has returned
}

func newResponse(st *stream) *response {
	m := memories.Get().(*memory)
	return &response{st: st, header: make(http.Header, 8), declared: -1, memory: m, buf: &m.buf}
}

func (w *response) free() {
	w.memory.buf = w.memory.buf[:0]
	clear(w.memory.frozen)
	memories.Put(w.memory)
	w.memory, w.buf, w.frozen = nil, nil, nil
	if w.bulk != nil {
		w.bulk.n = 0
		bulks.Put(w.bulk)
		w.bulk = nil
	}
	w.over = true
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(code int) {
	switch {
	case code < 100 || code > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", code))
	case w.status != 0 || w.over:
		return
	case code < 200:
		w.inform(code)
		return
	}
	w.status = code
	w.frozen = w.memory.frozen
	maps.Copy(w.frozen, w.header) // the values stay: who sets others sets other lists
	if text := w.frozen.Get("Content-Length"); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			w.declared = n
		} else {
			w.frozen.Del("Content-Length")
		}
	}
	if w.declared >= long && w.frozen.Get("Content-Type") != "" && !w.bodiless() {
		w.bulk = bulks.Get().(*bulk)
	}
}

// inform sends an interim answer.
func (w *response) inform(code int) {
	c := w.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.st.gone == nil {
		c.headers(w.st, code, w.header, false)
		c.kick()
	}
}

// bodiless tells whether the answer may have no body.
func (w *response) bodiless() bool {
	return w.st.req.Method == http.MethodHead || w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	if w.over {
		return 0, errors.New("h2: the request has ended")
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.declared >= 0 && w.written+int64(len(p)) > w.declared && w.st.req.Method != http.MethodHead {
		return 0, http.ErrContentLength
	}
	if w.bodiless() {
		if w.st.req.Method != http.MethodHead {
			return 0, http.ErrBodyNotAllowed
		}
		w.written += int64(len(p))
		return len(p), nil
	}
	if w.bulk != nil {
		return w.writeBulk(p)
	}
	w.written += int64(len(p))
	if len(*w.buf)+len(p) <= pending {
		*w.buf = append(*w.buf, p...)
		return len(p), nil
	}
	if err := w.flush(p, w.written == w.declared && !w.hasTrailers()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w *response) FlushError() error {
	if w.over {
		return errors.New("h2: the request has ended")
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.bulk != nil && w.bulk.n > 0 {
		return w.sendBulk(false)
	}
	return w.flush(nil, false)
}

// refuse answers without a handler.
func (w *response) refuse(code int) {
	w.header.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(http.StatusText(code) + "\n"))
}

// end sends what is left of the answer.
func (w *response) end() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.closed {
		return
	}
	if w.bulk != nil && w.bulk.n > 0 && w.sendBulk(false) != nil {
		return
	}
	if !w.sent && w.declared < 0 && !w.bodiless() && !w.hasTrailers() {
		w.frozen.Set("Content-Length", strconv.Itoa(len(*w.buf)))
	}
	if trailers := w.trailers(); trailers != nil {
		if w.flush(nil, false) == nil {
			w.sendTrailers(trailers)
		}
		return
	}
	_ = w.flush(nil, true) // a client that has gone cannot be told
}

// flush sends the header if it has not gone, what is pending, and p; last ends the stream.
func (w *response) flush(p []byte, last bool) error {
	c, st := w.st.conn, w.st
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.gone != nil {
		return st.gone
	}
	if !w.sent {
		w.sent = true
		empty := len(*w.buf) == 0 && len(p) == 0
		w.dress()
		w.depart()
		c.headers(st, w.status, w.frozen, last && empty)
		w.frozen = nil
		if last && empty {
			w.close()
		}
		if empty {
			c.kick()
			return nil
		}
	}
	if len(*w.buf) > 0 {
		err := c.data(st, *w.buf, last && len(p) == 0)
		*w.buf = (*w.buf)[:0]
		if err != nil {
			return err
		}
	} else if len(p) == 0 && last {
		c.frame(http2.FrameData, http2.FlagDataEndStream, st.id, 0)
	}
	if len(p) > 0 {
		if err := c.data(st, p, last); err != nil {
			return err
		}
	}
	if last {
		w.close()
	}
	c.kick()
	return nil
}

func (w *response) close() {
	w.closed = true
	w.complete = w.declared < 0 || w.written == w.declared || w.bodiless()
}

// dress adds what net/http adds to every answer.
func (w *response) dress() {
	if _, ok := w.frozen["Date"]; !ok {
		w.frozen["Date"] = w.st.conn.server.date()
	}
	if _, ok := w.frozen["Content-Type"]; !ok && len(*w.buf) > 0 && !w.bodiless() && w.frozen.Get("Content-Encoding") == "" {
		w.frozen.Set("Content-Type", http.DetectContentType(*w.buf))
	}
}

// depart sends the client elsewhere after an answer that says "Connection: close", as net/http does. The caller holds conn.mu.
func (w *response) depart() {
	if values, ok := w.frozen["Connection"]; ok && len(values) > 0 && values[0] == "close" {
		w.st.conn.sendAway()
	}
}

// data queues body bytes as the peer's windows and the output's size allow, waiting as long as they do not. The caller holds mu.
func (c *conn) data(st *stream, p []byte, last bool) error {
	for len(p) > 0 {
		n := min(int64(len(p)), int64(c.peerFrame), c.window, st.window, outFull)
		if n > 0 && len(c.out) >= outFull && !c.sending && !c.closed {
			c.flushOut(nil) // nearer to the data than the writer is
			c.kick()        // for what came meanwhile
			if st.gone != nil {
				return st.gone
			}
			continue
		}
		if n <= 0 || len(c.out) >= outFull {
			if err := c.await(st); err != nil {
				return err
			}
			continue
		}
		var flags http2.Flags
		if last && n == int64(len(p)) {
			flags = http2.FlagDataEndStream
		}
		c.piece(st, p[:n], flags)
		p = p[n:]
	}
	return nil
}

// piece queues a frame of body bytes, which the windows let through. The caller holds mu.
func (c *conn) piece(st *stream, p []byte, flags http2.Flags) {
	c.frame(http2.FrameData, flags, st.id, len(p))
	c.out = append(c.out, p...)
	c.window -= int64(len(p))
	st.window -= int64(len(p))
}

// await waits until there may be room again. The caller holds mu, which is let go meanwhile.
func (c *conn) await(st *stream) error {
	if st.gone == nil {
		c.waiting = append(c.waiting, st)
		c.kick()
		if err := st.wait(&st.room, &st.writeBy); err != nil {
			c.drop(st.id, st, err)
			c.reset(st.id, http2.ErrCodeCancel)
			c.kick()
		}
	}
	return st.gone
}

// SetReadDeadline is what http.ResponseController calls: a read of the body that waits longer fails.
func (w *response) SetReadDeadline(t time.Time) error {
	c := w.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	w.st.readBy = t
	w.st.signalBody()
	return nil
}

// SetWriteDeadline is what http.ResponseController calls: a write that waits longer for the client to read fails, and the answer is cut.
func (w *response) SetWriteDeadline(t time.Time) error {
	c := w.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	w.st.writeBy = t
	w.st.signalRoom()
	return nil
}

// EnableFullDuplex is what http.ResponseController calls: a stream is always read and written at once.
func (w *response) EnableFullDuplex() error { return nil }

// headers queues a header block. The caller holds mu.
func (c *conn) headers(st *stream, status int, h http.Header, last bool) {
	c.block.Reset()
	if status != 0 {
		c.field(":status", strconv.Itoa(status))
	}
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		lower := lowered(name)
		switch lower {
		case "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive":
			continue
		}
		if !httpguts.ValidHeaderFieldName(lower) {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				c.field(lower, v)
			}
		}
	}
	c.queueBlock(st.id, last)
}

func (c *conn) field(name, value string) {
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: name == "set-cookie"}) // a bytes.Buffer takes all
}

func (c *conn) queueBlock(id uint32, last bool) {
	block := c.block.Bytes()
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if last {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), c.peerFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.frame(kind, flags, id, n)
		c.out = append(c.out, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// hasTrailers tells whether the handler announced trailers or has set some.
func (w *response) hasTrailers() bool {
	if len(w.header["Trailer"]) > 0 {
		return true
	}
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// trailers are the fields to send after the body; nil if there are none.
func (w *response) trailers() http.Header {
	if !w.hasTrailers() {
		return nil
	}
	out := http.Header{}
	for _, list := range w.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, ok := w.header[name]; ok && httpguts.ValidTrailerHeader(name) {
				out[name] = values
			}
		}
	}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && httpguts.ValidTrailerHeader(name) {
			out[http.CanonicalHeaderKey(name)] = values
		}
	}
	return out
}

func (w *response) sendTrailers(h http.Header) {
	c, st := w.st.conn, w.st
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.gone != nil {
		return
	}
	c.block.Reset()
	if len(h) == 0 {
		c.frame(http2.FrameData, http2.FlagDataEndStream, st.id, 0)
	} else {
		c.headers(st, 0, h, true)
	}
	w.close()
	c.kick()
}

// lowered is a header's name as HTTP/2 spells it.
func lowered(name string) string {
	if lower, ok := common[name]; ok {
		return lower
	}
	return strings.ToLower(name)
}

var common = func() map[string]string {
	m := map[string]string{}
	for _, name := range []string{"Content-Type", "Content-Length", "Content-Encoding", "Cache-Control", "Date", "Vary", "Audit-Id", "Warning", "Retry-After",
		"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Www-Authenticate", "Location", "Etag"} {
		m[name] = strings.ToLower(name)
	}
	return m
}()

// date is the Date header of now, made once a second.
func (s *Server) date() []string {
	now := s.cfg.Clock.Now()
	if d := s.dated.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dated{second: now.Unix(), text: []string{now.UTC().Format(http.TimeFormat)}}
	s.dated.Store(d)
	return d.text
}

// dated is a Date header and the second that it is of.
type dated struct {
	second int64
	text   []string
}
