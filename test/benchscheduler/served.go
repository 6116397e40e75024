package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 5 * time.Minute

// client talks to the server under measurement, with as little work of its own as it can.
type client struct {
	base    string
	http    *http.Client
	clients int
}

// served measures pods from the first one's creation until a watch showed that all are bound.
func served(ctx context.Context, o *options, w *workload) (f figure, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := start(ctx, o.yare)
	if err != nil {
		return figure{}, err
	}
	defer func() {
		stopped := s.stop()
		if err != nil {
			err = fmt.Errorf("%w\nthe server's last words:\n%s", err, s.lastWords())
		}
		err = errors.Join(err, stopped)
	}()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return figure{}, err
	}
	c := &client{base: strings.TrimSuffix(config.Host, "/"), clients: o.clients}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return figure{}, err
	}
	if err := c.prepare(ctx, w); err != nil {
		return figure{}, err
	}
	profiled := c.record(ctx, o)
	before, began := s.cpu(), time.Now()
	if err := c.group(ctx, w); err != nil {
		return figure{}, err
	}
	if err := c.place(ctx, "m", w.pod, w.served, w.gang); err != nil {
		return figure{}, err
	}
	took, cpu := time.Since(began), s.cpu()-before
	n := time.Duration(w.served)
	if w.gang > 0 {
		n /= time.Duration(w.gang)
	}
	return figure{rate: float64(n) / took.Seconds(), cpu: cpu / n, mib: s.resident()}, errors.Join(profiled())
}

// prepare makes the nodes and the initial pods, and sees to it that the scheduler knows them.
func (c *client) prepare(ctx context.Context, w *workload) error {
	space, err := json.Marshal(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil {
		return err
	}
	class, err := json.Marshal(&schedulingv1.PriorityClass{TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"}, ObjectMeta: metav1.ObjectMeta{Name: highPriority}, Value: 10})
	if err != nil {
		return err
	}
	if err := errors.Join(c.send(ctx, http.MethodPost, "/api/v1/namespaces", "", space), c.send(ctx, http.MethodPost, "/apis/scheduling.k8s.io/v1/priorityclasses", "", class)); err != nil {
		return err
	}
	if err := c.each(ctx, w.nodes, func(i int) error {
		n := w.node(i)
		n.APIVersion, n.Kind = "v1", "Node"
		body, err := json.Marshal(n)
		if err != nil {
			return err
		}
		if err := c.send(ctx, http.MethodPost, "/api/v1/nodes", "", body); err != nil {
			return err
		}
		return c.send(ctx, http.MethodPatch, "/api/v1/nodes/"+n.Name, "application/merge-patch+json", []byte(`{"spec":{"taints":null}}`))
	}); err != nil {
		return err
	}
	// Pods that are bound show that the scheduler knows the nodes: it hears of them in the order of their creation.
	before, n := w.before, w.initial
	if before == nil {
		before = w.pod
	}
	if n == 0 {
		before, n = plain, 100
	}
	return c.place(ctx, "i", before, n, 0)
}

// group makes the groups of a workload of gangs.
func (c *client) group(ctx context.Context, w *workload) error {
	if w.gang == 0 {
		return nil
	}
	return c.each(ctx, w.served/w.gang, func(i int) error {
		return c.send(ctx, http.MethodPost, "/apis/scheduling.k8s.io/v1alpha2/namespaces/"+namespace+"/podgroups", "", fmt.Appendf(nil,
			`{"apiVersion":"scheduling.k8s.io/v1alpha2","kind":"PodGroup","metadata":{"name":"group-%d"},"spec":{"schedulingPolicy":{"gang":{"minCount":%d}}}}`, i, w.gang))
	})
}

// place creates pods and returns once a watch showed that all are bound.
func (c *client) place(ctx context.Context, prefix string, of func() *corev1.Pod, n, group int) error {
	p := of()
	p.APIVersion, p.Kind, p.Name = "v1", "Pod", "NAME"
	p.Labels = maps.Clone(p.Labels) // a selector of the pod may hold the same map
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels["run"] = prefix
	template, err := json.Marshal(p)
	if err != nil {
		return err
	}
	head, tail, _ := bytes.Cut(template, []byte("NAME"))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bound, err := c.watch(ctx, prefix, n)
	if err != nil {
		return err
	}
	if err := c.each(ctx, n, func(i int) error {
		body := fmt.Appendf(nil, "%s%s-%06d%s", head, prefix, i, tail)
		if group > 0 {
			body = bytes.Replace(body, []byte(groupName), fmt.Appendf(nil, "group-%d", i/group), 1)
		}
		return c.send(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", "", body)
	}); err != nil {
		return err
	}
	return <-bound
}

// watch tells once so many pods of a run are bound. A watch that the server ends, because this client is too slow for it, is begun again: it starts with what there is.
func (c *client) watch(ctx context.Context, run string, n int) (<-chan error, error) {
	body, err := c.open(ctx, run)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		seen := map[string]bool{}
		for ctx.Err() == nil {
			follow(body, n, seen)
			body.Close()
			if len(seen) >= n {
				done <- nil
				return
			}
			if body, err = c.open(ctx, run); err != nil {
				break
			}
		}
		done <- fmt.Errorf("%d of %d pods are bound: %w", len(seen), n, errors.Join(err, ctx.Err()))
	}()
	return done, nil
}

// follow reads events until so many pods were seen or the watch ends.
func follow(events io.Reader, n int, seen map[string]bool) {
	lines := bufio.NewReaderSize(events, 1<<20)
	for len(seen) < n {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		seen[nameOf(line)] = true
	}
}

// open begins a watch of the bound pods of a run.
func (c *client) open(ctx context.Context, run string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/v1/namespaces/"+namespace+"/pods?watch=true&labelSelector=run%3D"+run+"&fieldSelector=spec.nodeName%21%3D", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("watch: %s", res.Status)
	}
	return res.Body, nil
}

// nameOf reads the object's name out of an event: the first of that key is the object's own.
func nameOf(event []byte) string {
	_, rest, _ := bytes.Cut(event, []byte(`"metadata":{"name":"`))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(name)
}

// each does something n times by all clients; the first error ends it.
func (c *client) each(ctx context.Context, n int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range c.clients {
		all.Go(func() {
			for failed.Load() == nil && ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

func (c *client) send(ctx context.Context, method, path, contentType string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if contentType == "" {
		contentType = "application/json"
	}
	req.Header.Set("Content-Type", contentType)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// record has the server profile itself if that is wanted; the result waits for the profile.
func (c *client) record(ctx context.Context, o *options) func() error {
	if o.memory || o.profile == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/debug/pprof/profile?seconds=5", nil)
		if err != nil {
			done <- err
			return
		}
		res, err := c.http.Do(req)
		if err != nil {
			done <- err
			return
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		done <- errors.Join(err, os.WriteFile(o.profile, data, 0o600))
	}()
	return func() error { return <-done }
}
