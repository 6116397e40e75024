package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/yare-project/yare/scheduler/framework"
)

// podChanged takes in a pod's change; a nil new means that it is gone.
func (s *Scheduler) podChanged(old, new *corev1.Pod) {
	if old != nil && (new == nil || new.UID != old.UID || ended(new)) {
		s.podGone(old.UID)
	}
	switch {
	case new == nil || ended(new):
	case new.Spec.NodeName != "":
		s.podAssigned(new)
	default:
		s.podWaits(new)
	}
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func (s *Scheduler) podGone(uid types.UID) {
	if it := s.queue.items[uid]; it != nil && it.place != binding {
		s.queue.remove(uid)
	} else if h := s.waiting[uid]; h != nil {
		h.reject("the pod was deleted")
	}
	s.nominateUID(uid, nil, "")
	if p := s.placed[uid]; p != nil {
		s.displace(p)
	}
}

// displace takes a pod off its node and wakes who waits for the room.
func (s *Scheduler) displace(p *framework.Pod) {
	slot := p.Node()
	s.nodes.RemovePod(p)
	delete(s.placed, p.Object.UID)
	s.groups.displace(p)
	s.wake(&framework.Event{Kind: framework.PodRemoved, Pod: p, Slot: slot})
}

func (s *Scheduler) podAssigned(obj *corev1.Pod) {
	if it := s.queue.items[obj.UID]; it != nil && it.place != binding {
		s.queue.remove(obj.UID) // somebody else bound it
	}
	s.nominateUID(obj.UID, nil, "")
	before := s.placed[obj.UID]
	if before != nil && s.nodes.Name[before.Node()] == obj.Spec.NodeName && sameOnNode(before.Object, obj) {
		p := s.nodes.Replace(before, obj)
		s.placed[obj.UID] = p
		s.groups.settle(p)
		if before.Object.Spec.NodeName == "" { // it was assumed until now
			s.wake(&framework.Event{Kind: framework.PodAdded, Pod: p, Slot: p.Node()})
		}
		return
	}
	p, err := framework.NewPod(obj, s.nodes)
	if err != nil { // it is there all the same, and takes its room
		s.config.Log.Warn("affinity of an assigned pod not understood; only its requests count", "pod", obj.Namespace+"/"+obj.Name, "error", err)
		bare := obj.DeepCopy()
		bare.Spec.Affinity = nil
		if p, err = framework.NewPod(bare, s.nodes); err != nil {
			return
		}
	}
	if before != nil {
		s.nodes.RemovePod(before)
	}
	s.placed[obj.UID] = p
	s.groups.settle(p)
	s.grown(p)
	s.nodes.AddPod(p, obj.Spec.NodeName)
	if kind := kindOf(before, p); kind != 0 {
		s.wake(&framework.Event{Kind: kind, Pod: p, Slot: p.Node()})
	}
}

// sameOnNode tells whether what a pod takes of its node, and what others see in it, is unchanged.
func sameOnNode(a, b *corev1.Pod) bool {
	return a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		equality.Semantic.DeepEqual(resourcesIn(a), resourcesIn(b))
}

// resourcesIn lists what the node reports of a pod's resources: it counts while a pod is being resized.
func resourcesIn(p *corev1.Pod) []any {
	var out []any
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Resources != nil || len(list[i].AllocatedResources) > 0 {
				out = append(out, list[i].Name, list[i].Resources, list[i].AllocatedResources)
			}
		}
	}
	return out
}

func kindOf(before, p *framework.Pod) framework.EventKind {
	if before == nil {
		return framework.PodAdded
	}
	var kind framework.EventKind
	if !maps.Equal(before.Object.Labels, p.Object.Labels) || before.Terminating() != p.Terminating() {
		kind |= framework.PodLabels
	}
	for _, a := range before.Requests {
		if p.Request(a.Resource) < a.Value {
			kind |= framework.PodShrunk
		}
	}
	if before.Object.Spec.NodeName == "" {
		kind |= framework.PodAdded // it was assumed until now
	}
	return kind
}

