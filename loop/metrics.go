package loop

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the numbers of all loops of a runtime; the workqueue_ names are the ones that Kubernetes' dashboards ask for.
type metrics struct {
	adds, retries, passes     *prometheus.CounterVec
	depth                     *prometheus.GaugeVec
	queueSeconds, workSeconds *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	byName := []string{"name"}
	buckets := prometheus.ExponentialBuckets(1e-6, 10, 9)
	m := &metrics{
		adds:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_adds_total", Help: "Keys added to a loop's queue."}, byName),
		retries:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_retries_total", Help: "Passes that failed and were put off."}, byName),
		passes:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "yare_loop_passes_total", Help: "Passes by result."}, []string{"name", "result"}),
		depth:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "Keys that wait for a worker now."}, byName),
		queueSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "workqueue_queue_duration_seconds", Help: "Seconds that a key waited for a worker.", Buckets: buckets}, byName),
		workSeconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "workqueue_work_duration_seconds", Help: "Seconds that a pass took.", Buckets: buckets}, byName),
	}
	if r != nil {
		m.adds, m.retries, m.passes = register(r, m.adds), register(r, m.retries), register(r, m.passes)
		m.depth = register(r, m.depth)
		m.queueSeconds, m.workSeconds = register(r, m.queueSeconds), register(r, m.workSeconds)
	}
	return m
}

// register lets two runtimes of one process share a registry.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	var twice prometheus.AlreadyRegisteredError
	if err := r.Register(c); errors.As(err, &twice) {
		if same, ok := twice.ExistingCollector.(C); ok {
			return same
		}
	}
	return c
}

// queueMetrics are one loop's.
type queueMetrics struct {
	adds, retries, ok, failed prometheus.Counter
	waiting                   prometheus.Gauge
	queueSeconds, workSeconds prometheus.Observer
}

func (m *metrics) of(name string) *queueMetrics {
	return &queueMetrics{
		adds: m.adds.WithLabelValues(name), retries: m.retries.WithLabelValues(name), waiting: m.depth.WithLabelValues(name),
		ok: m.passes.WithLabelValues(name, "ok"), failed: m.passes.WithLabelValues(name, "error"),
		queueSeconds: m.queueSeconds.WithLabelValues(name), workSeconds: m.workSeconds.WithLabelValues(name),
	}
}

func (m *queueMetrics) added()                 { m.adds.Inc() }
func (m *queueMetrics) retried()               { m.retries.Inc() }
func (m *queueMetrics) depth(n int)            { m.waiting.Set(float64(n)) }
func (m *queueMetrics) waited(d time.Duration) { m.queueSeconds.Observe(d.Seconds()) }
func (m *queueMetrics) worked(d time.Duration) { m.workSeconds.Observe(d.Seconds()) }
