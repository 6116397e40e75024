package gang

import (
	"slices"

	"github.com/yare-project/yare/scheduler/framework"
)

// mostShapes bounds how many sorts of members are surveyed.
const mostShapes = 8

// hope knows domains that need not be tried: those in which no member at all would find a place, for which members are judged once for all nodes, as things are before any is
// placed; and those where pods that can't be made to leave have too much for enough members.
type hope struct {
	d        *Decider
	w        *Want
	demand   demand
	priority int32 // the highest of a member
	alike    bool  // all have it
	surveyed bool
	shapes   []shape // nil: members can't be judged so
	of       []int   // by member
}

// shape is what members that differ in nothing have in common: the nodes where they fit, and where they may once pods have left.
type shape struct {
	profile     *framework.Profile
	signature   string
	pod         *framework.Pod // one of them
	members     int
	fits, maybe framework.Bits
}

func newHope(d *Decider, w *Want) *hope {
	h := &hope{d: d, w: w, demand: demandOf(w), alike: true}
	for k, m := range w.Members {
		h.alike = h.alike && m.Pod.Priority == w.Members[0].Pod.Priority
		if k == 0 || m.Pod.Priority > h.priority {
			h.priority = m.Pod.Priority
		}
	}
	return h
}

// barren tells that a try in a domain, with the members in an order, would place nobody, or too few.
func (h *hope) barren(in *domain, order []int, preempt bool) bool {
	if in.slots == nil {
		return false
	}
	if preempt && h.occupied(in) {
		return true
	}
	h.survey()
	if h.shapes == nil {
		return false
	}
	some, places := false, 0 // whether anybody fits now; for how many there is a place at most, whatever the first ones bring about
	for k := range h.shapes {
		one := &h.shapes[k]
		fits := one.fitsOn(in.slots, preempt)
		if !fits && h.w.Least >= len(order) && h.of[order[0]] == k {
			return true // if the first is refused, nobody else is asked
		}
		some = some || fits
		if one.apart(h.d.Nodes, in.slots) {
			places += min(len(in.slots), one.members)
		} else {
			places += one.members
		}
	}
	return !some || places < h.w.Least && (h.alike || !preempt)
}

// fitsOn tells whether a member of a shape, as the first of all, may find a place among some nodes.
func (s *shape) fitsOn(slots []int32, preempt bool) bool {
	set := s.fits
	if preempt {
		set = s.maybe
	}
	return slices.ContainsFunc(slots, func(i int32) bool { return set.Has(int(i)) })
}

// apart tells whether no two members of a shape may be on one node: they want the same port of it, or keep away from each other.
func (s *shape) apart(n *framework.Nodes, slots []int32) bool {
	if len(s.pod.Ports) > 0 {
		return true
	}
	own := n.NamespaceLabels(s.pod.Object.Namespace)
	for k := range s.pod.RequiredAntiAffinity {
		t := &s.pod.RequiredAntiAffinity[k]
		label := n.Label(t.TopologyKey)
		if t.Matches(s.pod.Object, own) && !slices.ContainsFunc(slots, func(i int32) bool { return label.Value[i] == 0 }) {
			return true
		}
	}
	return false
}

// occupied tells that pods which no member may make leave have so much of a domain that too few members would find room.
func (h *hope) occupied(in *domain) bool {
	n := h.d.Nodes
	for r, least := range h.demand.least {
		if least == 0 {
			continue
		}
		left := int64(0)
		for _, slot := range in.slots {
			i := int(slot)
			if !h.demand.counts(r, i) {
				left = least
				break
			}
			one := n.Allocatable[r][i]
			for _, p := range n.Pods[i] {
				switch {
				case p.Priority < h.priority:
				case r == framework.PodCount:
					one--
				default:
					one -= p.Request(r)
				}
			}
			left += max(0, one)
		}
		if left < least {
			return true
		}
	}
	return false
}

// survey judges members of each shape once.
func (h *hope) survey() {
	if h.surveyed {
		return
	}
	h.surveyed = true
	before := h.d.domain
	h.d.domain = nil
	defer func() { h.d.domain = before }()
	var shapes []shape
	for _, m := range h.w.Members {
		signature := m.Pod.Signature()
		k := slices.IndexFunc(shapes, func(s shape) bool { return s.profile == m.Profile && s.signature == signature })
		if k < 0 {
			k = len(shapes)
			fits, maybe, ok := m.Profile.Survey(m.Profile.Begin(m.Pod))
			if !ok || k == mostShapes {
				return
			}
			shapes = append(shapes, shape{profile: m.Profile, signature: signature, pod: m.Pod, fits: fits, maybe: maybe})
		}
		shapes[k].members++
		h.of = append(h.of, k)
	}
	h.shapes = shapes
}
