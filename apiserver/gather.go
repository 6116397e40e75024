package apiserver

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// everything is what /metrics tells: the server's own metrics, and those that libraries of Kubernetes keep for the whole process under the names that they
// have there (key management, OIDC, webhooks, client certificates). Of a name that both have, the server's own are told.
type everything struct{ own prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (e everything) Gather() ([]*dto.MetricFamily, error) {
	all, err := e.own.Gather()
	if err != nil {
		return all, err
	}
	known := map[string]bool{}
	for _, f := range all {
		known[f.GetName()] = true
	}
	theirs, err := legacyregistry.DefaultGatherer.Gather()
	for _, f := range theirs {
		if name := f.GetName(); !known[name] && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all, err
}
