package deployment

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Reasons of the Progressing condition, which kubectl rollout status reads.
const (
	reasonCreated  = "NewReplicaSetCreated"
	reasonFound    = "FoundNewReplicaSet"
	reasonUpdated  = "ReplicaSetUpdated"
	reasonComplete = "NewReplicaSetAvailable"
	reasonTimedOut = "ProgressDeadlineExceeded"
	reasonPaused   = "DeploymentPaused"
	reasonResumed  = "DeploymentResumed"
)

// statusOf counts replicas as the sets report them, and judges availability. Sets that this pass makes report nothing yet.
func (v *view) statusOf() appsv1.DeploymentStatus {
	s := *v.d.Status.DeepCopy()
	s.ObservedGeneration = v.d.Generation
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0, 0
	var asked, terminating int32
	for _, rs := range v.all() {
		asked += replicasOf(rs)
		s.Replicas += rs.Status.Replicas
		s.ReadyReplicas += rs.Status.ReadyReplicas
		s.AvailableReplicas += rs.Status.AvailableReplicas
		if t := rs.Status.TerminatingReplicas; t != nil {
			terminating += *t
		}
	}
	if v.current != nil {
		s.UpdatedReplicas = v.current.Status.Replicas
	}
	s.UnavailableReplicas = max(0, asked-s.AvailableReplicas)
	s.TerminatingReplicas = &terminating
	if s.AvailableReplicas >= replicas(v.d)-maxUnavailable(v.d) {
		setCondition(&s, condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.", v.now))
	} else {
		setCondition(&s, condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", v.now))
	}
	return s
}

// rolloutStatus is statusOf with progress; after is when the deadline has to be looked at.
func (v *view) rolloutStatus() (s appsv1.DeploymentStatus, after time.Duration) {
	s = v.statusOf()
	v.failure(&s)
	if !hasDeadline(v.d) {
		removeCondition(&s, appsv1.DeploymentProgressing)
		return s, 0
	}
	v.pausing(&s)
	if v.d.Spec.Paused {
		return s, 0
	}
	was := find(&s, appsv1.DeploymentProgressing)
	set := func(status corev1.ConditionStatus, reason, format string) {
		setCondition(&s, condition(appsv1.DeploymentProgressing, status, reason, fmt.Sprintf(format, v.what()), v.now))
	}
	switch {
	case v.plan.create != nil:
		set(corev1.ConditionTrue, reasonCreated, "Created new %s")
	case v.current != nil && was == nil:
		set(corev1.ConditionTrue, reasonFound, "Found new %s")
	case was != nil && was.Reason == reasonComplete && s.Replicas == s.UpdatedReplicas && !v.newRollout():
		// A rollout that was complete stays so: pods that come and go later are availability's business.
	case complete(v.d, &s):
		set(corev1.ConditionTrue, reasonComplete, "%s has successfully progressed.")
	case progressed(&v.d.Status, &s):
		v.progress(&s)
	case v.timedOut(was):
		set(corev1.ConditionFalse, reasonTimedOut, "%s has timed out progressing.")
	}
	return s, v.deadline(&s)
}

// newRollout tells whether the present template differs from the one that was completed.
func (v *view) newRollout() bool {
	return v.current == nil || revision(v.d.Annotations) != revision(v.current.Annotations)
}

func (v *view) what() string {
	if v.current != nil {
		return fmt.Sprintf("ReplicaSet %q", v.current.Name)
	}
	return fmt.Sprintf("Deployment %q", v.d.Name)
}

// progress notes the time of each step. Unlike other conditions this one is renewed while its status and reason stay: the deadline counts from it.
func (v *view) progress(s *appsv1.DeploymentStatus) {
	c := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, v.what()+" is progressing.", v.now)
	if was := find(s, appsv1.DeploymentProgressing); was != nil {
		if was.Status == corev1.ConditionTrue {
			c.LastTransitionTime = was.LastTransitionTime
		}
		removeCondition(s, appsv1.DeploymentProgressing)
	}
	s.Conditions = append(s.Conditions, c)
}

func (v *view) pausing(s *appsv1.DeploymentStatus) {
	was := find(s, appsv1.DeploymentProgressing)
	paused := was != nil && was.Reason == reasonPaused
	switch {
	case was != nil && was.Reason == reasonTimedOut: // the user should go on seeing that
	case v.d.Spec.Paused && !paused:
		setCondition(s, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused", v.now))
	case !v.d.Spec.Paused && paused:
		setCondition(s, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed", v.now))
	}
}

// failure passes a set's ReplicaFailure on, the current one's first.
func (v *view) failure(s *appsv1.DeploymentStatus) {
	sets := v.all()
	slices.Reverse(sets)
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				f := condition(appsv1.DeploymentReplicaFailure, c.Status, c.Reason, c.Message, v.now)
				f.LastTransitionTime = c.LastTransitionTime
				setCondition(s, f)
				return
			}
		}
	}
	removeCondition(s, appsv1.DeploymentReplicaFailure)
}

// complete tells whether all replicas are of the present template and available, and none is left of another.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	n := replicas(d)
	return s.UpdatedReplicas == n && s.Replicas == n && s.AvailableReplicas == n && s.ObservedGeneration >= d.Generation
}

func progressed(old, new *appsv1.DeploymentStatus) bool {
	return new.UpdatedReplicas > old.UpdatedReplicas || new.Replicas-new.UpdatedReplicas < old.Replicas-old.UpdatedReplicas ||
		new.ReadyReplicas > old.ReadyReplicas || new.AvailableReplicas > old.AvailableReplicas
}

func (v *view) timedOut(c *appsv1.DeploymentCondition) bool {
	if c == nil || c.Reason == reasonComplete {
		return false
	}
	return c.Reason == reasonTimedOut || !v.now.Before(c.LastUpdateTime.Add(seconds(*v.d.Spec.ProgressDeadlineSeconds)))
}

// deadline is the time until a rollout under way must have made its next step.
func (v *view) deadline(s *appsv1.DeploymentStatus) time.Duration {
	c := find(s, appsv1.DeploymentProgressing)
	if c == nil || c.Reason == reasonTimedOut || c.Reason == reasonComplete || complete(v.d, s) {
		return 0
	}
	// Times are kept in whole seconds, cut off: one more makes sure that the deadline has passed by then.
	return max(c.LastUpdateTime.Add(seconds(*v.d.Spec.ProgressDeadlineSeconds)).Sub(v.now), 0) + time.Second
}

func find(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition replaces a condition unless its status and reason stay; the time of transition stays with the status.
func setCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if was := find(s, c.Type); was != nil {
		if was.Status == c.Status && was.Reason == c.Reason {
			return
		}
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	removeCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func removeCondition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}
