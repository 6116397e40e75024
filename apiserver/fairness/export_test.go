package fairness

// Borrow does what Run does every ten seconds.
func (c *Controller) Borrow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.borrow()
}
