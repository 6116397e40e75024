package fairness

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges count the requests that are worked on now, reads and changes apart, under the names of Kubernetes.
type gauges struct{ reads, changes atomic.Int64 }

var inflight = prometheus.NewDesc("apiserver_current_inflight_requests", "Requests worked on now, watches and other streams left out.", []string{"request_kind"}, nil)

func mutates(verb string) bool {
	switch verb {
	case "get", "list", "watch", "head", "options":
		return false
	}
	return true
}

func (g *gauges) enter(t *Ticket) { g.add(t, 1) }
func (g *gauges) leave(t *Ticket) { g.add(t, -1) }

func (g *gauges) add(t *Ticket, n int64) {
	switch {
	case t.Work.Watch:
	case mutates(t.Verb):
		g.changes.Add(n)
	default:
		g.reads.Add(n)
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) { out <- inflight }

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(inflight, prometheus.GaugeValue, float64(g.reads.Load()), "readOnly")
	out <- prometheus.MustNewConstMetric(inflight, prometheus.GaugeValue, float64(g.changes.Load()), "mutating")
}

// register adds a collector. Where several servers share a registry, the first is shown.
func register(reg prometheus.Registerer, c prometheus.Collector) {
	var taken prometheus.AlreadyRegisteredError
	if err := reg.Register(c); err != nil && !errors.As(err, &taken) {
		panic(err) // a metric that cannot be registered is a mistake in this file
	}
}

// family is one metric of a level or of a flow.
type family[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(T) float64
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_flowcontrol_"+name, help, labels, nil)
}

func perLevel(name, help string, of func(*level) float64) family[*level] {
	return family[*level]{describe(name, help, "priority_level"), prometheus.GaugeValue, of}
}

func perFlow(name, help string, kind prometheus.ValueType, of func(*stats) float64) family[*stats] {
	return family[*stats]{describe(name, help, "priority_level", "flow_schema"), kind, of}
}

// collector shows the controller's figures under the names of Kubernetes' API server. They are counted in the levels, not here.
type collector struct{ *Controller }

var levelFamilies = []family[*level]{
	perLevel("nominal_limit_seats", "Seats that a priority level has by its configuration.", func(l *level) float64 { return float64(l.nominal) }),
	perLevel("lower_limit_seats", "Least seats of a priority level that lends.", func(l *level) float64 { return float64(l.lowest) }),
	perLevel("upper_limit_seats", "Most seats of a priority level that borrows.", func(l *level) float64 { return float64(l.highest) }),
	perLevel("current_limit_seats", "Seats of a priority level now.", func(l *level) float64 { return float64(l.set.limit) }),
	perLevel("demand_seats_high_watermark", "Most seats that a priority level could use in the last period.", func(l *level) float64 { return float64(l.peak) }),
	perLevel("demand_seats_average", "Mean of the seats that a priority level could use in the last period.", func(l *level) float64 { return l.mean }),
	perLevel("demand_seats_stdev", "Standard deviation of the seats that a priority level could use in the last period.", func(l *level) float64 { return l.deviation }),
	perLevel("demand_seats_smoothed", "Smoothed demand for seats.", func(l *level) float64 { return l.smoothed }),
	perLevel("target_seats", "Seats that a priority level should get.", func(l *level) float64 { return l.target }),
	perLevel("current_r", "Virtual time of a priority level, in seat-seconds.", func(l *level) float64 { return l.set.virtual / 1e9 }),
}

var flowFamilies = []family[*stats]{
	perFlow("dispatched_requests_total", "Requests that were let in.", prometheus.CounterValue, func(s *stats) float64 { return float64(s.dispatched) }),
	perFlow("current_inqueue_requests", "Requests that wait.", prometheus.GaugeValue, func(s *stats) float64 { return float64(s.waiting) }),
	perFlow("current_inqueue_seats", "Seats that waiting requests need.", prometheus.GaugeValue, func(s *stats) float64 { return float64(s.waitingSeats) }),
	perFlow("current_executing_requests", "Requests that are worked on; watches only while they start.", prometheus.GaugeValue, func(s *stats) float64 { return float64(s.executing) }),
	perFlow("current_executing_seats", "Seats that are taken.", prometheus.GaugeValue, func(s *stats) float64 { return float64(s.executingSeats) }),
	perFlow("request_dispatch_no_accommodation_total", "Times that the next request did not fit into the free seats.", prometheus.CounterValue, func(s *stats) float64 { return float64(s.noRoom) }),
}

var (
	rejectedDesc    = describe("rejected_requests_total", "Requests that were turned away.", "priority_level", "flow_schema", "reason")
	fairDesc        = describe("seat_fair_frac", "Part of their target that priority levels get.")
	waitDesc        = describe("request_wait_duration_seconds", "Time that requests waited.", "priority_level", "flow_schema", "execute")
	executionDesc   = describe("request_execution_seconds", "Time that requests were worked on; watches only while they start.", "priority_level", "flow_schema", "type")
	widthDesc       = describe("work_estimated_seats", "Seats that requests were estimated to need.", "priority_level", "flow_schema")
	watchersDesc    = describe("watch_count_samples", "Watches that changes wake.", "priority_level", "flow_schema")
	queueLengthDesc = describe("request_queue_length_after_enqueue", "Length of a queue as seen by who joins it.", "priority_level", "flow_schema")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range levelFamilies {
		out <- f.desc
	}
	for _, f := range flowFamilies {
		out <- f.desc
	}
	for _, d := range []*prometheus.Desc{inflight, rejectedDesc, fairDesc, waitDesc, executionDesc, widthDesc, watchersDesc, queueLengthDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.gauges.Collect(out)
	c.mu.Lock()
	defer c.mu.Unlock()
	out <- prometheus.MustNewConstMetric(fairDesc, prometheus.GaugeValue, c.fair)
	for _, l := range c.levels {
		now := l.now()
		l.mu.Lock()
		l.set.advance(now)
		for _, f := range levelFamilies {
			out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(l), l.name)
		}
		l.mu.Unlock()
	}
	for key, s := range c.stats {
		l := c.levels[key.level]
		if l == nil {
			continue
		}
		l.mu.Lock()
		copied := *s
		l.mu.Unlock()
		collectFlow(out, key, &copied)
	}
}

func collectFlow(out chan<- prometheus.Metric, key flowKey, s *stats) {
	for _, f := range flowFamilies {
		out <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(s), key.level, key.schema)
	}
	for why, n := range s.rejected {
		if n > 0 {
			out <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(n), key.level, key.schema, reasonNames[why])
		}
	}
	show := func(desc *prometheus.Desc, h *histogram, bounds []float64, labels ...string) {
		if h.total > 0 {
			out <- prometheus.MustNewConstHistogram(desc, h.total, h.sum, h.cumulative(bounds), append([]string{key.level, key.schema}, labels...)...)
		}
	}
	for i, name := range []string{"false", "true"} {
		show(waitDesc, &s.waits[i], durations, name)
	}
	for i, name := range []string{"regular", "watch"} {
		show(executionDesc, &s.executions[i], durations, name)
	}
	show(widthDesc, &s.widths, widths)
	show(watchersDesc, &s.watchers, watchCounts)
	show(queueLengthDesc, &s.queueLength, queueLengths)
}
