package apiserver

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/yare-project/yare/internal/resource"
)

// metrics carry the names and labels of Kubernetes' API server, so that its dashboards and alerts work.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	events   *prometheus.CounterVec
	streams  *prometheus.GaugeVec
	panics   prometheus.Counter
	local    *prometheus.CounterVec
	busy     *prometheus.CounterVec

	authenticated, unauthenticated, erroneous prometheus.Counter
	allowed, denied, undecided                prometheus.Counter
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_request_total", Help: "Requests by verb, resource and answer."},
			[]string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_request_duration_seconds", Help: "Time from a request's arrival to the end of its answer, streams left out.",
			Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}},
			[]string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}),
		events:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_watch_events_total", Help: "Events sent to watchers over HTTP."}, []string{"group", "resource"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_longrunning_requests", Help: "Watches and other streams open now."}, []string{"verb", "resource", "subresource"}),
		panics:  prometheus.NewCounter(prometheus.CounterOpts{Name: "yare_apiserver_panics_total", Help: "Requests that ended in a panic."}),
		local:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "yare_apiserver_local_requests_total", Help: "Requests from within the process."}, []string{"verb", "group", "resource"}),
		busy:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "yare_apiserver_local_request_seconds_total", Help: "Time spent on requests from within the process."}, []string{"verb", "group", "resource"}),
	}
	who := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "authentication_attempts", Help: "Requests by how it went to find out who sent them."}, []string{"result"})
	m.authenticated, m.unauthenticated, m.erroneous = who.WithLabelValues("success"), who.WithLabelValues("failure"), who.WithLabelValues("error")
	may := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "authorization_attempts_total", Help: "Decisions about who may do what, by outcome."}, []string{"result"})
	m.allowed, m.denied, m.undecided = may.WithLabelValues("allowed"), may.WithLabelValues("denied"), may.WithLabelValues("error")
	for _, c := range []prometheus.Collector{who, may, m.requests, m.duration, m.events, m.streams, m.panics, m.local, m.busy,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		var taken prometheus.AlreadyRegisteredError
		if err := reg.Register(c); err != nil && !isTaken(err, &taken) {
			panic(err) // a metric that cannot be registered is a mistake in this file
		}
	}
	return m
}

func isTaken(err error, taken *prometheus.AlreadyRegisteredError) bool {
	t, ok := err.(prometheus.AlreadyRegisteredError)
	*taken = t
	return ok
}

// metricVerbs are the verbs as Kubernetes' metrics name them.
var metricVerbs = map[string]string{"create": "POST", "update": "PUT"}

// observe counts a finished request.
func (x *exchange) observe() {
	r, m := &x.route, x.server.metrics
	verb, group, version, res, sub, scope := x.labels()
	dry := ""
	if x.dryRun {
		dry = "All"
	}
	code := x.w.status
	if code == 0 {
		code = 200
	}
	m.requests.WithLabelValues(verb, dry, group, version, res, sub, scope, "apiserver", strconv.Itoa(code)).Inc()
	if !r.streams() {
		m.duration.WithLabelValues(verb, dry, group, version, res, sub, scope, "apiserver").Observe(x.server.cfg.Clock.Since(x.start).Seconds())
	}
}

// labels describe a request. Resources that nothing serves share one label, so that clients cannot grow the metrics at will.
func (x *exchange) labels() (verb, group, version, res, sub, scope string) {
	r := &x.route
	verb = strings.ToUpper(x.verb)
	if v, ok := metricVerbs[x.verb]; ok {
		verb = v
	}
	if r.resource && r.remote && x.server.cfg.Aggregator.Knows(r.ref.GroupVersionResource) {
		return verb, r.ref.Group, r.ref.Version, r.ref.Resource, "", r.scope()
	}
	if !r.resource || r.served == nil {
		return knownMethod(x.req.Method), "", "", "", "", ""
	}
	if r.connect != nil {
		verb = "CONNECT"
	}
	scope = r.scope()
	sub = r.ref.Subresource
	if x.w.status == 404 && sub != "status" && sub != "scale" && r.connect == nil && x.sub() == nil {
		sub = ""
	}
	return verb, r.ref.Group, r.ref.Version, r.ref.Resource, sub, scope
}

// scope is how much a request is about.
func (r *route) scope() string {
	switch {
	case r.ref.Name != "" || r.verb == "create":
		return "resource"
	case r.ref.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

func knownMethod(m string) string {
	switch m {
	case "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS":
		return m
	}
	return "other"
}

// observeLocal counts a request from within the process.
func (s *Server) observeLocal(verb string, ref resource.Ref, start time.Time) {
	s.metrics.local.WithLabelValues(verb, ref.Group, ref.Resource).Inc()
	s.metrics.busy.WithLabelValues(verb, ref.Group, ref.Resource).Add(s.cfg.Clock.Since(start).Seconds())
}

// knownResource and streamSub are safe as labels: they name only what is served.
func (r *route) knownResource() string {
	if r.served == nil {
		return ""
	}
	return r.ref.Resource
}

func (r *route) streamSub() string {
	if r.connect == nil {
		return ""
	}
	return r.connect.Name
}
