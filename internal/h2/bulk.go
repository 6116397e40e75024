package h2

import (
	"encoding/binary"
	"sync"

	"golang.org/x/net/http2"
)

// A long answer is laid out as it goes over the wire: frames whose header and payload fill one TLS record each, and four of them one system
// call. They are sent from where they were laid out by the handler itself, when nobody else is sending.
const (
	record       = 16 << 10
	bulkPayload  = record - frameHeader
	bulkFrames   = 4
	bulkCapacity = bulkFrames * bulkPayload
	// long is the declared length from which an answer counts as long.
	long = 32 << 10
)

// bulk is the part of a long answer that is being laid out.
type bulk struct {
	n    int // bytes of payload
	wire [bulkFrames * record]byte
}

var bulks = sync.Pool{New: func() any { return &bulk{} }}

// add lays out what fits of p and returns how much that was.
func (b *bulk) add(p []byte) (n int) {
	for len(p) > 0 && b.n < bulkCapacity {
		frame, at := b.n/bulkPayload, b.n%bulkPayload
		start := frame*record + frameHeader + at
		took := copy(b.wire[start:(frame+1)*record], p)
		p = p[took:]
		b.n += took
		n += took
	}
	return n
}

// frames are the number of frames begun.
func (b *bulk) frames() int { return (b.n + bulkPayload - 1) / bulkPayload }

// payload is what frame i carries.
func (b *bulk) payload(i int) []byte {
	return b.wire[i*record+frameHeader : min((i+1)*record, i*record+frameHeader+b.n-i*bulkPayload)]
}

// seal writes the frames' headers and returns the wire form.
func (b *bulk) seal(id uint32, last bool) []byte {
	count, end := b.frames(), 0
	for i := range count {
		n := len(b.payload(i))
		head := b.wire[i*record : i*record+frameHeader]
		binary.BigEndian.PutUint32(head, uint32(n)<<8|uint32(http2.FrameData))
		head[4] = 0
		if last && i == count-1 {
			head[4] = byte(http2.FlagDataEndStream)
		}
		binary.BigEndian.PutUint32(head[5:], id)
		end = i*record + frameHeader + n
	}
	return b.wire[:end]
}

// writeBulk adds to a long answer.
func (w *response) writeBulk(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := w.bulk.add(p)
		p = p[n:]
		w.written += int64(n)
		if w.bulk.n < bulkCapacity && w.written < w.declared {
			continue
		}
		if err := w.sendBulk(w.written == w.declared && !w.hasTrailers()); err != nil {
			return total - len(p), err
		}
	}
	return total, nil
}

// sendBulk sends what was laid out.
func (w *response) sendBulk(last bool) error {
	c, st, b := w.st.conn, w.st, w.bulk
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.gone != nil {
		return st.gone
	}
	if !w.sent {
		w.sent = true
		w.dress()
		w.depart()
		c.headers(st, w.status, w.frozen, false)
		w.frozen = nil
	}
	n := int64(b.n)
	if c.sending || c.closed || c.window < n || st.window < n {
		for i := range b.frames() {
			if err := c.data(st, b.payload(i), last && i == b.frames()-1); err != nil {
				return err
			}
		}
		c.kick()
	} else {
		c.window -= n
		st.window -= n
		c.flushOut(b.seal(st.id, last))
		c.kick()
	}
	b.n = 0
	if last {
		w.close()
	}
	return nil
}
