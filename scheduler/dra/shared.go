package dra

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
)

// Pods of one PodGroup may use a claim whose devices are set aside for one of them and not written yet: they are bound together, so none can wait until another is.

// sharers are who uses an allocation that no claim carries yet.
type sharers struct {
	group string // whose pods may join; empty: nobody may
	more  int    // how many use it beside the first
	claim *resourcev1.ResourceClaim
}

// groupOf names a pod's PodGroup; empty if it has none.
func groupOf(pod *corev1.Pod) string {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return pod.Namespace + "/" + *g.PodGroupName
	}
	return ""
}

func (b *Book) setAsideBy(claim *resourcev1.ResourceClaim, pod *corev1.Pod) {
	b.sharing[claim.UID] = &sharers{group: groupOf(pod), claim: claim}
}

// shareable is the claim with what is set aside for it, if that is for a pod of the same group; else nil.
func (b *Book) shareable(claim *resourcev1.ResourceClaim, pod *corev1.Pod) *resourcev1.ResourceClaim {
	a, by := b.pending[claim.UID], b.sharing[claim.UID]
	if a == nil || by == nil || by.group == "" || by.group != groupOf(pod) {
		return nil
	}
	out := claim.DeepCopy()
	out.Status.Allocation = a.DeepCopy()
	return out
}

// share counts a pod among the users of what it shares.
func (b *Book) share(s *state) *framework.Status {
	for _, pc := range s.claims {
		if pc.shared && b.pending[pc.claim.UID] == nil && !b.allocated(pc.claim) {
			return refuse(fmt.Sprintf("the devices of resource claim %s/%s were given back in the meantime", pc.claim.Namespace, pc.claim.Name))
		}
	}
	for _, pc := range s.claims {
		if !pc.shared {
			continue
		}
		if by := b.sharing[pc.claim.UID]; by != nil {
			by.more++
			pc.claim.Status.Allocation = b.pending[pc.claim.UID].DeepCopy() // it may have been set aside anew
		}
		s.placed = append(s.placed, placement{claim: pc.claim, allocation: pc.claim.Status.Allocation})
	}
	return nil
}

func (b *Book) allocated(claim *resourcev1.ResourceClaim) bool {
	e := b.claims[keyOf(claim)]
	return e != nil && e.claim.UID == claim.UID && e.claim.Status.Allocation != nil
}

// leave ends a pod's use of what is set aside; that is given back, which the result tells, when nobody else uses it.
func (b *Book) leave(claim types.UID) bool {
	if by := b.sharing[claim]; by != nil && by.more > 0 {
		by.more--
		return false
	}
	return b.drop(claim)
}

// writing lets the writers of one claim in, one at a time: pods that share it would only outdo each other.
type writing struct {
	mu    sync.Mutex
	users int
}

// alone waits for its turn to write a claim; the result ends the turn.
func (b *Book) alone(claim types.UID) func() {
	b.mu.Lock()
	w := b.writing[claim]
	if w == nil {
		w = &writing{}
		b.writing[claim] = w
	}
	w.users++
	b.mu.Unlock()
	w.mu.Lock()
	return func() {
		w.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		if w.users--; w.users == 0 {
			delete(b.writing, claim)
		}
	}
}
