package h2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"
)

var (
	errIdle   = errors.New("nothing was asked for a while")
	errSilent = errors.New("the client does not answer")
)

// watch looks after a connection from time to time: one without requests is closed, one that is silent is pinged, one that stays silent is
// given up. The result ends it.
func (c *conn) watch() (stop func()) {
	done := make(chan struct{})
	period := min(c.cfg.PingAfter, c.cfg.PingTimeout, c.cfg.Idle)
	var again, look func()
	again = func() { go look() } // a clock may call back with its lock held
	look = func() {
		select {
		case <-done:
			return
		default:
		}
		if c.look(c.cfg.Clock.Now()) {
			c.cfg.Clock.AfterFunc(period, again)
		}
	}
	timer := c.cfg.Clock.AfterFunc(period, again)
	return func() { close(done); timer.Stop() }
}

// look is one look; false says that the connection has ended.
func (c *conn) look(now time.Time) bool {
	silent := now.Sub(time.Unix(0, c.heard.Load()))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return false
	case len(c.streams) == 0 && now.Sub(c.idleSince) >= c.cfg.Idle:
		c.fail(errIdle)
	case silent >= c.cfg.PingAfter+c.cfg.PingTimeout:
		c.fail(errSilent)
	case silent >= c.cfg.PingAfter:
		c.frame(http2.FramePing, 0, 0, 8)
		c.out = append(c.out, healthPing[:]...)
		c.kick()
	}
	c.hurry()
	return !c.closed
}

// hurry gives up requests whose bodies do not come. The caller holds mu.
func (c *conn) hurry() {
	for id, st := range c.streams {
		if !st.started && !st.readBy.IsZero() && time.Now().After(st.readBy) {
			c.drop(id, st, errReset)
			c.reset(id, http2.ErrCodeCancel)
			c.kick()
		}
	}
}
