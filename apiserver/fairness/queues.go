package fairness

// list is a queue of tickets, linked through themselves.
type list struct{ first, last *Ticket }

func (l *list) push(t *Ticket) {
	t.prev, t.next = l.last, nil
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
}

func (l *list) remove(t *Ticket) {
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}

// table finds queues by number. A level may be configured with ten million of them, so only those in use take space: pages appear with the
// first queue in them and go with the last.
type table struct {
	pages []*page
	spare *page
	free  []*queue
}

const pageSize = 64

type page struct {
	queues [pageSize]*queue
	used   int
}

func (t *table) get(index int) *queue {
	if n := index / pageSize; n < len(t.pages) && t.pages[n] != nil {
		return t.pages[n].queues[index%pageSize]
	}
	return nil
}

func (t *table) open(index int) *queue {
	n := index / pageSize
	for len(t.pages) <= n {
		t.pages = append(t.pages, nil)
	}
	if t.pages[n] == nil {
		t.pages[n] = t.spare
		if t.spare = nil; t.pages[n] == nil {
			t.pages[n] = &page{}
		}
	}
	q := t.take()
	q.index = index
	t.pages[n].queues[index%pageSize] = q
	t.pages[n].used++
	return q
}

func (t *table) take() *queue {
	if n := len(t.free) - 1; n >= 0 {
		q := t.free[n]
		t.free[n], t.free = nil, t.free[:n]
		return q
	}
	return &queue{}
}

// keptQueues is how many queues out of use are kept for the next request.
const keptQueues = 64

func (t *table) close(q *queue) {
	n := q.index / pageSize
	p := t.pages[n]
	p.queues[q.index%pageSize] = nil
	if p.used--; p.used == 0 {
		t.pages[n], t.spare = nil, p
	}
	*q = queue{headAt: -1}
	if len(t.free) < keptQueues {
		t.free = append(t.free, q)
	}
}

// heap holds the queues where somebody waits, the one whose turn it is first.
type heap []*queue

func (h heap) before(a, b *queue) bool {
	x, y := a.start+a.requests.first.width.work(), b.start+b.requests.first.width.work()
	if x != y {
		return x < y
	}
	return a.served < b.served
}

// put adds a queue, or moves it to where it belongs now.
func (h *heap) put(q *queue) {
	if q.headAt < 0 {
		q.headAt = len(*h)
		*h = append(*h, q)
	}
	h.up(q.headAt)
	h.down(q.headAt)
}

func (h *heap) remove(q *queue) {
	at, last := q.headAt, len(*h)-1
	h.swap(at, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	q.headAt = -1
	if at < last {
		moved := (*h)[at]
		h.up(moved.headAt)
		h.down(moved.headAt)
	}
}

func (h heap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].headAt, h[j].headAt = i, j
}

func (h heap) up(i int) {
	for i > 0 && h.before(h[i], h[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h heap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h.before(h[c], h[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// linger is seats that stay taken for a while after their request was answered.
type linger struct {
	due   int64
	seats int
	stats *stats
}

// lingers is a heap of them, the one that ends first on top.
type lingers []linger

func (l *lingers) push(x linger) {
	h := append(*l, x)
	*l = h
	for i := len(h) - 1; i > 0 && h[i].due < h[(i-1)/2].due; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (l *lingers) pop() linger {
	h := *l
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = linger{}
	h = h[:last]
	*l = h
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].due < h[least].due {
				least = c
			}
		}
		if least == i {
			return top
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
