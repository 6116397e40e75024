package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Step is one part of the start, as the user sees it.
type Step struct {
	Name string
	Took time.Duration
	// Since is the time from the start of the process's work to the end of this step.
	Since time.Duration
}

// stack starts components in order and stops them in reverse. The first that ends by itself ends all.
type stack struct {
	config *Config
	began  time.Time

	mu      sync.Mutex
	stops   []func(context.Context) error
	running sync.WaitGroup
	failed  chan error
	// leave, if set, is done before anything is stopped, with all of it still at work.
	leave func(failed <-chan error)
}

func newStack(c *Config) *stack {
	return &stack{config: c, began: c.Clock.Now(), failed: make(chan error, 16)}
}

// step times f and tells the user of it.
func (s *stack) step(name string, f func() error) error {
	start := s.config.Clock.Now()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	now := s.config.Clock.Now()
	s.config.Steps(Step{Name: name, Took: now.Sub(start), Since: now.Sub(s.began)})
	return nil
}

// onStop adds what to do at the end; the last added is done first.
func (s *stack) onStop(f func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, f)
}

// run keeps f going until the stack stops. f must return when its context ends; if it returns before, Yare stops and says why.
func (s *stack) run(name string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.running.Go(func() {
		defer close(done)
		err := f(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		s.fail(fmt.Errorf("%s: %w", name, err))
	})
	s.onStop(func(context.Context) error { cancel(); <-done; return nil })
}

func (s *stack) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// wait returns when ctx has ended or a part has failed, and everything is stopped.
func (s *stack) wait(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
		if s.leave != nil {
			s.leave(s.failed)
		}
	case err = <-s.failed:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime+s.config.Load.RequestTimeout) // the last request may take that long
	defer cancel()
	return errors.Join(err, s.stop(stop))
}

// stop undoes everything, newest first, and joins what went wrong.
func (s *stack) stop(ctx context.Context) error {
	s.mu.Lock()
	stops := s.stops
	s.stops = nil
	s.mu.Unlock()
	var faults []error
	for i := len(stops) - 1; i >= 0; i-- {
		faults = append(faults, stops[i](ctx))
	}
	return errors.Join(faults...)
}
