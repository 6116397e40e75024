// Package measure counts what admission decides and how long it takes, under the names and labels of Kubernetes' metrics.
//
// What plugins take is measured from the first time on that somebody reads the metrics, and so costs nothing where nobody does. What webhooks and
// policies do is always counted, as it is little beside what they cost.
//
// A nil *Admission measures nothing. Everything is safe for concurrent use.
package measure

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
)

// Admission are the metrics of one server's admission.
type Admission struct {
	read atomic.Bool
	// tables are the plugins' histograms, by kind of step and operation, made when first needed.
	tables [2][4]atomic.Pointer[table]

	steps, plugins *prometheus.HistogramVec

	webhooks                        *prometheus.HistogramVec
	rejections, failOpens, requests *prometheus.CounterVec
	conditionErrors, exclusions     *prometheus.CounterVec
	conditions                      *prometheus.HistogramVec
	validating, mutating            checks
}

// checks are the metrics of one sort of policy.
type checks struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// New registers the metrics.
func New(to prometheus.Registerer) *Admission {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	usual, remote := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}, []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25}
	tiny, quick := []float64{0.0000005, 0.001, 0.01, 0.1, 1}, []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}
	m := &Admission{
		steps:      histogram("apiserver_admission_step_admission_duration_seconds", "Time that all admission plugins took for a request, since metrics are read.", usual, "type", "operation", "rejected"),
		plugins:    histogram("apiserver_admission_controller_admission_duration_seconds", "Time that one admission plugin took for a request, since metrics are read.", usual, "name", "type", "operation", "rejected"),
		webhooks:   histogram("apiserver_admission_webhook_admission_duration_seconds", "Time that an admission webhook took for a request.", remote, "name", "type", "operation", "rejected"),
		rejections: counter("apiserver_admission_webhook_rejection_count", "Requests that an admission webhook refused, or that were refused because it failed.", "name", "type", "operation", "error_type", "rejection_code"),
		failOpens:  counter("apiserver_admission_webhook_fail_open_count", "Failures of an admission webhook that were passed over.", "name", "type"),
		requests:   counter("apiserver_admission_webhook_request_total", "Requests that an admission webhook was asked about.", "name", "type", "operation", "code", "rejected"),
		conditionErrors: counter("apiserver_admission_match_condition_evaluation_errors_total", "Match conditions that could not be evaluated.",
			"name", "kind", "type", "operation"),
		exclusions: counter("apiserver_admission_match_condition_exclusions_total", "Requests that match conditions kept from a webhook or policy.", "name", "kind", "type", "operation"),
		conditions: histogram("apiserver_admission_match_condition_evaluation_seconds", "Time that match conditions took for a request.", quick, "name", "kind", "type", "operation"),
		validating: checks{
			counter("apiserver_validating_admission_policy_check_total", "Decisions of a validating policy.", "policy", "policy_binding", "error_type", "enforcement_action"),
			histogram("apiserver_validating_admission_policy_check_duration_seconds", "Time that a validating policy took.", tiny, "policy", "policy_binding", "error_type", "enforcement_action")},
		mutating: checks{
			counter("apiserver_mutating_admission_policy_check_total", "Changes by a mutating policy.", "policy", "policy_binding", "error_type"),
			histogram("apiserver_mutating_admission_policy_check_duration_seconds", "Time that a mutating policy took.", tiny, "policy", "policy_binding", "error_type")},
	}
	for _, c := range []prometheus.Collector{noticed{m.steps, &m.read}, m.plugins, m.webhooks, m.rejections, m.failOpens, m.requests, m.conditionErrors, m.exclusions, m.conditions,
		m.validating.total, m.validating.took, m.mutating.total, m.mutating.took} {
		var taken prometheus.AlreadyRegisteredError
		if err := to.Register(c); err != nil && !errors.As(err, &taken) {
			panic(err) // a metric that cannot be registered is a mistake in this file
		}
	}
	return m
}

// noticed is a collector that tells when it is read.
type noticed struct {
	prometheus.Collector
	read *atomic.Bool
}

func (n noticed) Collect(to chan<- prometheus.Metric) {
	n.read.Store(true)
	n.Collector.Collect(to)
}

// Kind is a kind of step: plugins that change requests, or that judge them.
type Kind int

const (
	Mutate Kind = iota
	Validate
)

// String is the step as the metrics of plugins, mutating webhooks and policies name it.
func (k Kind) String() string { return [...]string{"admit", "validate"}[k] }

// webhook is the step as those of webhooks name it.
func (k Kind) webhook() string { return [...]string{"admit", "validating"}[k] }

var operations = map[admissionv1.Operation]int{admissionv1.Create: 0, admissionv1.Update: 1, admissionv1.Delete: 2, admissionv1.Connect: 3}

// table are the histograms of requests that are not refused: of the step and of each plugin.
type table struct {
	step    prometheus.Observer
	plugins []prometheus.Observer
}

