package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// load are flags whose values mean something else to kube-apiserver than to the config: 0 is "no limit" there.
type load struct {
	added, fair     bool
	reads, changes  int
	minimum         int // seconds
	timeout, linger time.Duration
}

// addLoad adds kube-apiserver's flags about how the API server is shared and how it ends.
func (f *flags) addLoad(set *pflag.FlagSet) {
	l := &f.load
	l.added = true
	set.BoolVar(&l.fair, "enable-priority-and-fairness", true, "share the API server among its clients by FlowSchemas and PriorityLevelConfigurations")
	set.IntVar(&l.reads, "max-requests-inflight", 400, "reads that run at once, 0 for any number; with priority and fairness, the sum with the next is what is shared")
	set.IntVar(&l.changes, "max-mutating-requests-inflight", 200, "changes that run at once, 0 for any number")
	set.DurationVar(&l.timeout, "request-timeout", time.Minute, "time that a request may take, but for watches and other streams")
	set.IntVar(&l.minimum, "min-request-timeout", 1800, "seconds that a watch lasts at least, unless the client asks for less; 0 for a year")
	set.DurationVar(&l.linger, "shutdown-delay-duration", 0, "time to go on serving, not ready any more, when told to stop")
}

func (f *flags) resolveLoad() error {
	l, c := f.load, &f.config.Load
	if !l.added {
		return nil // the command has no such flags
	}
	for name, n := range map[string]int{"max-requests-inflight": l.reads, "max-mutating-requests-inflight": l.changes, "min-request-timeout": l.minimum} {
		if n < 0 {
			return fmt.Errorf("--%s %d is negative: give a number, or 0", name, n)
		}
	}
	if l.timeout <= 0 {
		return fmt.Errorf("--request-timeout %v: give a time", l.timeout)
	}
	c.WithoutFairness, c.MaxRequests, c.MaxMutating = !l.fair, unlimited(l.reads), unlimited(l.changes)
	c.RequestTimeout, c.MinRequestTimeout, c.ShutdownDelay = l.timeout, time.Duration(l.minimum)*time.Second, l.linger
	if l.minimum == 0 {
		c.MinRequestTimeout = 365 * 24 * time.Hour
	}
	return nil
}

func unlimited(n int) int {
	if n == 0 {
		return -1
	}
	return n
}
