// Package bench measures a Kubernetes API server from outside, by what any client may do: create, read, list, patch, apply, watch, delete, have pods
// scheduled and started. It says how many operations a second there were, how long they took, what the server's processes spent on each, and, where the server tells
// (Yare does), in which stage of a request the time went.
//
// The same loads run against any server, so that figures can be compared. Clients share one connection pool, as one program's would; they ask for JSON.
// What a run makes, it makes in a namespace (and on nodes) of its own with a random name, and removes at its end.
//
// A run is not safe for concurrent use with another on the same server: they would measure each other.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Config says what to measure. Zero values take the defaults that are given.
type Config struct {
	// Server is how to reach the API server.
	Server *rest.Config
	// PIDs are the server's processes on this machine; their processor time and memory are what an operation costs. Empty: none is told.
	PIDs []int
	// Run names loads, in order; see Loads. Empty: all but "podstart" and "idle", which need a node and time.
	Run      []string
	Objects  int // how many there are of a kind: 5000
	Clients  int // how many ask at once: 32
	Watchers int // 200
	Events   int // that each watcher is to see: 500
	Nodes    int // pretended ones for "schedule": 1000
	Pods     int // to be scheduled, or started: 5000, for "podstart" 20
	// Image and Command are what "podstart" runs.
	Image   string
	Command []string
	// Samples is how many requests each row of "stages" stands for: 300.
	Samples int
	// Idle is how long "idle" looks on: 20 s.
	Idle time.Duration
	// Patience bounds the wait for what the server does by itself, such as scheduling: 5 min.
	Patience time.Duration
	// Report hears of each result as it is there.
	Report func(Result)
	// Proc is where the kernel tells of processes: /proc.
	Proc string
}

// run is a run under way.
type run struct {
	Config
	target
	process
	name   string // of the namespace, and the beginning of the nodes' names
	filled bool   // the objects of "create" are there
}

// load is one thing that can be measured.
type load struct {
	name string
	do   func(*run, context.Context) error
}

// loads are what can be measured, in the order in which they make sense.
var loads = []load{
	{"create", (*run).create},
	{"get", (*run).get},
	{"list", (*run).list},
	{"update", (*run).update},
	{"apply", (*run).apply},
	{"watch", (*run).watch},
	{"stages", (*run).stages},
	{"delete", (*run).remove},
	{"schedule", (*run).schedule},
	{"podstart", (*run).podstart},
	{"idle", (*run).idle},
}

// Loads are the names that Config.Run may have.
func Loads() []string {
	var out []string
	for _, l := range loads {
		out = append(out, l.name)
	}
	return out
}

// Run measures, and removes what it made even if ctx ended. A load that fails ends the run; single requests that fail are counted in their Result.
func Run(ctx context.Context, c Config) error {
	if err := c.complete(); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.Server)
	if err != nil {
		return err
	}
	r := &run{Config: c, target: target{base: strings.TrimSuffix(c.Server.Host, "/"), client: client}, process: process{proc: c.Proc, pids: c.PIDs},
		name: fmt.Sprintf("bench-%06x", rand.IntN(1<<24))}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, name := range c.Run {
		i := slices.IndexFunc(loads, func(l load) bool { return l.name == name })
		if err = loads[i].do(r, ctx); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			break
		}
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err = errors.Join(err, r.end(clean))
	client.CloseIdleConnections()
	return err
}

func (c *Config) complete() error {
	if c.Server == nil {
		return errors.New("bench: Config.Server is nil")
	}
	c.Server = rest.CopyConfig(c.Server)
	c.Server.QPS, c.Server.Burst = -1, -1
	if len(c.Run) == 0 {
		c.Run = slices.DeleteFunc(Loads(), func(n string) bool { return n == "podstart" || n == "idle" })
	}
	for _, name := range c.Run {
		if !slices.Contains(Loads(), name) {
			return fmt.Errorf("load %q is not known: %s are", name, strings.Join(Loads(), ", "))
		}
	}
	if slices.Contains(c.Run, "podstart") && c.Image == "" {
		return errors.New("podstart needs an image that the node has")
	}
	for _, field := range []struct {
		value   *int
		usually int
	}{{&c.Objects, 5000}, {&c.Clients, 32}, {&c.Watchers, 200}, {&c.Events, 500}, {&c.Nodes, 1000}, {&c.Samples, 300}} {
		if *field.value <= 0 {
			*field.value = field.usually
		}
	}
	if c.Idle <= 0 {
		c.Idle = 20 * time.Second
	}
	if c.Patience <= 0 {
		c.Patience = 5 * time.Minute
	}
	if c.Report == nil {
		c.Report = func(Result) {}
	}
	if c.Proc == "" {
		c.Proc = "/proc"
	}
	return nil
}

// begin makes the namespace, and waits for the service account without which no pod is let in, if there is to be one.
func (r *run) begin(ctx context.Context) error {
	if err := r.want(ctx, request{method: http.MethodPost, path: "/api/v1/namespaces", body: namespace(r.name)}, 201); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = r.poll(wait, func(ctx context.Context) bool {
		code, _, err := r.send(ctx, request{path: r.in("serviceaccounts") + "/default"})
		return err == nil && code == 200
	})
	return ctx.Err()
}

// end removes everything. The objects go before the namespace: a server without a namespace controller would keep them.
func (r *run) end(ctx context.Context) error {
	var faults []error
	for _, path := range []string{r.in("pods") + "?gracePeriodSeconds=0", r.in("configmaps")} {
		faults = append(faults, r.want(ctx, request{method: http.MethodDelete, path: path}, 200))
	}
	faults = append(faults, r.removeNodes(ctx))
	faults = append(faults, r.want(ctx, request{method: http.MethodDelete, path: "/api/v1/namespaces/" + r.name}, 200, 202))
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("removing what the run made (namespace %s): %w", r.name, err)
	}
	return nil
}

// in is the path of a core resource in the run's namespace.
func (r *run) in(resource string) string { return "/api/v1/namespaces/" + r.name + "/" + resource }

func (r *run) idle(ctx context.Context) error {
	before := r.cpu()
	timer := time.NewTimer(r.Idle)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	spent := r.cpu() - before
	r.Report(Result{Load: "idle", Seconds: r.Idle.Seconds(), MemoryMiB: r.memory(), IdlePercent: spent.Seconds() / r.Idle.Seconds() * 100})
	return nil
}
