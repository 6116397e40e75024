package h2

import (
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headerBlock is the header of a request, or its trailers, as they came. A connection's reader has one, which each request's fills anew.
type headerBlock struct {
	decoder *hpack.Decoder
	limit   uint32 // largest header, as SETTINGS_MAX_HEADER_LIST_SIZE counts it

	stream    uint32
	last      bool // nothing follows it
	dependent uint32
	fields    []hpack.HeaderField
	pseudo    int    // so many of fields are pseudo-header fields; they come first
	left      uint32 // of limit
	truncated bool   // it is larger than limit: fields are not all
	invalid   bool   // a field may not be sent
}

func newHeaderBlock(limit uint32) *headerBlock {
	b := &headerBlock{decoder: hpack.NewDecoder(4096, nil), limit: limit}
	b.decoder.SetMaxStringLength(int(limit))
	b.decoder.SetEmitFunc(b.add)
	return b
}

// read takes the block that f begins, to its end.
func (b *headerBlock) read(f *http2.HeadersFrame, framer *http2.Framer) error {
	clear(b.fields)
	b.stream, b.last, b.dependent = f.StreamID, f.StreamEnded(), 0
	if f.HasPriority() {
		b.dependent = f.Priority.StreamDep
	}
	b.fields, b.pseudo, b.left, b.truncated, b.invalid = b.fields[:0], 0, b.limit, false, false
	b.decoder.SetEmitEnabled(true)
	fragment, ended := f.HeaderBlockFragment(), f.HeadersEnded()
	for {
		// What is thrown away must be decoded all the same, for the sake of the next block's, but not without end.
		if b.invalid || uint64(len(fragment)) > 2*uint64(b.left) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if _, err := b.decoder.Write(fragment); err != nil {
			return http2.ConnectionError(http2.ErrCodeCompression)
		}
		if ended {
			break
		}
		next, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		more, ok := next.(*http2.ContinuationFrame) // the framer lets nothing else through
		if !ok {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		fragment, ended = more.HeaderBlockFragment(), more.HeadersEnded()
	}
	if b.decoder.Close() != nil {
		return http2.ConnectionError(http2.ErrCodeCompression)
	}
	if b.invalid {
		return http2.StreamError{StreamID: b.stream, Code: http2.ErrCodeProtocol}
	}
	return nil
}

// add takes one field.
func (b *headerBlock) add(f hpack.HeaderField) {
	switch {
	case !b.mayFollow(f):
		b.invalid = true
	case f.Size() > b.left:
		b.truncated, b.left = true, 0
	default:
		b.left -= f.Size()
		b.fields = append(b.fields, f)
		if strings.HasPrefix(f.Name, ":") {
			b.pseudo++
		}
		return
	}
	b.decoder.SetEmitEnabled(false)
}

// mayFollow tells whether a field may be sent by a client, where it stands (RFC 9113, 8.2.1 and 8.3).
func (b *headerBlock) mayFollow(f hpack.HeaderField) bool {
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		return false
	}
	switch f.Name {
	case ":method", ":path", ":scheme", ":authority", ":protocol":
		_, twice := b.lookup(f.Name)
		return !twice && len(b.fields) == b.pseudo
	}
	return lower(f.Name) && httpguts.ValidHeaderFieldName(f.Name)
}

// lower tells whether a name has no capitals, which HTTP/2 does not allow.
func lower(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}

func (b *headerBlock) lookup(name string) (string, bool) {
	for i := range b.fields[:b.pseudo] {
		if b.fields[i].Name == name {
			return b.fields[i].Value, true
		}
	}
	return "", false
}

// request is the value of a pseudo-header field, empty if it is not there.
func (b *headerBlock) request(name string) string {
	value, _ := b.lookup(name)
	return value
}

// regular are the fields that are none of HTTP/2's own.
func (b *headerBlock) regular() []hpack.HeaderField { return b.fields[b.pseudo:] }
