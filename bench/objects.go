package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

func namespace(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
}

// configMap has half a KiB of data and a label of ten values.
func configMap(name string, i int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"l":"v%d"}},"data":{"k":"%0512d"}}`, name, i%10, i)
}

// pod is a small but usual one; more is further fields of its spec. One in a hundred has the label run=x7.
func pod(name, more string, i int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"bench","run":"x%d"},"annotations":{"example.com/a":"one","example.com/b":"two"}},`+
		`"spec":{"terminationGracePeriodSeconds":0,%s"containers":[{"name":"c","image":"registry.k8s.io/pause:3.10","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],`+
		`"ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"10m","memory":"16Mi"}}}]}}`, name, i%100, more)
}

// nowhere binds a pod to a node that there is not: nobody runs it.
const nowhere = `"nodeName":"no-such-node",`

func podName(i int) string { return fmt.Sprintf("p-%06d", i) }
func mapName(i int) string { return fmt.Sprintf("cm-%06d", i) }

func (r *run) create(ctx context.Context) error {
	if err := r.measure(ctx, "create ConfigMap", r.Objects, r.Clients, func(ctx context.Context, i int) error {
		return r.want(ctx, request{method: http.MethodPost, path: r.in("configmaps"), body: configMap(mapName(i), i)}, 201)
	}); err != nil {
		return err
	}
	r.filled = true
	return r.measure(ctx, "create Pod", r.Objects, r.Clients, func(ctx context.Context, i int) error {
		return r.want(ctx, request{method: http.MethodPost, path: r.in("pods"), body: pod(podName(i), nowhere, i)}, 201)
	})
}

// fill makes what the loads on existing objects need, unmeasured, where "create" did not run before.
func (r *run) fill(ctx context.Context) error {
	if r.filled {
		return nil
	}
	report := r.Report
	defer func() { r.Report = report }()
	r.Report = func(Result) {}
	return r.create(ctx)
}

func (r *run) get(ctx context.Context) error {
	if err := r.fill(ctx); err != nil {
		return err
	}
	return r.measure(ctx, "get Pod", 2*r.Objects, r.Clients, func(ctx context.Context, _ int) error {
		return r.want(ctx, request{path: r.in("pods") + "/" + podName(rand.IntN(r.Objects))}, 200)
	})
}

func (r *run) list(ctx context.Context) error {
	if err := r.fill(ctx); err != nil {
		return err
	}
	for _, l := range []struct {
		name, query    string
		count, clients int
	}{{"list all Pods", "", 20, 2}, {"list Pods, limit=500", "?limit=500", 100, 4}, {"list Pods, 1 % by label", "?labelSelector=run%3Dx7", 100, 4}} {
		if err := r.measure(ctx, l.name, l.count, l.clients, func(ctx context.Context, _ int) error {
			return r.want(ctx, request{path: r.in("pods") + l.query}, 200)
		}); err != nil {
			return err
		}
	}
	return nil
}

func status(i int) []byte {
	return fmt.Appendf(nil, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"r%d"}]}}`, i)
}

func (r *run) update(ctx context.Context) error {
	if err := r.fill(ctx); err != nil {
		return err
	}
	return r.measure(ctx, "patch Pod status", r.Objects, r.Clients, func(ctx context.Context, i int) error {
		return r.want(ctx, request{method: http.MethodPatch, path: r.in("pods") + "/" + podName(i) + "/status", contentType: asStrategic, body: status(i)}, 200)
	})
}

func (r *run) applied(i int) request {
	name := fmt.Sprintf("ssa-%06d", i%max(r.Objects/4, 1))
	return request{method: http.MethodPatch, path: r.in("configmaps") + "/" + name + "?fieldManager=bench&force=true", contentType: asApply,
		body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k":"%d"}}`, name, i)}
}

func (r *run) apply(ctx context.Context) error {
	return r.measure(ctx, "server-side apply", max(r.Objects/2, 1), r.Clients, func(ctx context.Context, i int) error { return r.want(ctx, r.applied(i), 200, 201) })
}

func (r *run) remove(ctx context.Context) error {
	if err := r.fill(ctx); err != nil {
		return err
	}
	r.filled = false
	if err := r.measure(ctx, "delete ConfigMap", r.Objects, r.Clients, func(ctx context.Context, i int) error {
		return r.want(ctx, request{method: http.MethodDelete, path: r.in("configmaps") + "/" + mapName(i)}, 200)
	}); err != nil {
		return err
	}
	return r.measure(ctx, "delete Pod", r.Objects, r.Clients, func(ctx context.Context, i int) error {
		return r.want(ctx, request{method: http.MethodDelete, path: r.in("pods") + "/" + podName(i)}, 200)
	})
}

// more joins further fields of a pod's spec.
func more(fields ...string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(f)
		b.WriteByte(',')
	}
	return b.String()
}
