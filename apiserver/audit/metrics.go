package audit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the names that Kubernetes' dashboards and alerts know.
type metrics struct {
	events, rejected prometheus.Counter
	errors, levels   *prometheus.CounterVec
}

func newMetrics(to prometheus.Registerer) *metrics {
	m := &metrics{
		events:   prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_audit_event_total", Help: "Audit events that were passed to the outputs."}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_audit_requests_rejected_total", Help: "Requests that were refused because they could not be recorded."}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_audit_error_total", Help: "Audit events that were not recorded, by the part that failed."}, []string{"plugin"}),
		levels:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_audit_level_total", Help: "Requests by the level at which they are recorded."}, []string{"level"}),
	}
	if to == nil {
		return m
	}
	for _, c := range []prometheus.Collector{m.events, m.rejected, m.errors, m.levels} {
		var taken prometheus.AlreadyRegisteredError
		if err := to.Register(c); err != nil && !errors.As(err, &taken) {
			panic(err) // a metric that cannot be registered is a mistake in this file
		}
	}
	return m
}
