package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// schedulerTime is how long a scheduler may take to bind a first pod.
const schedulerTime = 30 * time.Second

// schedule makes nodes that nobody runs and has pods scheduled onto them.
func (r *run) schedule(ctx context.Context) error {
	pods := r.Pods
	if pods <= 0 {
		pods = 5000
	}
	if err := r.makeNodes(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	events, err := r.watchPods(ctx)
	if err != nil {
		return err
	}
	onto := more(`"nodeSelector":{"bench":"`+r.name+`"}`, `"tolerations":[{"operator":"Exists"}]`)
	// One pod ahead shows that the scheduler knows the nodes.
	if err := r.want(ctx, request{method: http.MethodPost, path: r.in("pods"), body: pod("ahead", onto, 0)}, 201); err != nil {
		return err
	}
	first, enough := context.WithTimeout(ctx, schedulerTime)
	_, err = await(first, events, 1, func(e podEvent) bool { return e.name == "ahead" && e.bound })
	enough()
	if err != nil {
		return fmt.Errorf("no scheduler binds a pod within %v: %w", schedulerTime, err)
	}
	before, start := r.cpu(), time.Now()
	if err := r.measure(ctx, "create Pod, unbound", pods, r.Clients, func(ctx context.Context, i int) error {
		return r.want(ctx, request{method: http.MethodPost, path: r.in("pods"), body: pod(fmt.Sprintf("s-%06d", i), onto, i)}, 201)
	}); err != nil {
		return err
	}
	seen := map[string]bool{}
	bound, err := await(ctx, events, pods, func(e podEvent) bool {
		if !e.bound || seen[e.name] || !strings.HasPrefix(e.name, "s-") {
			return false
		}
		seen[e.name] = true
		return true
	})
	result := r.result(fmt.Sprintf("schedule onto %d nodes", r.Nodes), bound, time.Since(start), r.cpu()-before, nil)
	result.Failed = pods - bound
	if err != nil {
		result.FirstError = err.Error()
	}
	r.Report(result)
	return r.removeNodes(context.WithoutCancel(ctx)) // before another load has a pod started: nobody would
}

func (r *run) removeNodes(ctx context.Context) error {
	return r.want(ctx, request{method: http.MethodDelete, path: "/api/v1/nodes?labelSelector=bench%3D" + r.name}, 200)
}

func (r *run) makeNodes(ctx context.Context) error {
	now := time.Now().UTC().Format(time.RFC3339)
	room := `"capacity":{"cpu":"32","memory":"256Gi","pods":"110"},"allocatable":{"cpu":"32","memory":"256Gi","pods":"110"}`
	status := fmt.Sprintf(`"status":{%s,"conditions":[{"type":"Ready","status":"True","reason":"bench","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}`, room, now, now)
	name := func(i int) string { return fmt.Sprintf("%s-%05d", r.name, i) }
	if err := r.measure(ctx, "create Node", r.Nodes, r.Clients, func(ctx context.Context, i int) error {
		return r.want(ctx, request{method: http.MethodPost, path: "/api/v1/nodes", body: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"labels":{"kubernetes.io/hostname":%q,"topology.kubernetes.io/zone":"z%d","bench":%q}},%s}`,
			name(i), name(i), i%3, r.name, status)}, 201)
	}); err != nil {
		return err
	}
	return r.measure(ctx, "ready Node", r.Nodes, r.Clients, func(ctx context.Context, i int) error {
		if err := r.want(ctx, request{method: http.MethodPatch, path: "/api/v1/nodes/" + name(i), contentType: asMerge, body: []byte(`{"spec":{"taints":null}}`)}, 200); err != nil {
			return err
		}
		return r.want(ctx, request{method: http.MethodPatch, path: "/api/v1/nodes/" + name(i) + "/status", contentType: asMerge, body: []byte("{" + status + "}")}, 200)
	})
}

// podEvent is what a watcher saw of a pod.
type podEvent struct {
	name         string
	bound, ready bool
	at           time.Time
}

// watchPods follows the run's pods until ctx ends, from now on.
func (r *run) watchPods(ctx context.Context) (<-chan podEvent, error) {
	version, err := r.version(ctx, r.in("pods"))
	if err != nil {
		return nil, err
	}
	res, err := r.open(ctx, request{path: r.in("pods") + "?watch=true&resourceVersion=" + version})
	if err != nil {
		return nil, err
	}
	out := make(chan podEvent, 4096)
	go func() {
		defer res.Body.Close()
		defer close(out)
		for documents := json.NewDecoder(res.Body); ; {
			e, err := nextPod(documents)
			if err != nil {
				return
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func nextPod(documents *json.Decoder) (podEvent, error) {
	var e struct {
		Object struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				NodeName string `json:"nodeName"`
			} `json:"spec"`
			Status struct {
				Conditions []struct{ Type, Status string } `json:"conditions"`
			} `json:"status"`
		} `json:"object"`
	}
	if err := documents.Decode(&e); err != nil {
		return podEvent{}, err
	}
	out := podEvent{name: e.Object.Metadata.Name, bound: e.Object.Spec.NodeName != "", at: time.Now()}
	for _, c := range e.Object.Status.Conditions {
		out.ready = out.ready || c.Type == "Ready" && c.Status == "True"
	}
	return out, nil
}

// await counts the events that are meant until there are enough, and returns how many there were.
func await(ctx context.Context, events <-chan podEvent, enough int, meant func(podEvent) bool) (int, error) {
	for n := 0; ; {
		select {
		case e, open := <-events:
			if !open {
				return n, fmt.Errorf("the watch ended after %d of %d", n, enough)
			}
			if !meant(e) {
				continue
			}
			if n++; n == enough {
				return n, nil
			}
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}

// podstart starts pods one after the other on a real node, and times the way to Ready.
func (r *run) podstart(ctx context.Context) error {
	count := r.Pods
	if count <= 0 {
		count = 20
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := r.watchPods(ctx)
	if err != nil {
		return err
	}
	command := ""
	if len(r.Command) > 0 {
		text, err := json.Marshal(r.Command)
		if err != nil {
			return err
		}
		command = `"command":` + string(text) + `,`
	}
	var bound, ready []time.Duration
	before, start := r.cpu(), time.Now()
	for i := range count {
		name := fmt.Sprintf("st-%06d", i)
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":%q,"imagePullPolicy":"IfNotPresent",%s"resources":{}}]}}`,
			name, r.Image, command)
		began := time.Now()
		if err := r.want(ctx, request{method: http.MethodPost, path: r.in("pods"), body: body}, 201); err != nil {
			return err
		}
		isBound := false
		wait, enough := context.WithTimeout(ctx, time.Minute)
		_, err := await(wait, events, 1, func(e podEvent) bool {
			if e.name == name && e.bound && !isBound {
				isBound = true
				bound = append(bound, e.at.Sub(began))
			}
			if e.name == name && e.ready {
				ready = append(ready, e.at.Sub(began))
			}
			return e.name == name && e.ready
		})
		enough()
		if err != nil {
			return fmt.Errorf("pod %s is not ready: %w", name, err)
		}
		if err := r.want(ctx, request{method: http.MethodDelete, path: r.in("pods") + "/" + name + "?gracePeriodSeconds=0"}, 200); err != nil {
			return err
		}
	}
	elapsed, spent := time.Since(start), r.cpu()-before
	r.Report(r.result("pod: create to bound", len(bound), elapsed, 0, bound))
	r.Report(r.result("pod: create to Ready", len(ready), elapsed, spent, ready))
	return nil
}
