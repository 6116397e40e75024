package aggregation

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

// metrics have the names and labels of Kubernetes' aggregator, so that its dashboards and alerts work.
type metrics struct {
	now   *prometheus.GaugeVec
	total *prometheus.CounterVec
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		now: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "aggregator_unavailable_apiservice", Help: "1 for an APIService that is not available now, else 0."},
			[]string{"name"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "aggregator_unavailable_apiservice_total", Help: "How often an APIService became unavailable, by reason."},
			[]string{"name", "reason"}),
	}
	m.now, m.total = registered(reg, m.now), registered(reg, m.total)
	return m
}

// registered returns the collector of that name, which another Aggregator of the process may have registered before.
func registered[T prometheus.Collector](reg *prometheus.Registry, c T) T {
	var taken prometheus.AlreadyRegisteredError
	if err := reg.Register(c); errors.As(err, &taken) {
		if existing, ok := taken.ExistingCollector.(T); ok {
			return existing
		}
	}
	return c
}

func (m *metrics) set(s *apiService) {
	value := 1.0
	if helper.IsAPIServiceConditionTrue(s, apiregistrationv1.Available) {
		value = 0
	}
	m.now.WithLabelValues(s.Name).Set(value)
}

func (m *metrics) drop(name string) {
	m.now.DeleteLabelValues(name)
	m.total.DeletePartialMatch(prometheus.Labels{"name": name})
}

func (m *metrics) unavailable(name, reason string) { m.total.WithLabelValues(name, reason).Inc() }
