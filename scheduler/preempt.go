package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/framework"
)

// preempt has victims deleted, so that pod finds room on node.
func (s *Scheduler) preempt(pod *framework.Pod, node string, victims []*framework.Pod) {
	s.meter.preempted.Observe(float64(len(victims)))
	s.unnominateLower(pod, node)
	for _, v := range victims {
		if h := s.waiting[v.Object.UID]; h != nil {
			h.reject("preempted") // it is nobody's pod yet: it goes back to the queue
			continue
		}
		if v.Terminating() {
			continue // it leaves already
		}
		obj := v.Object
		s.evicting(pod.Object.UID, 1)
		s.tasks.Go(func() {
			defer s.inbox.tell(func(s *Scheduler) { s.evicting(pod.Object.UID, -1) })
			if err := s.evict(s.ctx, obj, pod.Object); err != nil && !apierrors.IsNotFound(err) && s.ctx.Err() == nil {
				s.config.Log.Error("pod not preempted", "pod", obj.Namespace+"/"+obj.Name, "for", pod.Key(), "error", err)
				s.inbox.tell(func(s *Scheduler) {
					if g := s.groups.of(pod); g != nil {
						delete(g.victims, obj.UID)
					}
					s.retryParked(pod.Object.UID)
				})
				return
			}
			s.config.Events(obj, corev1.EventTypeNormal, "Preempted", fmt.Sprintf("Preempted by pod %s on node %s", pod.Object.UID, node))
		})
	}
}

// evicting counts the victims that are being told to leave for a pod's sake. Once all are, what happened meanwhile counts.
func (s *Scheduler) evicting(uid types.UID, by int) {
	it := s.queue.items[uid]
	if it == nil {
		return
	}
	if it.evicting = max(it.evicting+by, 0); it.evicting > 0 || !it.woken {
		return
	}
	it.woken = false
	s.retryParked(uid)
}

// retryParked has a pod tried again for which a victim could not be made to leave: no event will come of that.
func (s *Scheduler) retryParked(uid types.UID) {
	if it := s.queue.items[uid]; it != nil && it.place == parked {
		s.queue.ready(it, s.now())
	}
}

// unnominateLower lets less important pods look elsewhere than at a node where pod now takes the room.
func (s *Scheduler) unnominateLower(pod *framework.Pod, node string) {
	for uid, other := range s.nominated {
		if other.node != node || other.pod.Priority >= pod.Priority {
			continue
		}
		s.nominateUID(uid, nil, "")
		obj := other.pod.Object
		s.tasks.Go(func() {
			body := []byte(`{"status":{"nominatedNodeName":null}}`)
			_, err := client.Of[*corev1.Pod](s.config.Transport).Patch(s.ctx, obj.Namespace, obj.Name, types.StrategicMergePatchType, body, "status")
			if err != nil && !apierrors.IsNotFound(err) && s.ctx.Err() == nil {
				s.config.Log.Warn("nomination not cleared", "pod", obj.Namespace+"/"+obj.Name, "error", err)
			}
		})
		s.retryParked(uid)
	}
}

func (s *Scheduler) evict(ctx context.Context, victim, by *corev1.Pod) error {
	condition := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority pod", by.Spec.SchedulerName),
		ObservedGeneration: victim.Generation, LastTransitionTime: metav1.NewTime(s.now())}
	if err := s.setCondition(ctx, victim, condition); err != nil {
		return fmt.Errorf("condition %s: %w", corev1.DisruptionTarget, err)
	}
	return client.Of[*corev1.Pod](s.config.Transport).Delete(ctx, victim.Namespace, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
}

// setCondition writes one condition of a pod: by an update, which costs the server half of what a patch does, unless the pod has changed meanwhile or the role allows no update.
func (s *Scheduler) setCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	api := client.Of[*corev1.Pod](s.config.Transport)
	next := pod.DeepCopy()
	next.Status.Conditions = append(slices.DeleteFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type }), condition)
	if _, err := api.UpdateStatus(ctx, next); !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{condition}}})
	if err != nil {
		return err
	}
	_, err = api.Patch(ctx, pod.Namespace, pod.Name, types.StrategicMergePatchType, body, "status")
	return err
}
