package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// watch has many watchers see the same changes, and measures the way from a request to the event, and what one delivery costs.
func (r *run) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	version, err := r.version(ctx, r.in("configmaps"))
	if err != nil {
		return err
	}
	d := &delivery{want: int64(r.Watchers) * int64(r.Events), done: make(chan struct{}), sent: make([]atomic.Int64, r.Events)}
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	for w := range r.Watchers {
		res, err := r.open(ctx, request{path: r.in("configmaps") + "?watch=true&resourceVersion=" + version})
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			_ = res.Body.Close()
			return fmt.Errorf("a watch was answered with %s", res.Status)
		}
		watchers.Go(func() {
			defer res.Body.Close()
			d.follow(bufio.NewReaderSize(res.Body, 64<<10), w == 0)
		})
	}
	before, start := r.cpu(), time.Now()
	for i := range r.Events {
		d.sent[i].Store(time.Now().UnixNano())
		if err := r.want(ctx, request{method: http.MethodPost, path: r.in("configmaps"), body: configMap(fmt.Sprintf("w-%06d", i), i)}, 201); err != nil {
			return err
		}
	}
	timer := time.NewTimer(r.Patience)
	defer timer.Stop()
	select {
	case <-d.done:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	elapsed, spent := time.Since(start), r.cpu()-before
	d.mu.Lock()
	defer d.mu.Unlock()
	got := d.got.Load()
	result := r.result(fmt.Sprintf("watch, %d watchers", r.Watchers), int(got), elapsed, spent, d.took)
	result.Clients, result.Failed = r.Watchers, int(d.want-got)
	r.Report(result)
	return nil
}

// delivery counts events; the first watcher also times them.
type delivery struct {
	want int64
	got  atomic.Int64
	done chan struct{}
	sent []atomic.Int64 // when each was asked for, in Unix nanoseconds

	mu   sync.Mutex
	took []time.Duration
}

var watched = []byte(`"name":"w-`)

func (d *delivery) follow(lines *bufio.Reader, timed bool) {
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		at := bytes.Index(line, watched)
		if at < 0 || len(line) < at+len(watched)+6 {
			continue
		}
		if timed {
			if i, err := strconv.Atoi(string(line[at+len(watched) : at+len(watched)+6])); err == nil && i < len(d.sent) {
				d.mu.Lock()
				d.took = append(d.took, time.Duration(time.Now().UnixNano()-d.sent[i].Load()))
				d.mu.Unlock()
			}
		}
		if d.got.Add(1) == d.want {
			close(d.done)
		}
	}
}

// version is a collection's present resourceVersion.
func (r *run) version(ctx context.Context, path string) (string, error) {
	code, _, data, err := r.read(ctx, request{path: path + "?limit=1"})
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &list); err != nil || code != http.StatusOK {
		return "", fmt.Errorf("list: %d %.200s", code, data)
	}
	return list.Metadata.ResourceVersion, nil
}
