package h2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/internal/h2"
)

// peer is a client that can break every rule.
type peer struct {
	t *testing.T
	net.Conn
	*http2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer
}

func dial(t *testing.T, srv *httptest.Server) *peer {
	t.Helper()
	config := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", srv.Listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return greet(t, c)
}

func greet(t *testing.T, c net.Conn) *peer {
	p := &peer{t: t, Conn: c, Framer: http2.NewFramer(c, c)}
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.block)
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = p.WriteSettings()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	return p
}

func (p *peer) get(id uint32, end bool, more ...string) {
	p.block.Reset()
	fields := append([]string{":method", "POST", ":path", "/", ":scheme", "https", ":authority", "x"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndStream: end, EndHeaders: true})
}

// goAway reads until the server ends the connection, and returns why; -1 if it just closed.
func (p *peer) goAway() http2.ErrCode {
	p.t.Helper()
	code := http2.ErrCode(1<<32 - 1)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				p.t.Fatal("the server keeps the connection")
			}
			return code
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			code = g.ErrCode
		}
	}
}

// reset reads until stream id is reset, and returns why.
func (p *peer) reset(id uint32) http2.ErrCode {
	p.t.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			p.t.Fatal(err)
		}
		if r, ok := f.(*http2.RSTStreamFrame); ok && r.StreamID == id {
			return r.ErrCode
		}
	}
}

func block(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

func TestBrokenRulesEndTheConnection(t *testing.T) {
	srv := start(t, true, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) }))
	for name, c := range map[string]struct {
		send func(p *peer)
		want http2.ErrCode
	}{
		"even stream":          {func(p *peer) { p.get(2, true) }, http2.ErrCodeProtocol},
		"stream used again":    {func(p *peer) { p.get(3, true); p.get(1, true) }, http2.ErrCodeStreamClosed},
		"data out of the blue": {func(p *peer) { _ = p.WriteData(7, true, nil) }, http2.ErrCodeProtocol},
		"window overflow":      {func(p *peer) { _ = p.WriteWindowUpdate(0, 1<<31-1); _ = p.WriteWindowUpdate(0, 1<<31-1) }, http2.ErrCodeFlowControl},
		"more than the window": {func(p *peer) {
			p.get(1, false)
			for range 20 {
				_ = p.WriteData(1, false, make([]byte, 128<<10))
			}
		}, http2.ErrCodeFlowControl},
		"push": {func(p *peer) {
			_ = p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, http2.ErrCodeProtocol},
		"bad setting": {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }, http2.ErrCodeFlowControl},
		"frame too big": {func(p *peer) {
			p.AllowIllegalWrites = true
			_ = p.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 1<<20))
		}, http2.ErrCodeFrameSize},
		"bad block": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true})
		}, http2.ErrCodeCompression},
		"silly settings": {func(p *peer) { _ = p.WriteSettings(make([]http2.Setting, 200)...) }, http2.ErrCodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, srv)
			c.send(p)
			if got := p.goAway(); got != c.want {
				t.Errorf("ended with %v, want %v", got, c.want)
			}
		})
	}
}

func TestBrokenRulesEndTheStream(t *testing.T) {
	srv := start(t, true, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) }))
	for name, send := range map[string]func(p *peer){
		"connection header":    func(p *peer) { p.get(1, true, "connection", "close") },
		"te":                   func(p *peer) { p.get(1, true, "te", "gzip") },
		"upper case":           func(p *peer) { p.get(1, true, "X-A", "b") },
		"length and no body":   func(p *peer) { p.get(1, true, "content-length", "5") },
		"body too long":        func(p *peer) { p.get(1, false, "content-length", "2"); _ = p.WriteData(1, true, []byte("abc")) },
		"body too short":       func(p *peer) { p.get(1, false, "content-length", "5"); _ = p.WriteData(1, true, []byte("abc")) },
		"two lengths":          func(p *peer) { p.get(1, false, "content-length", "5", "content-length", "6") },
		"no number":            func(p *peer) { p.get(1, false, "content-length", "-5") },
		"pseudo in trailers":   func(p *peer) { p.get(1, false); p.get(1, true) },
		"depends on itself":    func(p *peer) { p.get(1, false); _ = p.WritePriority(1, http2.PriorityParam{StreamDep: 1}) },
		"stream window bursts": func(p *peer) { p.get(1, false); _ = p.WriteWindowUpdate(1, 1<<31-1) },
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, srv)
			send(p)
			if got := p.reset(1); got != http2.ErrCodeProtocol && got != http2.ErrCodeFlowControl {
				t.Errorf("reset with %v", got)
			}
			p.get(3, true) // the connection goes on
			for {
				f, err := p.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == 3 {
					return
				}
			}
		})
	}
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	srv := start(t, true, http.HandlerFunc(block))
	p := dial(t, srv)
	for i := range uint32(1001) {
		p.get(2*i+1, true)
	}
	if got := p.reset(2001); got != http2.ErrCodeRefusedStream {
		t.Errorf("reset with %v", got)
	}
}

