package dra

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// memory keeps what searches found, since pods of one template ask for the same again and again: what a search finds on a node follows from the claims' specs, the
// classes, the node, its own pools and those that it shares with others. A decision changes only the pools that it takes from.
type memory struct {
	bySpec   map[string]*findings
	tick     uint64
	refusals map[string]*framework.Status
	totals   map[string][]total // by class and slot
}

// findings are the results of searches for the same specs.
type findings struct {
	slots    []finding
	lastUsed uint64
}

// finding is what was found on one node, in one state of it.
type finding struct {
	node          *corev1.Node
	local, shared uint64
	status        *framework.Status // nil: there are devices
	score         int64
}

// findingsKept bounds the memory that is taken.
const findingsKept = 64

// refusalsKept bounds the reasons that are told apart by identity.
const refusalsKept = 256

func (m *memory) of(spec string) *findings {
	m.tick++
	f := m.bySpec[spec]
	if f == nil {
		if len(m.bySpec) >= findingsKept {
			m.forgetOldest()
		}
		if m.bySpec == nil {
			m.bySpec = map[string]*findings{}
		}
		f = &findings{}
		m.bySpec[spec] = f
	}
	f.lastUsed = m.tick
	return f
}

func (m *memory) forgetOldest() {
	oldest, at := "", m.tick+1
	for spec, f := range m.bySpec {
		if f.lastUsed < at {
			oldest, at = spec, f.lastUsed
		}
	}
	delete(m.bySpec, oldest)
}

// refusal makes refusals for the same reason one, by which explanations tell nodes apart.
func (m *memory) refusal(reason string) *framework.Status {
	if s := m.refusals[reason]; s != nil {
		return s
	}
	if m.refusals == nil || len(m.refusals) >= refusalsKept {
		m.refusals = map[string]*framework.Status{}
	}
	s := refuse(reason)
	m.refusals[reason] = s
	return s
}

// at is the place for what is found in a slot.
func (f *findings) at(slot int) *finding {
	if more := slot + 1 - len(f.slots); more > 0 {
		f.slots = append(f.slots, make([]finding, more)...)
	}
	return &f.slots[slot]
}

// specOf writes down all of demands that a search goes by.
func specOf(demands []*demand) string {
	var b strings.Builder
	for _, d := range demands {
		text, err := json.Marshal(&d.claim.Spec)
		if err != nil {
			return "" // nothing is kept
		}
		b.Write(text)
	}
	return b.String()
}
