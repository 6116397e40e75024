// Package audit records who asked the gate for what, and what came of it, in the events of audit.k8s.io/v1.
//
// A policy in Kubernetes' own file format says which requests are recorded at which level; outputs (a log file, a webhook) take the events, each in
// its own mode. An event is told at up to four stages of a request: when it was received, when an answer that streams began, when the answer was
// complete, or when the request panicked.
//
// Guarantees: what a level does not include is not kept, so no body is in an event below Request; a body is taken as it was read or written and never
// decoded again. A request waits for an output in blocking mode only; a batch that cannot be delivered is dropped and counted, never piled up
// without bound. Headers, and so credentials, are never part of an event.
//
// An [Auditor] is safe for concurrent use. A [Record] belongs to one request, whose goroutines may use it together. The package decides nothing about
// requests, except that in mode blocking-strict one that cannot be recorded is to be refused.
package audit

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
)

// Config is all that an Auditor needs.
type Config struct {
	// Policy judges requests: see LoadPolicy.
	Policy audit.PolicyRuleEvaluator
	// Outputs take the events. Without any nothing is recorded.
	Outputs []Output
	Clock   clock.Clock           // nil: the real one
	Log     *slog.Logger          // nil: discards
	Metrics prometheus.Registerer // nil: counts for nobody
}

// Output is where events go, and how a request treats it.
type Output struct {
	Sink Sink
	Mode Mode
	// Batch is for mode Batch.
	Batch BatchConfig
}

// Mode says whether requests wait for an output.
type Mode string

const (
	// Batch gathers events and writes them in the background.
	Batch Mode = "batch"
	// Blocking writes each event before its request goes on.
	Blocking Mode = "blocking"
	// BlockingStrict refuses a request that could not be recorded when it was received.
	BlockingStrict Mode = "blocking-strict"
)

// Sink writes events somewhere. The events are shared and must not be changed.
type Sink interface {
	// Name is how metrics name the sink.
	Name() string
	// Write writes all events. What it returns is counted and logged; nobody tries again.
	Write(ctx context.Context, events []*auditv1.Event) error
	// Close lets go of what the sink holds. Nothing is written after it.
	Close() error
}

// Auditor judges requests and passes on their events.
type Auditor struct {
	policy  audit.PolicyRuleEvaluator
	outputs []output
	clock   clock.Clock
	metrics *metrics
	log     *slog.Logger
}

// output is an Output at work.
type output interface {
	// take accepts an event; false says that the request must not go on.
	take(e *auditv1.Event) bool
	close(ctx context.Context) error
}

// New starts the outputs. Close ends them.
func New(cfg Config) *Auditor {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Auditor{policy: cfg.Policy, clock: cfg.Clock, log: cfg.Log, metrics: newMetrics(cfg.Metrics)}
	for _, o := range cfg.Outputs {
		w := &writer{sink: o.Sink, metrics: a.metrics, log: cfg.Log}
		if o.Mode == Batch {
			a.outputs = append(a.outputs, newBatcher(o.Batch, w, cfg.Clock))
		} else {
			a.outputs = append(a.outputs, &direct{writer: w, strict: o.Mode == BlockingStrict})
		}
	}
	return a
}

// Close writes what is still waiting, as long as ctx lasts, and closes the sinks. No request may be recorded any more.
func (a *Auditor) Close(ctx context.Context) error {
	var faults []error
	for _, o := range a.outputs {
		faults = append(faults, o.close(ctx))
	}
	return errors.Join(faults...)
}

// judge finds the level of a request.
func (a *Auditor) judge(attributes authorizer.Attributes) audit.RequestAuditConfig {
	rule := a.policy.EvaluatePolicyRule(attributes)
	a.metrics.levels.WithLabelValues(string(rule.Level)).Inc()
	return rule
}

// emit passes an event on; false says that its request must not go on.
func (a *Auditor) emit(e *auditv1.Event) bool {
	a.metrics.events.Inc()
	ok := true
	for _, o := range a.outputs {
		ok = o.take(e) && ok
	}
	return ok
}

// writer writes to a sink and accounts for what fails.
type writer struct {
	sink    Sink
	metrics *metrics
	log     *slog.Logger
}

func (w *writer) write(ctx context.Context, events []*auditv1.Event) error {
	err := w.sink.Write(ctx, events)
	if err != nil {
		w.lost(w.sink.Name(), events, err)
	}
	return err
}

// lost counts events that were not recorded, and says so once for all of them.
func (w *writer) lost(plugin string, events []*auditv1.Event, err error) {
	w.metrics.errors.WithLabelValues(plugin).Add(float64(len(events)))
	w.log.Error("audit events were not recorded", "output", plugin, "events", len(events), "firstID", events[0].AuditID, "error", err)
}

// direct writes each event in its request's own time.
type direct struct {
	*writer
	strict bool
}

func (d *direct) take(e *auditv1.Event) bool {
	err := d.write(context.Background(), []*auditv1.Event{e})
	return err == nil || !d.strict
}

func (d *direct) close(context.Context) error { return d.sink.Close() }
