package scheduler

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/policy"
)

// readNumbers is how often a source is asked while a policy reads numbers: metrics-server measures as often.
const readNumbers = 15 * time.Second

// policyChanged takes in a policy's change and wakes the pods that it may let go.
func (s *Scheduler) policyChanged(new *v1alpha1.SchedulingPolicy, name string) {
	if new == nil {
		s.policies.Remove(name)
	} else {
		changed, err := s.policies.Set(new)
		s.tellPolicy(new, err)
		if !changed {
			return // its status did
		}
		if err != nil {
			s.config.Log.Error("SchedulingPolicy not understood; it has no effect", "policy", name, "error", err)
		}
	}
	s.explained = explain.Cache{} // it heeds nodes, pods and namespaces only
	s.wake(&framework.Event{Kind: framework.PolicyChanged, Slot: -1})
}

// tellPolicy has the policy's status say whether pods are placed by it.
func (s *Scheduler) tellPolicy(p *v1alpha1.SchedulingPolicy, fault error) {
	c := metav1.Condition{Type: v1alpha1.PolicyActive, Status: metav1.ConditionTrue, Reason: "Compiled", Message: "pods are placed by this policy", ObservedGeneration: p.Generation}
	if fault != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NotUnderstood", fault.Error()
	}
	next := p.DeepCopy()
	next.Status.ObservedGeneration = p.Generation
	c.LastTransitionTime = metav1.NewTime(s.now())
	meta.SetStatusCondition(&next.Status.Conditions, c)
	if equality.Semantic.DeepEqual(next.Status, p.Status) {
		return
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": p.ResourceVersion}, "status": next.Status})
	if err != nil {
		s.config.Log.Error("status of a SchedulingPolicy not encoded", "policy", p.Name, "error", err)
		return
	}
	s.tasks.Go(func() {
		_, err := client.Of[*v1alpha1.SchedulingPolicy](s.config.Transport).Patch(s.ctx, "", p.Name, types.MergePatchType, body, "status")
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && s.ctx.Err() == nil {
			s.config.Log.Error("status of a SchedulingPolicy not written", "policy", p.Name, "error", err)
		}
	})
}

// readSource asks a source for its numbers while a policy reads any; otherwise it sleeps.
func (s *Scheduler) readSource(ctx context.Context, source policy.Source, wanted <-chan struct{}) {
	for ctx.Err() == nil {
		if !s.policies.Demand() {
			select {
			case <-ctx.Done():
			case <-wanted:
			}
			continue
		}
		s.readOnce(ctx, source)
		timer := s.config.Clock.NewTimer(readNumbers)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-wanted:
		}
		timer.Stop()
	}
}

func (s *Scheduler) readOnce(ctx context.Context, source policy.Source) {
	numbers, err := source.Read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		numbers = nil // the cluster has no such source, or no longer
	case err != nil:
		if ctx.Err() == nil {
			s.config.Log.Warn("numbers of nodes not read; the last ones stay", "source", source.Name(), "error", err)
		}
		return
	}
	s.inbox.tell(func(s *Scheduler) {
		s.policies.SetNumbers(source.Name(), numbers, func(slot int) {
			s.wake(&framework.Event{Kind: framework.NodeOther, Node: s.nodes.Object[slot], Slot: slot})
		})
	})
}
