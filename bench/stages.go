package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// askStages is the header by which a server is asked where a request's time goes; it answers with Server-Timing (see apiserver/stages).
var askStages = http.Header{"X-Yare-Stages": {"1"}}

// ErrNoStages says that a server does not tell in which stage a request's time goes.
var ErrNoStages = errors.New("this server does not say where a request's time goes (no Server-Timing header): leave out the load \"stages\"")

// stages sends requests one at a time, so that none waits for another, and averages what the server says about each.
func (r *run) stages(ctx context.Context) error {
	if err := r.fill(ctx); err != nil {
		return err
	}
	made := fmt.Sprintf("%06x", rand.IntN(1<<24))
	stamp := func(i int) string { return fmt.Sprintf("st-%s-%06d", made, i) }
	for _, l := range []struct {
		name    string
		request func(i int) request
	}{
		{"create ConfigMap", func(i int) request {
			return request{method: http.MethodPost, path: r.in("configmaps"), body: configMap(stamp(i), i)}
		}},
		{"create Pod", func(i int) request {
			return request{method: http.MethodPost, path: r.in("pods"), body: pod(stamp(i), nowhere, i)}
		}},
		{"get Pod", func(i int) request { return request{path: r.in("pods") + "/" + stamp(i)} }},
		{"list Pods, limit=500", func(int) request { return request{path: r.in("pods") + "?limit=500"} }},
		{"patch Pod status", func(i int) request {
			return request{method: http.MethodPatch, path: r.in("pods") + "/" + stamp(i) + "/status", contentType: asStrategic, body: status(i)}
		}},
		{"server-side apply", func(i int) request { return r.applied(i) }},
		{"delete Pod", func(i int) request {
			return request{method: http.MethodDelete, path: r.in("pods") + "/" + stamp(i)}
		}},
	} {
		if err := r.stagesOf(ctx, l.name, l.request); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) stagesOf(ctx context.Context, name string, make func(i int) request) error {
	var order []string
	spent := map[string]time.Duration{}
	var took []time.Duration
	before, start := r.cpu(), time.Now()
	for i := range r.Samples {
		rq := make(i)
		rq.header = askStages
		began := time.Now()
		code, header, err := r.send(ctx, rq)
		if err != nil {
			return err
		}
		if code >= 300 {
			return fmt.Errorf("%s: %d", name, code)
		}
		took = append(took, time.Since(began))
		timing := header.Get("Server-Timing")
		if timing == "" {
			return ErrNoStages
		}
		for _, entry := range strings.Split(timing, ",") {
			stage, duration, ok := parseTiming(entry)
			if !ok {
				return fmt.Errorf("%s: Server-Timing %q cannot be read", name, timing)
			}
			if _, seen := spent[stage]; !seen {
				order = append(order, stage)
			}
			spent[stage] += duration
		}
	}
	result := r.result("stages of "+name, r.Samples, time.Since(start), r.cpu()-before, took)
	result.Clients = 1
	for _, stage := range order {
		result.Stages = append(result.Stages, Stage{stage, micros(spent[stage]) / float64(r.Samples)})
	}
	r.Report(result)
	return nil
}

// parseTiming reads one metric of a Server-Timing header: name;dur=milliseconds.
func parseTiming(entry string) (string, time.Duration, bool) {
	name, text, ok := strings.Cut(strings.TrimSpace(entry), ";dur=")
	if !ok {
		return "", 0, false
	}
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil || ms < 0 {
		return "", 0, false
	}
	return name, time.Duration(ms * float64(time.Millisecond)), true
}
