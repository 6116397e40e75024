package h2

import (
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// blank is copied for each request; only WithContext can set a request's context.
var blank http.Request

// newStream builds the request that a header block asks for. An error is the stream's.
func (c *conn) newStream(b *headerBlock) (*stream, error) {
	st := &stream{id: b.stream, conn: c, length: -1, ended: b.last, credit: c.cfg.StreamWindow}
	st.parent = c.ctx
	malformed := http2.StreamError{StreamID: b.stream, Code: http2.ErrCodeProtocol}
	method, path, scheme, authority := b.request(":method"), b.request(":path"), b.request(":scheme"), b.request(":authority")
	if method == "" || b.request(":protocol") != "" {
		return nil, malformed
	}
	if connect := method == http.MethodConnect; connect && (path != "" || scheme != "" || authority == "") || !connect && (path == "" || scheme == "") {
		return nil, malformed
	}
	req := blank.WithContext(st)
	req.Method, req.Proto, req.ProtoMajor = method, "HTTP/2.0", 2
	req.RemoteAddr, req.TLS, req.RequestURI = c.remote, c.tls, path
	st.req = req
	if !c.readHeader(st, b.regular()) {
		return nil, malformed
	}
	if req.Host = authority; authority == "" {
		req.Host = req.Header.Get("Host")
	}
	req.Header.Del("Host")
	if method == http.MethodConnect {
		req.URL, req.RequestURI = &url.URL{Host: authority}, authority
	} else if u, err := url.ParseRequestURI(path); err != nil {
		st.early, req.URL = http.StatusBadRequest, &url.URL{Path: "/"}
	} else {
		req.URL = u
	}
	if b.truncated {
		st.early = http.StatusRequestHeaderFieldsTooLarge
	}
	return st, c.readBody(st, malformed)
}

// readHeader fills the request's header; false if a field may not be there (RFC 9113, 8.2.2).
func (c *conn) readHeader(st *stream, fields []hpack.HeaderField) bool {
	h := make(http.Header, len(fields))
	values := make([]string, len(fields))
	for i := range fields {
		switch name, value := fields[i].Name, fields[i].Value; name {
		case "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive":
			return false
		case "te":
			if value != "trailers" {
				return false
			}
		case "cookie":
			if old := h.Get("Cookie"); old != "" {
				h.Set("Cookie", old+"; "+value) // RFC 9113, 8.2.3
				continue
			}
			h.Set("Cookie", value)
		default:
			key := c.canonical(name)
			if old, again := h[key]; again {
				h[key] = append(old, value)
				continue
			}
			values[i] = value
			h[key] = values[i : i+1 : i+1]
		}
	}
	st.req.Header = h
	return true
}

// canonical is a header's name as Go spells it. Peers send the same few over and over.
func (c *conn) canonical(name string) string {
	if key, ok := c.names[name]; ok {
		return key
	}
	key := textproto.CanonicalMIMEHeaderKey(name)
	if len(c.names) < 64 && len(name) < 64 {
		c.names[name] = key
	}
	return key
}

// readBody prepares the request's body.
func (c *conn) readBody(st *stream, malformed error) error {
	req := st.req
	if declared, ok := req.Header["Content-Length"]; ok {
		n, err := strconv.ParseUint(declared[0], 10, 63)
		if err != nil || len(declared) > 1 && declared[1] != declared[0] {
			return malformed
		}
		st.length = int64(n)
	}
	if st.ended {
		if st.length > 0 {
			return malformed
		}
		req.Body = http.NoBody
		return nil
	}
	req.ContentLength = st.length
	st.expect = strings.EqualFold(req.Header.Get("Expect"), "100-continue")
	if st.expect {
		req.Header.Del("Expect")
	}
	req.Body = (*body)(st)
	return nil
}

// body is a request's body as its handler reads it.
type body stream

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	st := (*stream)(b)
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.expect {
		st.expect = false
		if len(st.in) == 0 && !st.ended && st.gone == nil {
			c.headers(st, http.StatusContinue, nil, false)
			c.kick()
		}
	}
	for {
		switch {
		case len(st.in) > 0 && len(p) > 0:
			n := copy(p, st.in)
			if st.in = st.in[n:]; len(st.in) == 0 {
				st.in = st.in[:0:0]
			}
			if !st.repaid {
				c.repay(int32(n))
				st.repay(int32(n))
			}
			return n, nil
		case st.gone != nil:
			return 0, st.gone
		case len(p) == 0:
			return 0, nil
		case st.ended:
			return 0, io.EOF
		}
		if err := st.wait(&st.ready, &st.readBy); err != nil {
			return 0, err
		}
	}
}

// Whole gives the rest of the body without copying it, if all of it has come, and whether it has. It is the caller's from then on.
func (b *body) Whole() ([]byte, bool) {
	st := (*stream)(b)
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !st.ended || st.gone != nil {
		return nil, false
	}
	in := st.in
	st.in = nil
	if !st.repaid {
		c.repay(int32(len(in)))
	}
	return in, true
}

// Close implements io.Closer. What still comes is thrown away when the answer is complete.
func (b *body) Close() error { return nil }
