package scheduler

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
)

const statusWriters = 8

// statusWriter writes the condition PodScheduled and the nomination of waiting pods, beside the decisions. Of several reports about one pod that wait, it writes the last.
type statusWriter struct {
	api   client.API[*corev1.Pod]
	clock clock.PassiveClock
	log   *slog.Logger

	mu      sync.Mutex
	changed *sync.Cond
	order   []types.UID
	pending map[types.UID]*statusChange
	busy    map[types.UID]bool
	closed  bool
}

type statusChange struct {
	pod             *corev1.Pod
	reason, message string
	nominate        *string
}

func newStatusWriter(c Config) *statusWriter {
	w := &statusWriter{api: client.Of[*corev1.Pod](c.Transport), clock: c.Clock, log: c.Log, pending: map[types.UID]*statusChange{}, busy: map[types.UID]bool{}}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// write asks that a pod's status say why it is not scheduled.
func (w *statusWriter) write(pod *corev1.Pod, reason, message string, nominate *string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.pending[pod.UID]; before == nil {
		w.order = append(w.order, pod.UID)
	} else if nominate == nil {
		nominate = before.nominate
	}
	w.pending[pod.UID] = &statusChange{pod, reason, message, nominate}
	w.changed.Broadcast()
}

// forget drops what waits to be written about a pod and returns once nothing about it is being written: what is written next is newer.
func (w *statusWriter) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, uid)
	for w.busy[uid] {
		w.changed.Wait()
	}
}

func (w *statusWriter) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = true
		w.changed.Broadcast()
	})
	defer stop()
	var workers sync.WaitGroup
	for range statusWriters {
		workers.Go(func() {
			for change := w.next(); change != nil; change = w.next() {
				w.send(ctx, change)
				w.mu.Lock()
				delete(w.busy, change.pod.UID)
				w.changed.Broadcast()
				w.mu.Unlock()
			}
		})
	}
	workers.Wait()
}

// next waits for something to write; nil ends the worker.
func (w *statusWriter) next() *statusChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed {
		for k, uid := range w.order {
			change := w.pending[uid]
			if change != nil && w.busy[uid] {
				continue
			}
			if k == 0 {
				w.order = w.order[1:]
			} else {
				w.order = slices.Delete(w.order, k, k+1)
			}
			if change == nil {
				break // forgotten; look again
			}
			delete(w.pending, uid)
			w.busy[uid] = true
			return change
		}
		if !w.ready() {
			w.changed.Wait()
		}
	}
	return nil
}

func (w *statusWriter) ready() bool {
	for _, uid := range w.order {
		if w.pending[uid] == nil || !w.busy[uid] {
			return true
		}
	}
	return false
}

func (w *statusWriter) send(ctx context.Context, c *statusChange) {
	body := w.patch(c)
	if body == nil {
		return
	}
	_, err := w.api.Patch(ctx, c.pod.Namespace, c.pod.Name, types.StrategicMergePatchType, body, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		w.log.Error("status of an unscheduled pod not written", "pod", c.pod.Namespace+"/"+c.pod.Name, "error", err)
	}
}

// patch is what must change; nil if nothing.
func (w *statusWriter) patch(c *statusChange) []byte {
	now := metav1.NewTime(w.clock.Now())
	next := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: c.reason, Message: c.message, ObservedGeneration: c.pod.Generation,
		LastTransitionTime: now}
	same := false
	for _, old := range c.pod.Status.Conditions {
		if old.Type != corev1.PodScheduled {
			continue
		}
		if old.Status == next.Status {
			next.LastTransitionTime = old.LastTransitionTime
		}
		same = old.Status == next.Status && old.Reason == next.Reason && old.Message == next.Message
	}
	status := map[string]any{}
	if !same {
		status["conditions"] = []corev1.PodCondition{next}
	}
	if c.nominate != nil && *c.nominate != c.pod.Status.NominatedNodeName {
		status["nominatedNodeName"] = *c.nominate
	}
	if len(status) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.pod.UID}, "status": status})
	if err != nil {
		w.log.Error("status of an unscheduled pod not encoded", "error", err)
		return nil
	}
	return body
}
