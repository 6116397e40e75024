package sim

import (
	"fmt"
	"log/slog"
	"time"
)

// Config is a run.
type Config struct {
	Seed uint64
	// Nodes there are at the beginning, and Pods that arrive in all.
	Nodes, Pods int
	// Arrival is the time in which all pods arrive; 10 minutes if zero.
	Arrival time.Duration
	// Life is how long a pod runs, on average, if it is not of a gang; zero means for ever.
	Life time.Duration
	// Patience is how long a pod may wait for its node; 10 minutes if zero.
	Patience time.Duration
	Faults   Faults
	// Log hears what the scheduler logs; nil means nobody.
	Log *slog.Logger
}

// Faults are what goes wrong.
type Faults struct {
	// Refused is the part of bindings that fail, Lost the part that is carried out though the scheduler is told that it failed.
	Refused, Lost float64
	// Nodes are how many nodes are lost during the arrival, one after the other, each with all its pods, which come anew. A new node comes a minute later.
	Nodes int
}

func (c Config) withDefaults() Config {
	if c.Arrival == 0 {
		c.Arrival = 10 * time.Minute
	}
	if c.Patience == 0 {
		c.Patience = 10 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Report is how a run went.
type Report struct {
	Bound   int           // bindings
	Ended   int           // pods that ran to their end
	Again   int           // pods that came anew because their node was lost
	Failed  int           // bindings that failed
	Longest time.Duration // that a pod waited for its node, in virtual time
	Virtual time.Duration
	Wall    time.Duration
	Digest  uint64 // of every binding, in order
}

func (r Report) String() string {
	return fmt.Sprintf("%d bindings in %.1f s (%.0f a second), %v of virtual time; %d pods ended, %d came anew, %d bindings failed; the longest wait was %v; digest %016x",
		r.Bound, r.Wall.Seconds(), float64(r.Bound)/r.Wall.Seconds(), r.Virtual.Round(time.Second), r.Ended, r.Again, r.Failed, r.Longest, r.Digest)
}
