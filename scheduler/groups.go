package scheduler

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// groups are the PodGroups and who belongs to them. Only Run's goroutine uses them.
type groups struct {
	by map[types.NamespacedName]*group

	deciding *group                // the one under decision
	members  []*item               // its pods that are
	domain   func() framework.Bits // where they must stay
}

// group is a PodGroup, or a name that pods use for one.
type group struct {
	key    types.NamespacedName
	object *schedulingv1alpha2.PodGroup // nil while there is none
	queued map[types.UID]*item          // in the queue; also those being bound
	placed map[types.UID]*framework.Pod // on nodes, or assumed to be
	told   string                       // the condition written last
	// inquiry is what extenders are being asked about its pods; nil while they are not.
	inquiry *inquiry
	// victims are pods that have to leave for the group's sake.
	victims map[types.UID]bool
}

// least is how many of its pods must be placed together. A group that is no gang has its pods placed as far as they fit.
func (g *group) least() int {
	if gang := g.object.Spec.SchedulingPolicy.Gang; gang != nil {
		return int(gang.MinCount)
	}
	return 1
}

// gang tells whether the group must be decided on as a whole.
func (g *group) gang() bool {
	return g.object.Spec.SchedulingPolicy.Gang != nil || g.topology() != ""
}

// topology is the label whose value all its pods' nodes must share, if any.
func (g *group) topology() string {
	if c := g.object.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
		return c.Topology[0].Key
	}
	return ""
}

// pods counts the group's pods; one that is being bound is queued and placed.
func (g *group) pods() int {
	n := len(g.placed)
	for uid := range g.queued {
		if g.placed[uid] == nil {
			n++
		}
	}
	return n
}

func newGroups() *groups { return &groups{by: map[types.NamespacedName]*group{}} }

// of is the group that a pod names; nil if it names none.
func (s *groups) of(p *framework.Pod) *group {
	name, ok := p.Group()
	if !ok {
		return nil
	}
	return s.named(types.NamespacedName{Namespace: p.Object.Namespace, Name: name})
}

func (s *groups) named(key types.NamespacedName) *group {
	g := s.by[key]
	if g == nil {
		g = &group{key: key, queued: map[types.UID]*item{}, placed: map[types.UID]*framework.Pod{}, victims: map[types.UID]bool{}}
		s.by[key] = g
	}
	return g
}

// tidy forgets a group of which nothing is left.
func (s *groups) tidy(g *group) {
	if g.object == nil && len(g.queued) == 0 && len(g.placed) == 0 {
		delete(s.by, g.key)
	}
}

// Group implements framework.Groups.
func (s *groups) Group(p *framework.Pod) (least, pods int, known bool) {
	g := s.of(p)
	if g == nil || g.object == nil {
		return 0, 0, false
	}
	return g.least(), g.pods(), true
}

// Domain implements framework.Groups.
func (s *groups) Domain(p *framework.Pod) framework.Bits {
	if s.deciding == nil || s.of(p) != s.deciding {
		return nil
	}
	return s.domain()
}

// Topology implements framework.Groups.
func (s *groups) Topology(p *framework.Pod) string {
	if s.deciding == nil || s.of(p) != s.deciding {
		return ""
	}
	return s.deciding.topology()
}

// queue and leave keep account of the pods in the queue, settle and displace of those on nodes.
func (s *groups) queue(it *item) {
	if g := s.of(it.pod); g != nil {
		g.queued[it.pod.Object.UID] = it
	}
}

func (s *groups) leave(it *item) {
	if g := s.of(it.pod); g != nil {
		delete(g.queued, it.pod.Object.UID)
		s.tidy(g)
	}
}

func (s *groups) settle(p *framework.Pod) {
	if g := s.of(p); g != nil {
		g.placed[p.Object.UID] = p
	}
}

func (s *groups) displace(p *framework.Pod) {
	if g := s.of(p); g != nil {
		delete(g.placed, p.Object.UID)
		s.tidy(g)
	}
}

// members are the pods of a group that may be decided on now, in the order of their priority and age.
func (g *group) members() []*item {
	var out []*item
	for _, it := range g.queued {
		switch it.place {
		case nowhere, active, backoff, parked:
			out = append(out, it)
		}
	}
	slices.SortFunc(out, func(a, b *item) int {
		return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), a.first.Compare(b.first), cmp.Compare(a.pod.Object.Name, b.pod.Object.Name))
	})
	return out
}

// groupChanged takes in a PodGroup's change; a nil new means that it is gone.
func (s *Scheduler) groupChanged(new *schedulingv1alpha2.PodGroup, key types.NamespacedName) {
	g := s.groups.named(key)
	known := g.object != nil && new != nil && g.object.UID == new.UID
	if g.object = new; !known {
		g.told = ""
	}
	if new == nil {
		s.groups.tidy(g)
		return
	}
	if !known {
		s.openGate(g)
	}
}

// joined takes in a pod that came to the queue.
func (s *Scheduler) joined(it *item) {
	if s.groups.of(it.pod) == nil {
		return
	}
	s.grown(it.pod)
	s.tellGate(it)
}

// grown looks whether a new pod of a group was the one that the others waited for, even if something else holds it back, or it has a node already.
func (s *Scheduler) grown(p *framework.Pod) {
	if g := s.groups.of(p); g != nil && g.object != nil && g.pods() == g.least() {
		s.openGate(g)
	}
}

// openGate has the gated pods of a group ask again whether they may be queued.
func (s *Scheduler) openGate(g *group) {
	for _, it := range g.queued {
		if it.place == gated {
			s.queue.admit(it, s.now())
			s.tellGate(it)
		}
	}
}

// unhurried is how long a pod waits for its group before its user is told: most groups are complete before that.
const unhurried = time.Second

// untold is a pod that waits for its group, and when its user is to be told.
type untold struct {
	it *item
	at time.Time
}

// tellGate has a gated pod's user told that it waits for its group, if it still does in a while. Other gates the user set himself.
func (s *Scheduler) tellGate(it *item) {
	if it.place == gated && slices.Contains(it.plugins, plugins.GangScheduling) {
		s.untold = append(s.untold, untold{it, s.now().Add(unhurried)})
	}
}

// tellGates tells what is due.
func (s *Scheduler) tellGates(now time.Time) {
	for ; len(s.untold) > 0 && !s.untold[0].at.After(now); s.untold = s.untold[1:] {
		it := s.untold[0].it
		if it.place != gated || s.queue.items[it.pod.Object.UID] != it || !slices.Contains(it.plugins, plugins.GangScheduling) {
			continue
		}
		if status := it.profile.Admit(it.pod); !status.OK() {
			it.said = status.Message()
			s.writer.write(it.pod.Object, corev1.PodReasonUnschedulable, it.said, nil)
		}
	}
}
