package stored

import "testing"

func TestRecentDocumentsStayAndOldOnesGo(t *testing.T) {
	k := keeper{budget: 1000}
	for range 5000 {
		k.add(&Bytes{Whole: make([]byte, 100)})
	}
	if live := len(k.queue) - k.head; live != 10 || k.size != 1000 || len(k.queue) > 2100 {
		t.Errorf("%d documents of %d bytes kept in a queue of %d", live, k.size, len(k.queue))
	}
	k.add(&Bytes{Whole: make([]byte, 5000)})
	if k.size != 0 || k.head != len(k.queue) && k.head != 0 {
		t.Errorf("a document beyond the budget is kept: %d", k.size)
	}
}
