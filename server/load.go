package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/fairness"
	flowloop "github.com/yare-project/yare/controllers/flowcontrol"
	"github.com/yare-project/yare/kinds/flowcontrol"
	"github.com/yare-project/yare/scheduler"
)

// Load is how the API server shares itself out and how it ends, by kube-apiserver's flags. Zero fields take its defaults.
type Load struct {
	// WithoutFairness treats all clients alike: only the two numbers below bound what runs at once (--enable-priority-and-fairness=false).
	WithoutFairness bool
	// MaxRequests and MaxMutating (--max-requests-inflight, --max-mutating-requests-inflight) are how many reads and changes run at once; with
	// fairness, their sum is what priority levels share. Zero: 400 and 200; below zero: any number, none for the sum.
	MaxRequests, MaxMutating int
	// RequestTimeout is how long a request takes at most (1 min), MinRequestTimeout how long a watch lasts at least (30 min).
	RequestTimeout, MinRequestTimeout time.Duration
	// ShutdownDelay is how long everything goes on after the server was told to stop, while /readyz says that it will (none).
	ShutdownDelay time.Duration
}

func (l *Load) complete() error {
	setDefault(&l.MaxRequests, 400)
	setDefault(&l.MaxMutating, 200)
	setDefault(&l.RequestTimeout, time.Minute)
	setDefault(&l.MinRequestTimeout, 30*time.Minute)
	for flag, d := range map[string]time.Duration{"--request-timeout": l.RequestTimeout, "--min-request-timeout": l.MinRequestTimeout, "--shutdown-delay-duration": l.ShutdownDelay} {
		if d < 0 {
			return fmt.Errorf("%s %v is negative: give a time", flag, d)
		}
	}
	if !l.WithoutFairness && l.seats() == 0 {
		return errors.New("--max-requests-inflight and --max-mutating-requests-inflight are both 0: with --enable-priority-and-fairness their sum is what clients share, so give one of them a number")
	}
	return nil
}

// seats is how many requests run at once in all.
func (l *Load) seats() int { return max(l.MaxRequests, 0) + max(l.MaxMutating, 0) }

func (l *Load) limits() apiserver.Limits {
	return apiserver.Limits{Timeout: l.RequestTimeout, MinWatch: l.MinRequestTimeout, ReadOnlyInFlight: l.MaxRequests, MutatingInFlight: l.MaxMutating}
}

// buildFairness makes what decides whose turn it is; nil without fairness.
func (p *plane) buildFairness() {
	l := &p.config.Load
	if l.WithoutFairness {
		return
	}
	mandatory := flowcontrol.Mandatory()
	p.fair = fairness.New(fairness.Config{Levels: mandatory.Levels, Schemas: mandatory.Schemas, Seats: l.seats(), Timeout: l.RequestTimeout,
		Clock: p.config.Clock, Log: p.config.Log, Metrics: p.cluster.metrics})
}

// withDebug adds the tables that show who waits for what.
func (p *plane) withDebug(paths map[string]http.Handler) map[string]http.Handler {
	paths = maps.Clone(paths)
	if p.fair != nil {
		paths[fairness.DebugPath] = p.fair
	}
	if !p.config.APIOnly {
		paths[scheduler.DebugPath] = http.HandlerFunc(p.serveWaiting)
	}
	return paths
}

// serveWaiting tells what the scheduler knows of a pod without a node.
func (p *plane) serveWaiting(w http.ResponseWriter, r *http.Request) {
	s := p.scheduler.Load()
	if s == nil {
		http.Error(w, "the scheduler is not started yet", http.StatusServiceUnavailable)
		return
	}
	s.Serve(w, r)
}

// flowDefaults are the objects of flowcontrol.apiserver.k8s.io that every cluster has.
func flowDefaults() flowloop.Config {
	mandatory, suggested := flowcontrol.Mandatory(), flowcontrol.Suggested()
	return flowloop.Config{MandatoryLevels: mandatory.Levels, MandatorySchemas: mandatory.Schemas, SuggestedLevels: suggested.Levels, SuggestedSchemas: suggested.Schemas}
}

// ensureFlows brings those objects into a cluster that starts.
func (p *plane) ensureFlows(ctx context.Context) error {
	if p.fair == nil {
		return nil
	}
	return flowloop.Ensure(ctx, p.gate.Local(superuser), flowDefaults())
}

// keepFlows declares the loop that keeps them, also where no other loop runs: without it the API server's own behaviour would be incomplete.
func (p *plane) keepFlows(l *loops) error {
	if p.fair == nil {
		return nil
	}
	return l.runtime.Add(flowloop.Descriptor(flowDefaults()))
}

// takeLeave says that this server will end, and gives whoever balances load the time to hear of it.
func (p *plane) takeLeave(failed <-chan error) {
	p.gate.Unready()
	if p.config.Load.ShutdownDelay <= 0 {
		return
	}
	p.config.Log.Info("the server is asked to stop: new requests should go elsewhere", "still serving for", p.config.Load.ShutdownDelay)
	timer := p.config.Clock.NewTimer(p.config.Load.ShutdownDelay)
	defer timer.Stop()
	select {
	case <-timer.C():
	case err := <-failed:
		p.config.Log.Error("a part failed while the server took its leave", "error", err)
	}
}
