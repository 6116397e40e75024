package h2

import (
	"context"
	"sync"
	"time"
)

// life is a request's context: it ends with the connection, with the client's giving up, or with the answer. It costs nothing until somebody
// waits for it.
type life struct {
	parent context.Context

	lifeMu sync.Mutex
	done   chan struct{}
	err    error
	after  []*func()
}

var _ context.Context = (*life)(nil)

// Deadline implements context.Context: there is none.
func (l *life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (l *life) Done() <-chan struct{} {
	l.lifeMu.Lock()
	defer l.lifeMu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements context.Context.
func (l *life) Err() error {
	l.lifeMu.Lock()
	defer l.lifeMu.Unlock()
	return l.err
}

// Value implements context.Context.
func (l *life) Value(key any) any { return l.parent.Value(key) }

// AfterFunc makes derived contexts end with this one without a goroutine for each (see context.AfterFunc).
func (l *life) AfterFunc(f func()) (stop func() bool) {
	l.lifeMu.Lock()
	defer l.lifeMu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	entry := &f
	l.after = append(l.after, entry)
	return func() bool { return l.forget(entry) }
}

func (l *life) forget(entry *func()) bool {
	l.lifeMu.Lock()
	defer l.lifeMu.Unlock()
	for i, e := range l.after {
		if e == entry {
			l.after = append(l.after[:i], l.after[i+1:]...)
			return true
		}
	}
	return false
}

// cancel ends the context. Nobody may hold the connection's mutex: others' functions run.
func (l *life) cancel(error) {
	l.lifeMu.Lock()
	if l.err != nil {
		l.lifeMu.Unlock()
		return
	}
	l.err = context.Canceled
	if l.done != nil {
		close(l.done)
	}
	after := l.after
	l.after = nil
	l.lifeMu.Unlock()
	for _, f := range after {
		(*f)()
	}
}
