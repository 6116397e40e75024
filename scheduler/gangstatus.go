package scheduler

import (
	"encoding/json"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
)

// tellGroup writes a PodGroup's condition PodGroupScheduled. One that was scheduled stays so, whatever becomes of further pods.
func (s *Scheduler) tellGroup(g *group, scheduled bool, reason, message string) {
	status := metav1.ConditionFalse
	if scheduled {
		status = metav1.ConditionTrue
	}
	text := string(status) + reason + message
	old := meta.FindStatusCondition(g.object.Status.Conditions, schedulingv1alpha2.PodGroupScheduled)
	if g.told == text || old != nil && (old.Status == metav1.ConditionTrue || old.Status == status && old.Reason == reason && old.Message == message) {
		return
	}
	g.told = text
	next := metav1.Condition{Type: schedulingv1alpha2.PodGroupScheduled, Status: status, Reason: reason, Message: message,
		ObservedGeneration: g.object.Generation, LastTransitionTime: metav1.NewTime(s.now())}
	if old != nil && old.Status == status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	object := g.object
	s.groupWrites.write(g.key, func() {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": map[string]any{"conditions": []metav1.Condition{next}}})
		if err == nil {
			_, err = client.Of[*schedulingv1alpha2.PodGroup](s.config.Transport).Patch(s.ctx, object.Namespace, object.Name, types.StrategicMergePatchType, body, "status")
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && s.ctx.Err() == nil {
			s.config.Log.Error("status of a pod group not written", "group", g.key, "error", err)
		}
	})
}

// inOrder runs functions beside the decisions: of those with one key one after the other, and of several that wait only the last.
type inOrder struct {
	todo map[types.NamespacedName]func() // nil: one is running, none waits
	run  func(func())                    // starts a goroutine
	tell func(func(*Scheduler))
}

func (o *inOrder) write(key types.NamespacedName, f func()) {
	if _, running := o.todo[key]; running {
		o.todo[key] = f
		return
	}
	o.todo[key] = nil
	o.start(key, f)
}

func (o *inOrder) start(key types.NamespacedName, f func()) {
	o.run(func() {
		f()
		o.tell(func(*Scheduler) {
			if next := o.todo[key]; next != nil {
				o.todo[key] = nil
				o.start(key, next)
				return
			}
			delete(o.todo, key)
		})
	})
}
