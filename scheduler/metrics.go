package scheduler

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/yare-project/yare/scheduler/gang"
)

// meters are the numbers that dashboards for Kubernetes' scheduler ask for.
type meters struct {
	attempts  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	pending   *prometheus.GaugeVec
	latency   *prometheus.HistogramVec
	tries     prometheus.Histogram
	preempted prometheus.Histogram

	groupAttempts  *prometheus.CounterVec
	groupDurations *prometheus.HistogramVec
}

func newMeters(r prometheus.Registerer) *meters {
	fine := prometheus.ExponentialBuckets(1e-5, 2, 20)
	m := &meters{
		attempts:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_schedule_attempts_total", Help: "Decisions by profile and result."}, []string{"profile", "result"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Seconds from the start of a decision to its end, binding included.", Buckets: fine}, []string{"profile", "result"}),
		pending:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "scheduler_pending_pods", Help: "Pods without a node, by where they wait."}, []string{"queue"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_pod_scheduling_sli_duration_seconds", Help: "Seconds from a pod's first sight to its binding.",
			Buckets: prometheus.ExponentialBuckets(1e-4, 2, 20)}, []string{"attempts"}),
		tries:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_pod_scheduling_attempts", Help: "Decisions that a pod took.", Buckets: prometheus.ExponentialBuckets(1, 2, 5)}),
		preempted: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_preemption_victims", Help: "Pods removed for one other.", Buckets: prometheus.ExponentialBuckets(1, 2, 7)}),
	}
	m.groupAttempts = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_podgroup_schedule_attempts_total", Help: "Decisions about pod groups by result and profile."}, []string{"result", "profile"})
	m.groupDurations = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "scheduler_podgroup_scheduling_attempt_duration_seconds", Help: "Seconds that a decision about a pod group took.", Buckets: fine}, []string{"result", "profile"})
	if r != nil {
		m.groupAttempts, m.groupDurations = register(r, m.groupAttempts), register(r, m.groupDurations)
		m.attempts, m.durations, m.pending = register(r, m.attempts), register(r, m.durations), register(r, m.pending)
		m.latency, m.tries, m.preempted = register(r, m.latency), register(r, m.tries), register(r, m.preempted)
	}
	return m
}

// register lets two schedulers of one process share a registry.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	var twice prometheus.AlreadyRegisteredError
	if err := r.Register(c); errors.As(err, &twice) {
		if same, ok := twice.ExistingCollector.(C); ok {
			return same
		}
	}
	return c
}

func (m *meters) attempt(profile, result string, d time.Duration) {
	m.attempts.WithLabelValues(profile, result).Inc()
	m.durations.WithLabelValues(profile, result).Observe(d.Seconds())
}

func (m *meters) group(profile string, plan *gang.Plan, err error, d time.Duration) {
	result := "unschedulable"
	switch {
	case err != nil:
		result = "error"
	case plan.Settled:
		result = "scheduled"
	case plan.Enough():
		result = "waiting_on_preemption"
	}
	m.groupAttempts.WithLabelValues(result, profile).Inc()
	m.groupDurations.WithLabelValues(result, profile).Observe(d.Seconds())
}

func (m *meters) scheduled(it *item, now time.Time) {
	label := "15+"
	if it.attempts < 15 {
		label = strconv.Itoa(it.attempts)
	}
	m.latency.WithLabelValues(label).Observe(now.Sub(it.first).Seconds())
	m.tries.Observe(float64(it.attempts))
}

func (m *meters) queue(q *queue) {
	a, b, p, g := q.depth()
	for name, n := range map[string]int{"active": a, "backoff": b, "unschedulable": p, "gated": g} {
		m.pending.WithLabelValues(name).Set(float64(n))
	}
}