// A client that opens streams and gives them up at once (CVE-2023-44487) may not make the server work without bound.
func TestRapidResetEndsTheConnection(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	srv := start(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	p := dial(t, srv)
	go func() {
		for i := range uint32(10_000) {
			p.get(2*i+1, true)
			if p.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}()
	if got := p.goAway(); got != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("ended with %v", got)
	}
}

// A client that makes the server answer and never reads the answers loses its connection, not the server its memory.
func TestPingFloodEndsTheConnection(t *testing.T) {
	srv := start(t, true, http.HandlerFunc(block))
	p := dial(t, srv)
	_ = p.SetWriteDeadline(time.Now().Add(60 * time.Second))
	var err error
	for err == nil {
		err = p.WritePing(false, [8]byte{})
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the server still takes pings, or hangs")
	}
}

func TestHeadersTooLarge(t *testing.T) {
	srv := start(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler saw it") }))
	req, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
	for i := range 200 {
		req.Header.Set("X-"+strings.Repeat("a", i), strings.Repeat("b", 8<<10))
	}
	res, err := srv.Client().Do(req)
	if err == nil {
		defer res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answered %d", res.StatusCode)
		}
	}
}

// A peer whose windows are tiny gets all the same, as it makes room.
func TestTinyWindows(t *testing.T) {
	srv := start(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		declare(w, 100_000)
		_, _ = w.Write(make([]byte, 100_000))
	}))
	p := dial(t, srv)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	p.get(1, true)
	got, granted := 0, 10
	for got < 100_000 {
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			n := len(d.Data())
			if got += n; got > granted {
				t.Fatalf("%d bytes, of %d granted", got, granted)
			}
			granted += 1000
			_ = p.WriteWindowUpdate(1, 1000)
			_ = p.WriteWindowUpdate(0, uint32(n))
		}
	}
}

func TestIdleAndDeadPeers(t *testing.T) {
	for name, c := range map[string]struct {
		request bool
		step    time.Duration
		pings   bool
	}{
		"idle": {false, 4 * time.Minute, false},
		"dead": {true, 31 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			s := h2.New(h2.Config{Clock: clock})
			ours, theirs := net.Pipe()
			ended := make(chan struct{})
			begun := make(chan struct{}, 1)
			go func() {
				defer close(ended)
				s.ServeConn(context.Background(), ours, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { begun <- struct{}{}; block(w, req) }))
			}()
			greeted := make(chan *peer, 1)
			go func() { greeted <- greet(t, theirs) }()
			type frame struct {
				kind http2.FrameType
				ack  bool
			}
			frames := make(chan frame, 100)
			reader := http2.NewFramer(io.Discard, theirs)
			go func() {
				defer close(frames)
				for {
					f, err := reader.ReadFrame()
					if err != nil {
						return
					}
					frames <- frame{f.Header().Type, f.Header().Flags.Has(http2.FlagSettingsAck)}
				}
			}()
			if (<-frames).kind != http2.FrameSettings {
				t.Fatal("no settings")
			}
			for f := range frames { // the acknowledgement: greet is through
				if f.kind == http2.FrameSettings && f.ack {
					break
				}
			}
			if c.request {
				(<-greeted).get(1, true)
				<-begun
			}
			pinged := false
			for alive := true; alive; {
				clock.Step(c.step)
				select {
				case f, open := <-frames:
					pinged = pinged || f.kind == http2.FramePing
					alive = open
				case <-time.After(20 * time.Millisecond):
				}
			}
			<-ended
			if pinged != c.pings {
				t.Errorf("pinged: %v", pinged)
			}
		})
	}
}

// FuzzConn feeds a connection whatever comes: it ends when the peer does, without a panic.
func FuzzConn(f *testing.F) {
	var seed bytes.Buffer
	fr := http2.NewFramer(&seed, nil)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, p := range [][2]string{{":method", "POST"}, {":path", "/"}, {":scheme", "https"}, {":authority", "x"}, {"content-length", "3"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
	}
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = fr.WriteData(1, true, []byte("abc"))
	_ = fr.WriteWindowUpdate(1, 5)
	_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
	_ = fr.WritePing(false, [8]byte{1})
	_ = fr.WriteGoAway(1, http2.ErrCodeNo, nil)
	f.Add(seed.Bytes())
	f.Add([]byte{})
	s := h2.New(h2.Config{MaxStreams: 4, ConnWindow: 100_000, StreamWindow: 70_000})
	echo := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) })
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() { defer close(ended); s.ServeConn(context.Background(), ours, echo) }()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = io.WriteString(theirs, http2.ClientPreface)
		_, _ = theirs.Write(data)
		_ = theirs.Close()
		<-ended
	})
}
