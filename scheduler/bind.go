package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/scheduler/framework"
)

// held is a placed pod that Permit plugins hold back.
type held struct {
	until time.Time
	once  sync.Once
	done  chan string // the reason of a rejection, or empty
}

func (h *held) reject(why string) { h.once.Do(func() { h.done <- why }) }
func (h *held) allow()            { h.once.Do(func() { h.done <- "" }) }

// decided tells whether nothing holds the pod back any longer.
func (h *held) decided() bool { return h == nil || len(h.done) > 0 }

// assume counts the pod on its node and has it bound.
func (s *Scheduler) assume(it *item, c *framework.Cycle, node string, start time.Time) {
	s.nodes.AddPod(it.pod, node)
	s.settle(it, node)
	for _, p := range it.profile.Reserve {
		if status := p.Reserve(c, node); !status.OK() {
			s.undo(it, c, node, status, start)
			return
		}
	}
	s.proceed(it, c, node, start)
}

// settle takes a pod that was counted on its node out of the queue.
func (s *Scheduler) settle(it *item, node string) {
	s.queue.leave(it)
	it.place = binding
	s.nominateUID(it.pod.Object.UID, nil, "")
	s.placed[it.pod.Object.UID] = it.pod
	s.groups.settle(it.pod)
	if g := s.groups.of(it.pod); g != nil && g.object != nil && !g.gang() {
		s.tellGroup(g, true, "Scheduled", "")
	}
}

// proceed has a pod bound for which all is reserved.
func (s *Scheduler) proceed(it *item, c *framework.Cycle, node string, start time.Time) {
	pod := it.pod
	var hold *held
	for _, p := range it.profile.Permit {
		status, wait := p.Permit(c, node)
		if status.Is(framework.Wait) {
			if hold == nil {
				hold = &held{until: s.now().Add(wait), done: make(chan string, 1)}
			}
			continue
		}
		if !status.OK() {
			s.undo(it, c, node, status, start)
			return
		}
	}
	if hold != nil {
		s.waiting[pod.Object.UID] = hold
	}
	s.tasks.when(hold.decided, func() {
		status := s.bindingCycle(it, c, node, hold)
		s.inbox.tell(func(s *Scheduler) { s.bound(it, c, node, status, start) })
	})
}

// Allow lets a pod go that a Permit plugin holds back; Reject sends it back to the queue.
func (s *Scheduler) Allow(pod *corev1.Pod) { s.decideHeld(pod, (*held).allow) }

// Reject sends a pod back to the queue that a Permit plugin holds back.
func (s *Scheduler) Reject(pod *corev1.Pod, why string) {
	s.decideHeld(pod, func(h *held) { h.reject(why) })
}

func (s *Scheduler) decideHeld(pod *corev1.Pod, f func(*held)) {
	s.inbox.tell(func(s *Scheduler) {
		if h := s.waiting[pod.UID]; h != nil {
			f(h)
		}
	})
}

func (s *Scheduler) expireHeld(now time.Time) {
	for _, h := range s.waiting {
		if !h.until.After(now) {
			h.reject("it was not permitted in time")
		}
	}
}

// bindingCycle runs beside the decisions.
func (s *Scheduler) bindingCycle(it *item, c *framework.Cycle, node string, hold *held) *framework.Status {
	ctx := s.ctx
	s.expect(ctx, it, c, node, hold)
	if hold != nil {
		select {
		case why := <-hold.done:
			if why != "" {
				return framework.Refuse(framework.Unschedulable, "", "rejected while waiting for permission: "+why)
			}
		case <-ctx.Done():
			return framework.Fail("", ctx.Err())
		}
	}
	s.writer.forget(it.pod.Object.UID)
	for _, p := range it.profile.PreBind {
		if status := p.PreBind(ctx, c, node); !status.OK() {
			return status
		}
	}
	for _, p := range it.profile.Bind {
		status := p.Bind(ctx, c, node)
		if status.Is(framework.Skip) {
			continue
		}
		if status.OK() {
			for _, post := range it.profile.PostBind {
				post.PostBind(ctx, c, node)
			}
		}
		return status
	}
	return framework.Fail("", fmt.Errorf("no bind plugin binds the pod"))
}

// bindPod posts the binding.
func (s *Scheduler) bindPod(ctx context.Context, pod *corev1.Pod, node string) error {
	s.binds <- struct{}{}
	defer func() { <-s.binds }()
	ref := resource.Ref{GroupVersionResource: client.ResourceOf[*corev1.Pod](), Namespace: pod.Namespace, Name: pod.Name, Subresource: "binding"}
	_, err := s.config.Transport.Create(ctx, ref, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	return err
}

// bound takes in how a binding went.
func (s *Scheduler) bound(it *item, c *framework.Cycle, node string, status *framework.Status, start time.Time) {
	obj := it.pod.Object
	delete(s.waiting, obj.UID)
	if !status.OK() {
		s.undo(it, c, node, status, start)
		return
	}
	s.queue.remove(obj.UID)
	now := s.now()
	s.meter.attempt(it.profile.Name, "scheduled", now.Sub(start))
	s.meter.scheduled(it, now)
	s.config.Events(obj, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s/%s to %s", obj.Namespace, obj.Name, node))
}

// undo takes a placed pod back off its node.
func (s *Scheduler) undo(it *item, c *framework.Cycle, node string, status *framework.Status, start time.Time) {
	for k := len(it.profile.Reserve) - 1; k >= 0; k-- {
		it.profile.Reserve[k].Unreserve(c, node)
	}
	uid := it.pod.Object.UID
	if p := s.placed[uid]; p == it.pod {
		s.displace(p)
	}
	it.place = nowhere
	now, exists := s.world.pods.Get(it.pod.Object.Namespace, it.pod.Object.Name)
	if !exists || now.UID != uid || now.Spec.NodeName != "" || ended(now) || now.DeletionTimestamp != nil || apierrors.IsNotFound(status.Err) {
		s.queue.remove(uid)
		return
	}
	if p, err := framework.NewPod(now, s.nodes); err == nil {
		it.pod = p
	}
	if status.Rejected() {
		s.meter.attempt(it.profile.Name, "unschedulable", s.now().Sub(start))
		why := &framework.Diagnosis{Nodes: 1, Verdicts: []*framework.Status{status}}
		if status.Plugin != "" {
			why.Plugins = []string{status.Plugin}
		}
		s.queue.refuse(it, why.Plugins, s.now())
		s.report(it, corev1.PodReasonUnschedulable, why.Message(), new(string)) // what was expected is no longer
		return
	}
	s.meter.attempt(it.profile.Name, "error", s.now().Sub(start))
	s.failed(it, fmt.Errorf("binding rejected: %s", status.Message()))
}
