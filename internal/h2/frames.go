package h2

import (
	"errors"
	"math"
	"time"

	"golang.org/x/net/http2"
)

// odd tells whether a client may use the id for a stream.
func odd(id uint32) bool { return id%2 == 1 }

func (c *conn) onHeaders(b *headerBlock) error {
	id := b.stream
	if !odd(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	st := c.streams[id]
	last, leaving, open, running := c.last, c.leaving, len(c.streams), c.handlers
	c.mu.Unlock()
	if b.dependent == id {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	switch {
	case st != nil:
		return c.onTrailers(st, b)
	case id <= last:
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	case leaving == final:
		return nil // the peer was told that nobody looks at it
	case open >= int(c.cfg.MaxStreams):
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	case running >= 2*int(c.cfg.MaxStreams):
		return errFlood // streams opened and given up faster than their handlers can notice
	}
	st, err := c.newStream(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errGone
	}
	c.last = id
	c.streams[id] = st
	if c.cfg.ReadBody > 0 && !st.ended {
		st.readBy = time.Now().Add(c.cfg.ReadBody)
	}
	if c.cfg.WriteAnswer > 0 {
		st.writeBy = time.Now().Add(c.cfg.WriteAnswer)
	}
	st.window = int64(c.peerInit)
	if st.gathers() && c.held < c.cfg.ConnWindow {
		st.in = make([]byte, 0, st.length)
		return nil
	}
	c.start(st)
	return nil
}

// start gives a stream to a handler. The caller holds mu.
func (c *conn) start(st *stream) {
	st.started = true
	c.handlers++
	c.server.workers.Run(st)
}

func (c *conn) onTrailers(st *stream, b *headerBlock) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case st.ended:
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeStreamClosed}
	case !b.last || b.pseudo > 0:
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	return c.endBody(st)
}

func (c *conn) onData(f *http2.DataFrame) error {
	id, n := f.StreamID, int32(f.Length)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit -= n; c.credit < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st := c.streams[id]
	if st == nil {
		c.repay(n)
		switch {
		case id > c.last && c.leaving != final:
			return http2.ConnectionError(http2.ErrCodeProtocol)
		case id > c.last:
			return nil
		}
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	}
	data := f.Data()
	if st.ended {
		c.repay(n)
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	}
	if st.credit -= n; st.credit < 0 {
		c.repay(n)
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
	}
	if st.got += int64(len(data)); st.length >= 0 && st.got > st.length {
		c.repay(n)
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	if pad := n - int32(len(data)); pad > 0 {
		c.repay(pad)
		st.repay(pad)
	}
	st.in = append(st.in, data...)
	if !st.started {
		c.held += int32(len(data))
		c.repay(int32(len(data)))
	}
	if f.StreamEnded() {
		return c.endBody(st)
	}
	st.signalBody()
	return nil
}

// endBody notes that the request is complete. The caller holds mu.
func (c *conn) endBody(st *stream) error {
	if st.length >= 0 && st.got != st.length {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	st.ended = true
	if !st.started {
		c.held -= int32(len(st.in))
		st.repaid = true
		c.start(st)
		return nil
	}
	st.signalBody()
	return nil
}

func (c *conn) onWindow(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > math.MaxInt32 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.release()
		return nil
	}
	st := c.streams[f.StreamID]
	if st == nil {
		return c.known(f.StreamID)
	}
	if st.window += int64(f.Increment); st.window > math.MaxInt32 {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	st.signalRoom()
	return nil
}

// known refuses frames for streams that were never opened; those for ended ones just came late. The caller holds mu.
func (c *conn) known(id uint32) error {
	if id > c.last && c.leaving != final || !odd(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) onReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[f.StreamID]
	if st == nil {
		return c.known(f.StreamID)
	}
	c.drop(f.StreamID, st, errReset)
	return nil
}

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if f.NumSettings() > 100 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.ForeachSetting(c.apply); err != nil {
		return err
	}
	c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	c.kick()
	return nil
}

// apply takes over one setting of the peer's. The caller holds mu.
func (c *conn) apply(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSizeLimit(min(s.Val, 4096))
	case http2.SettingMaxFrameSize:
		c.peerFrame = int(min(s.Val, outFull))
	case http2.SettingInitialWindowSize:
		grown := int64(s.Val) - int64(c.peerInit)
		c.peerInit = int32(s.Val)
		for _, st := range c.streams {
			if st.window += grown; st.window > math.MaxInt32 {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
		}
		c.release()
	}
	return nil
}

func (c *conn) onPing(f *http2.PingFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		if f.Data == retirePing && c.leaving == warned {
			c.leaving = final
			c.goodbye(c.last, http2.ErrCodeNo)
			c.kick()
			c.ended()
		}
		return nil
	}
	c.frame(http2.FramePing, http2.FlagPingAck, 0, 8)
	c.out = append(c.out, f.Data[:]...)
	c.kick()
	return nil
}

// onGoAway hears that the peer opens no more streams; those there are go on.
func (c *conn) onGoAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = final
	c.ended()
}

// retire asks the peer to go elsewhere. Requests that are on their way meanwhile are still taken: only after the answer to a ping is it known
// that there are none (RFC 9113, 6.8).
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendAway()
}

// sendAway is retire for who holds mu.
func (c *conn) sendAway() {
	if c.closed || c.leaving != staying {
		return
	}
	c.leaving = warned
	c.goodbye(math.MaxInt32, http2.ErrCodeNo)
	c.frame(http2.FramePing, 0, 0, 8)
	c.out = append(c.out, retirePing[:]...)
	c.kick()
}

// ended closes a connection that is leaving once nothing is left to do. The caller holds mu.
func (c *conn) ended() {
	if c.leaving == final && len(c.streams) == 0 && len(c.out) == 0 && !c.sending {
		c.fail(errDone)
	}
}

var errDone = errors.New("done")