// Step measures one request's way through the plugins of one kind. One goroutine uses it.
type Step struct {
	admission    *Admission
	table        *table
	kind         Kind
	operation    admissionv1.Operation
	began, since time.Time
}

// Begin starts to measure a step; nil, which does nothing, if nobody reads the metrics. names are the step's plugins, in order and ever the same.
func (m *Admission) Begin(kind Kind, operation admissionv1.Operation, names func() []string) *Step {
	if m == nil || !m.read.Load() {
		return nil
	}
	at := &m.tables[kind][operations[operation]]
	t := at.Load()
	if t == nil {
		t = &table{step: m.steps.WithLabelValues(kind.String(), string(operation), "false")}
		for _, name := range names() {
			t.plugins = append(t.plugins, m.plugins.WithLabelValues(name, kind.String(), string(operation), "false"))
		}
		at.Store(t)
	}
	now := time.Now()
	return &Step{admission: m, table: t, kind: kind, operation: operation, began: now, since: now}
}

// Plugin notes that the i-th plugin has let the request pass.
func (s *Step) Plugin(i int) {
	now := time.Now()
	s.table.plugins[i].Observe(now.Sub(s.since).Seconds())
	s.since = now
}

// Refused notes that a plugin has refused the request, which ends the step.
func (s *Step) Refused(plugin string) {
	now := time.Now()
	s.admission.plugins.WithLabelValues(plugin, s.kind.String(), string(s.operation), "true").Observe(now.Sub(s.since).Seconds())
	s.admission.steps.WithLabelValues(s.kind.String(), string(s.operation), "true").Observe(now.Sub(s.began).Seconds())
}

// Passed ends the step.
func (s *Step) Passed() { s.table.step.Observe(time.Since(s.began).Seconds()) }

// Outcome is what came of asking a webhook.
type Outcome int

const (
	// Allowed and Denied are the webhook's answers.
	Allowed Outcome = iota
	Denied
	// Failed says that the webhook could not be asked, which refused the request; FailedOpen that this was passed over.
	Failed
	FailedOpen
	// Broken says that this server could not do its part.
	Broken
)

// Webhook counts a call; code is the HTTP status that came of it, 0 if none did.
func (m *Admission) Webhook(kind Kind, name string, operation admissionv1.Operation, outcome Outcome, code int, took time.Duration) {
	if m == nil {
		return
	}
	refused := outcome == Denied || outcome == Failed || outcome == Broken
	status, typ := strconv.Itoa(min(code, 600)), kind.webhook()
	m.webhooks.WithLabelValues(name, typ, string(operation), strconv.FormatBool(refused)).Observe(took.Seconds())
	m.requests.WithLabelValues(name, typ, string(operation), status, strconv.FormatBool(refused)).Inc()
	switch outcome {
	case Denied:
		m.rejections.WithLabelValues(name, typ, string(operation), "no_error", status).Inc()
	case Failed:
		m.rejections.WithLabelValues(name, typ, string(operation), "calling_webhook_error", status).Inc()
	case Broken:
		m.rejections.WithLabelValues(name, typ, string(operation), "apiserver_internal_error", status).Inc()
	case FailedOpen:
		m.failOpens.WithLabelValues(name, typ).Inc()
	}
}

// Conditions counts the evaluation of match conditions of a webhook or a policy, which is owner.
func (m *Admission) Conditions(kind Kind, owner, name string, operation admissionv1.Operation, matched bool, err error, took time.Duration) {
	if m == nil {
		return
	}
	typ := kind.String()
	if owner == OfWebhook {
		typ = kind.webhook()
	}
	labels := []string{name, owner, typ, string(operation)}
	m.conditions.WithLabelValues(labels...).Observe(took.Seconds())
	switch {
	case err != nil:
		m.conditionErrors.WithLabelValues(labels...).Inc()
	case !matched:
		m.exclusions.WithLabelValues(labels...).Inc()
	}
}

// Validated counts what a validating policy did to a request: allow, deny, warn or audit.
func (m *Admission) Validated(policy, binding, errorType, action string, took time.Duration) {
	if m == nil {
		return
	}
	m.validating.total.WithLabelValues(policy, binding, errorType, action).Inc()
	m.validating.took.WithLabelValues(policy, binding, errorType, action).Observe(took.Seconds())
}

// Mutated counts what a mutating policy did to a request.
func (m *Admission) Mutated(policy, binding, errorType string, took time.Duration) {
	if m == nil {
		return
	}
	m.mutating.total.WithLabelValues(policy, binding, errorType).Inc()
	m.mutating.took.WithLabelValues(policy, binding, errorType).Observe(took.Seconds())
}

// Whose match conditions are counted.
const (
	OfWebhook = "webhook"
	OfPolicy  = "policy"
)

// What the metrics of policies call errors.
const (
	NoError     = "no_error"
	Invalid     = "invalid_error"
	Compile     = "compile_error"
	OutOfBudget = "out_of_budget"
)
