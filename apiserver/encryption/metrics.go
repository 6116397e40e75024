package encryption

import (
	"crypto/sha256"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// metrics are Kubernetes' own about the configuration file.
type metrics struct {
	id      string
	clock   clock.Clock
	reloads *prometheus.CounterVec
	last    *prometheus.GaugeVec
	info    *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer, id string, clock clock.Clock) *metrics {
	const namespace, subsystem = "apiserver", "encryption_config_controller"
	m := &metrics{id: digest([]byte(id)), clock: clock,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: "automatic_reloads_total",
			Help: "Reloads of the encryption configuration while the server ran, by whether they succeeded."}, []string{"status", "apiserver_id_hash"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "automatic_reload_last_timestamp_seconds",
			Help: "When the encryption configuration was last reloaded, by whether that succeeded."}, []string{"status", "apiserver_id_hash"}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: "last_config_info",
			Help: "The digest of the encryption configuration in force."}, []string{"apiserver_id_hash", "hash"}),
	}
	if registry != nil {
		registry.MustRegister(m.reloads, m.last, m.info)
	}
	return m
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func (m *metrics) reload(status string) {
	m.reloads.WithLabelValues(status, m.id).Inc()
	m.last.WithLabelValues(status, m.id).Set(float64(m.clock.Now().UnixNano()) / 1e9)
}

// inForce says which configuration holds now.
func (m *metrics) inForce(content []byte) {
	m.info.Reset()
	m.info.WithLabelValues(m.id, digest(content)).Set(1)
}
