package fairness

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DebugPath is where the tables of ServeHTTP are, as in Kubernetes: dump_priority_levels, dump_queues and dump_requests below it.
const DebugPath = "/debug/api_priority_and_fairness/"

// ServeHTTP shows what waits and what is worked on, as comma-separated tables for people and scripts.
func (c *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	dump := map[string]func(io.Writer, bool){
		"dump_priority_levels": c.dumpLevels, "dump_queues": c.dumpQueues, "dump_requests": c.dumpRequests,
	}[strings.TrimPrefix(r.URL.Path, DebugPath)]
	if dump == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	dump(out, r.URL.Query().Get("includeRequestDetails") != "")
	_ = out.Flush() // a client that has gone cannot be told
}

func row(w io.Writer, columns ...string) { _, _ = fmt.Fprintln(w, strings.Join(columns, ",\t")) }

// each visits the levels in the order of their names, locked and up to date.
func (c *Controller) each(visit func(*level)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.levels)) {
		l := c.levels[name]
		now := l.now()
		l.mu.Lock()
		l.set.advance(now)
		visit(l)
		l.mu.Unlock()
	}
}

func (c *Controller) dumpLevels(w io.Writer, _ bool) {
	row(w, "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests", "RejectedRequests",
		"TimedoutRequests", "CancelledRequests")
	c.each(func(l *level) {
		s := &l.set
		row(w, l.name, strconv.Itoa(len(s.heads)), strconv.FormatBool(s.idle()), strconv.FormatBool(l.quiescing), strconv.Itoa(s.waiting), strconv.Itoa(s.executing),
			strconv.FormatUint(s.dispatched, 10), strconv.FormatUint(s.rejected, 10), strconv.FormatUint(s.timedOut, 10), strconv.FormatUint(s.cancelled, 10))
	})
}

// sorted are the queues that have requests, by number.
func (s *queueSet) sorted() []*queue {
	return slices.SortedFunc(slices.Values(s.active), func(a, b *queue) int { return a.index - b.index })
}

func (c *Controller) dumpQueues(w io.Writer, _ bool) {
	row(w, "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum")
	c.each(func(l *level) {
		for _, q := range l.set.sorted() {
			initial := 0
			for t := q.requests.first; t != nil; t = t.next {
				initial += t.width.initial
			}
			row(w, l.name, strconv.Itoa(q.index), strconv.Itoa(q.waiting), strconv.Itoa(q.executing), strconv.Itoa(q.seats), seatSeconds(q.start), strconv.Itoa(initial),
				strconv.Itoa(q.waitingSeats), seatSeconds(q.work))
		}
	})
}

func seatSeconds(v float64) string { return strconv.FormatFloat(v/1e9, 'f', 8, 64) + "ss" }

func (c *Controller) dumpRequests(w io.Writer, details bool) {
	head := []string{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}
	if details {
		head = append(head, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	row(w, head...)
	c.each(func(l *level) {
		for _, q := range l.set.sorted() {
			place := 0
			for t := q.requests.first; t != nil; t = t.next {
				l.dumpRequest(w, t, place, details)
				place++
			}
		}
		for t := l.set.running.first; t != nil; t = t.next {
			l.dumpRequest(w, t, -1, details)
		}
	})
}

func (l *level) dumpRequest(w io.Writer, t *Ticket, place int, details bool) {
	index := -1
	if t.queue != nil {
		index = t.queue.index
	}
	at := func(ns int64) string { return l.epoch.Add(time.Duration(ns)).UTC().Format(time.RFC3339Nano) }
	began := time.Time{}.Format(time.RFC3339Nano)
	if t.state == executing {
		began = at(t.started)
	}
	columns := []string{l.name, t.flow.name, strconv.Itoa(index), strconv.Itoa(place), t.distinguisher, at(t.arrived), strconv.Itoa(t.width.initial), strconv.Itoa(t.width.final),
		time.Duration(t.width.after).String(), began}
	if details {
		columns = append(columns, t.User.GetName(), t.Verb, t.Path, t.Namespace, t.Name, schema.GroupVersion{Group: t.Group, Version: t.Version}.String(), t.Plural, t.SubResource)
	}
	row(w, columns...)
}
