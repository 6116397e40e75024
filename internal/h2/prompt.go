package h2

// Offer queues p if that needs no waiting: the header has gone, the peer's windows are open, and not much waits to be sent. It tells whether it did; p goes
// whole or not at all. What was offered leaves with Push, or earlier. As Write, it is for one goroutine at a time.
func (w *response) Offer(p []byte) bool {
	if w.over || !w.sent || w.closed || w.declared >= 0 || len(*w.buf) > 0 {
		return false
	}
	c, st, n := w.st.conn, w.st, int64(len(p))
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.gone != nil || c.closed || c.window < n || st.window < n || len(c.out)+len(p) > outKept {
		return false
	}
	w.written += n
	for len(p) > 0 {
		most := min(len(p), c.peerFrame)
		c.piece(st, p[:most], 0)
		p = p[most:]
	}
	if len(c.out) >= outFull {
		c.kick()
	}
	return true
}

// Push sends on its way what was offered.
func (w *response) Push() {
	c := w.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) > 0 {
		c.kick()
	}
}