func (s *Scheduler) podWaits(obj *corev1.Pod) {
	profile := s.profiles[obj.Spec.SchedulerName]
	if profile == nil {
		return // another scheduler's
	}
	it := s.queue.items[obj.UID]
	if obj.DeletionTimestamp != nil {
		if it != nil && it.place != binding {
			s.queue.remove(obj.UID)
		}
		s.nominateUID(obj.UID, nil, "")
		return
	}
	if it != nil && it.place == binding || s.placed[obj.UID] != nil {
		return // the change of its status came before that of its node
	}
	p, err := framework.NewPod(obj, s.nodes)
	if err != nil {
		s.queue.remove(obj.UID)
		s.config.Events(obj, corev1.EventTypeWarning, "FailedScheduling", err.Error())
		s.writer.write(obj, corev1.PodReasonSchedulerError, err.Error(), nil)
		return
	}
	node := obj.Status.NominatedNodeName
	if it != nil && node == "" && it.pod.Object.Status.NominatedNodeName == "" {
		node = s.nominated[obj.UID].node // decided on, but not written yet
	}
	s.nominateUID(obj.UID, p, node)
	now := s.now()
	if it == nil {
		it = &item{pod: p, profile: profile}
		s.queue.add(it, now)
		s.joined(it)
		return
	}
	s.queue.update(it, p, selfChanged(it.pod.Object, obj), now)
}

// selfChanged tells whether a waiting pod changed in a way that may let it go. Its status does not count, but for the claims that were made for it: the
// scheduler itself writes the rest.
func selfChanged(a, b *corev1.Pod) bool {
	return a.Generation != b.Generation || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		len(a.Spec.SchedulingGates) != len(b.Spec.SchedulingGates) || !resourceclaim.PodStatusEqual(a.Status.ResourceClaimStatuses, b.Status.ResourceClaimStatuses)
}

// nodeChanged takes in a node's change.
func (s *Scheduler) nodeChanged(new *corev1.Node, gone string) {
	if new == nil {
		s.nodes.RemoveNode(gone)
		s.wake(&framework.Event{Kind: framework.NodeRemoved, Slot: -1})
		return
	}
	old := s.nodes.SetNode(new)
	kind := nodeKind(old, new)
	if kind == 0 {
		return
	}
	slot, _ := s.nodes.Slot(new.Name)
	s.wake(&framework.Event{Kind: kind, Node: new, Slot: slot})
}

func nodeKind(old, new *corev1.Node) framework.EventKind {
	if old == nil {
		return framework.NodeAdded
	}
	var kind framework.EventKind
	if !equality.Semantic.DeepEqual(old.Status.Allocatable, new.Status.Allocatable) {
		kind |= framework.NodeAllocatable
	}
	if !maps.Equal(old.Labels, new.Labels) {
		kind |= framework.NodeLabels
	}
	if old.Spec.Unschedulable != new.Spec.Unschedulable || !slices.EqualFunc(old.Spec.Taints, new.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }) {
		kind |= framework.NodeTaints
	}
	if !maps.Equal(old.Annotations, new.Annotations) || !slices.Equal(old.Status.DeclaredFeatures, new.Status.DeclaredFeatures) ||
		!slices.EqualFunc(old.Status.Conditions, new.Status.Conditions, framework.SameCondition) {
		kind |= framework.NodeOther
	}
	return kind
}

func (s *Scheduler) wake(e *framework.Event) { s.queue.wake(e, s.now()) }

// nominate records where a pod waits for room.
func (s *Scheduler) nominate(p *framework.Pod, node string) { s.nominateUID(p.Object.UID, p, node) }

func (s *Scheduler) nominateUID(uid types.UID, p *framework.Pod, node string) {
	if old, ok := s.nominated[uid]; ok {
		s.nodes.Unnominate(old.pod, old.node)
		delete(s.nominated, uid)
	}
	if node != "" && p != nil {
		s.nodes.Nominate(p, node)
		s.nominated[uid] = nomination{p, node}
	}
}
