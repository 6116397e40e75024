package sim

import (
	"container/heap"
	"time"
)

// agenda is what will happen, by time, and in the order in which it was entered within one instant.
type agenda struct {
	list []entry
	seq  uint64
}

type entry struct {
	at  time.Time
	seq uint64
	do  func()
}

// enter plans something.
func (a *agenda) enter(at time.Time, do func()) {
	a.seq++
	heap.Push(a, entry{at, a.seq, do})
}

// next is when something happens next.
func (a *agenda) next() (time.Time, bool) {
	if len(a.list) == 0 {
		return time.Time{}, false
	}
	return a.list[0].at, true
}

// due takes the first thing that happens by now.
func (a *agenda) due(now time.Time) func() {
	if len(a.list) == 0 || a.list[0].at.After(now) {
		return nil
	}
	return heap.Pop(a).(entry).do
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a *agenda) Len() int { return len(a.list) }
func (a *agenda) Less(i, j int) bool {
	if !a.list[i].at.Equal(a.list[j].at) {
		return a.list[i].at.Before(a.list[j].at)
	}
	return a.list[i].seq < a.list[j].seq
}
func (a *agenda) Swap(i, j int) { a.list[i], a.list[j] = a.list[j], a.list[i] }
func (a *agenda) Push(x any)    { a.list = append(a.list, x.(entry)) }
func (a *agenda) Pop() any {
	last := len(a.list) - 1
	e := a.list[last]
	a.list[last] = entry{}
	a.list = a.list[:last]
	return e
}
