package probe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Kind is what a probe is for.
type Kind string

// The kinds, as events name them.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// Config is one container's probe.
type Config struct {
	Kind  Kind
	Probe *corev1.Probe
	// Started is when the container started: initialDelaySeconds counts from it.
	Started time.Time
	// Good says that the probe had succeeded before (the node restarted, not the container).
	Good  bool
	Clock clock.Clock
	// Ask puts the question.
	Ask func(ctx context.Context) (Answer, string, error)
	// Report hears of each change of the result, in order.
	Report func(success bool)
	// Event hears of failures; reason is Unhealthy or ProbeWarning.
	Event func(reason, message string)
}

const (
	// eager is the first wait between questions to a container that has not answered well yet; it doubles up to the period. The API allows
	// more questions than the period says while a container is not ready, so that it becomes ready sooner.
	eager = 100 * time.Millisecond
	// settle is how long a container that just started is only asked questions that can't count against it.
	settle = time.Second
	// retries is how often a question that could not be put is repeated at once.
	retries = 3
)

// Run asks until ctx ends, or until there is nothing more to ask: a startup probe that succeeded or failed, a liveness probe that failed.
func Run(ctx context.Context, c Config) {
	r := &runner{Config: c, good: c.Good, known: c.Good}
	if !r.sleep(ctx, c.Started.Add(seconds(c.Probe.InitialDelaySeconds)).Sub(c.Clock.Now())) {
		return
	}
	period := max(seconds(c.Probe.PeriodSeconds), time.Second)
	wait := eager
	due := c.Clock.Now().Add(min(period, settle))
	for ctx.Err() == nil {
		now := c.Clock.Now()
		regular := !now.Before(due)
		if regular {
			due = now.Add(period)
		}
		if (regular || r.hurry()) && r.ask(ctx, regular) {
			return
		}
		pause := due.Sub(c.Clock.Now())
		if r.hurry() && wait < period {
			pause = min(pause, wait)
			wait *= 2
		}
		if !r.sleep(ctx, pause) {
			return
		}
	}
}

type runner struct {
	Config
	run   int  // answers in a row that were like last
	last  bool // the last counted answer
	known bool // something was reported
	good  bool // what was reported
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (r *runner) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := r.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// hurry answers whether questions between the regular ones help: they can only make a container ready or started sooner.
func (r *runner) hurry() bool {
	return r.Kind != Liveness && !r.good && r.Probe.SuccessThreshold <= 1
}

// ask puts the question once and answers whether it was the last. An answer to a question between the regular ones counts only if it is good.
func (r *runner) ask(ctx context.Context, regular bool) (done bool) {
	answer, output, err := r.put(ctx)
	if ctx.Err() != nil {
		return true
	}
	success := err == nil && answer != Bad
	if !regular && !success {
		return false
	}
	switch {
	case err != nil:
		r.Event("Unhealthy", fmt.Sprintf("%s probe errored and resulted in %s state: %s", r.Kind, "unknown", err))
		return false
	case answer == Warning:
		r.Event("ProbeWarning", fmt.Sprintf("%s probe warning: %s", r.Kind, output))
	case answer == Bad:
		r.Event("Unhealthy", fmt.Sprintf("%s probe failed: %s", r.Kind, output))
	}
	return r.count(success)
}

func (r *runner) put(ctx context.Context) (a Answer, output string, err error) {
	for range retries {
		if a, output, err = r.Ask(ctx); err == nil || ctx.Err() != nil {
			return a, output, err
		}
	}
	return a, output, err
}

// count takes in an answer, reports if it reaches a threshold, and answers whether there is nothing more to ask.
func (r *runner) count(success bool) (done bool) {
	if r.run > 0 && r.last == success {
		r.run++
	} else {
		r.last, r.run = success, 1
	}
	need := max(r.Probe.FailureThreshold, 1)
	if success {
		need = max(r.Probe.SuccessThreshold, 1)
	}
	if r.run < int(need) {
		return false
	}
	if !r.known || r.good != success {
		r.known, r.good = true, success
		r.Report(success)
	}
	return r.Kind == Startup || r.Kind == Liveness && !success
}
