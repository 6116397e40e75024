package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/yare-project/yare/client"
)

// writeState is where the writing of a pod's status stands: one write at a time, and the newest status wins.
type writeState struct {
	busy bool
	// accepted is the last status that was written, and version the pod's after it. An API that keeps a status a little differently must not
	// be asked for ever.
	accepted *corev1.PodStatus
	version  string
	failures int
}

// newer answers whether a is a later version of the same pod than b.
func newer(a, b *corev1.Pod) bool {
	if b == nil || a.UID != b.UID || b.ResourceVersion == "" {
		return true
	}
	return older(b.ResourceVersion, a.ResourceVersion)
}

// older answers whether resource version a comes before b. Versions that are not numbers are taken to come as they are met.
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	if errX != nil || errY != nil {
		return a != b
	}
	return x < y
}

// written answers whether the API has the newest status.
func (w *worker) written() bool {
	return !w.met || w.gone || !w.write.busy && w.inSync()
}

func (w *worker) inSync() bool {
	if equality.Semantic.DeepEqual(w.pod.Status, w.status) {
		return true
	}
	return w.write.accepted != nil && w.write.version == w.pod.ResourceVersion && equality.Semantic.DeepEqual(*w.write.accepted, w.status)
}

// syncStatus starts a write if the API's status is not the newest.
func (w *worker) syncStatus(ctx context.Context) {
	if !w.met || w.gone || w.write.busy || w.inSync() {
		return
	}
	w.write.busy = true
	pod, want := w.pod, w.status.DeepCopy()
	w.agent.running.Go(func() {
		got, err := w.agent.patchStatus(ctx, pod, want)
		w.post(func() { w.wrote(ctx, got, want, err) })
	})
}

func (w *worker) wrote(ctx context.Context, got *corev1.Pod, want *corev1.PodStatus, err error) {
	if err == nil {
		w.write.busy, w.write.failures = false, 0
		w.write.accepted, w.write.version = want, got.ResourceVersion
		if newer(got, w.pod) {
			w.pod = got
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// The pod is gone or replaced; the watch will say so. Nothing can be written meanwhile.
		w.write.accepted, w.write.version = want, w.pod.ResourceVersion
		w.write.busy = false
		return
	}
	w.write.failures++
	wait := min(100*time.Millisecond<<min(w.write.failures, 7), 10*time.Second)
	if w.write.failures == 1 || w.write.failures%10 == 0 {
		w.log.Warn("status not written", "err", err, "again-in", wait)
	}
	w.agent.running.Go(func() {
		select {
		case <-ctx.Done():
		case <-w.agent.cfg.Clock.After(wait):
			w.post(func() { w.write.busy = false })
		}
	})
}

// patchStatus sends what differs, for this very pod and no other of its name.
func (a *Agent) patchStatus(ctx context.Context, pod *corev1.Pod, want *corev1.PodStatus) (*corev1.Pod, error) {
	body, err := statusPatch(pod, want)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return client.Of[*corev1.Pod](a.cfg.Transport).Patch(ctx, pod.Namespace, pod.Name, types.StrategicMergePatchType, body, "status")
}

func statusPatch(pod *corev1.Pod, want *corev1.PodStatus) ([]byte, error) {
	old, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	now, err := json.Marshal(corev1.Pod{Status: *want})
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	diff, err := strategicpatch.CreateTwoWayMergePatch(old, now, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	var patch map[string]any
	if err := json.Unmarshal(diff, &patch); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	patch["metadata"] = map[string]any{"uid": string(pod.UID)}
	return json.Marshal(patch)
}
