package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what the agent does.
type metrics struct {
	actions  *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		actions: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "yare", Subsystem: "node", Name: "action_duration_seconds",
			Help: "How long the node agent's actions take, by kind.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9)}, []string{"action"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "yare", Subsystem: "node", Name: "action_failures_total",
			Help: "Actions of the node agent that failed, by kind."}, []string{"action"}),
	}
	if r != nil {
		r.MustRegister(m.actions, m.failures)
	}
	return m
}

func (m *metrics) action(name string, took time.Duration, err error) {
	m.actions.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.failures.WithLabelValues(name).Inc()
	}
}
