package verbs

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/store"
)

// server is who the API server's own work is done as.
var server = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}

// Own is a request of the API server itself about an object of the hub version.
func (r *Resource) Own(namespace, name string) *Request {
	v := &r.Kind.Versions[0]
	return &Request{Version: v, User: server, Manager: "yare", Warn: func(string) {},
		Ref: resource.Ref{GroupVersionResource: v.GroupVersion().WithResource(v.Names.Plural), Namespace: namespace, Name: name}}
}

// deadline is when a state of an object expires.
type deadline struct {
	key string
	rev store.Revision
	at  time.Time
}

// expire deletes each object ttl after its last write, until ctx ends. Writes come in order and live equally long, so the queue is in order
// too and costs nothing but its memory.
func (r *Resource) expire(ctx context.Context, ttl time.Duration) {
	for ctx.Err() == nil {
		snap := r.table.Snapshot()
		var queue []deadline
		snap.Ascend("", "", func(item store.Item) bool {
			created := item.Value.(*stored.Object).Hub().GetCreationTimestamp()
			queue = append(queue, deadline{item.Key, item.Revision, created.Add(ttl)})
			return true
		})
		slices.SortFunc(queue, func(a, b deadline) int { return a.at.Compare(b.at) })
		watch, err := r.table.Watch(snap.Revision())
		if err != nil {
			return // the store has closed
		}
		r.expireFrom(ctx, ttl, queue, watch)
		watch.Close()
	}
}

// expireFrom runs until the watch breaks or ctx ends.
func (r *Resource) expireFrom(ctx context.Context, ttl time.Duration, queue []deadline, watch store.Watch) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written := make(chan []deadline)
	go func() {
		defer close(written)
		for {
			events, err := watch.Next(ctx)
			if err != nil {
				return
			}
			select {
			case written <- r.deadlines(events, ttl):
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		timer := r.Clock.NewTimer(r.untilNext(queue))
		select {
		case more, open := <-written:
			timer.Stop()
			if !open {
				return
			}
			queue = append(queue, more...)
		case <-timer.C():
			queue = r.sweep(ctx, queue)
		}
	}
}

func (r *Resource) deadlines(events []store.Event, ttl time.Duration) []deadline {
	at := r.Clock.Now().Add(ttl)
	var out []deadline
	for i := range events {
		if !events[i].Deleted {
			out = append(out, deadline{events[i].Key, events[i].Revision, at})
		}
	}
	return out
}

func (r *Resource) untilNext(queue []deadline) time.Duration {
	if len(queue) == 0 {
		return time.Hour
	}
	return max(queue[0].at.Sub(r.Clock.Now()), 10*time.Millisecond)
}

// sweep deletes what is due and was not written again since; it returns the rest of the queue.
func (r *Resource) sweep(ctx context.Context, queue []deadline) []deadline {
	now := r.Clock.Now()
	for len(queue) > 0 && !queue[0].at.After(now) {
		d := queue[0]
		queue = queue[1:]
		item, ok := r.table.Get(d.key)
		if !ok || item.Revision != d.rev {
			continue
		}
		obj := item.Value.(*stored.Object).Hub()
		rv := obj.GetResourceVersion()
		rq := r.Own(obj.GetNamespace(), obj.GetName())
		opts := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &rv}}
		if _, _, err := r.Delete(ctx, rq, opts); err != nil && ctx.Err() == nil {
			r.Log.Debug("an expired object stays", "resource", r.Kind.Resource().String(), "key", d.key, "error", err)
		}
	}
	return queue
}
