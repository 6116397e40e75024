package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var errRefused = errors.New("a fault of the simulation")

// ledger is what is true in the cluster, kept beside the scheduler and never shown to it, to hold its decisions to.
type ledger struct {
	nodes  map[string]*machine
	pods   map[string]*resident // by name
	gangs  map[string]int       // pods of a gang that are bound
	zones  map[string]*[zones]int
	digest uint64
}

type machine struct {
	zone        int
	cpu, memory int64 // used
	pods        map[string]*resident
	apart       map[string]bool // groups that have a pod here
}

// resident is a pod that has arrived and not ended.
type resident struct {
	name    string
	shape   shape
	arrived time.Time
	node    string
}

func newLedger() *ledger {
	return &ledger{nodes: map[string]*machine{}, pods: map[string]*resident{}, gangs: map[string]int{}, zones: map[string]*[zones]int{}}
}

func (l *ledger) addNode(n *corev1.Node) {
	zone := 0
	_, _ = fmt.Sscanf(n.Labels[corev1.LabelTopologyZone], "zone-%d", &zone)
	l.nodes[n.Name] = &machine{zone: zone, pods: map[string]*resident{}, apart: map[string]bool{}}
}

// bind takes in that a pod got a node; the error is a rule that it breaks.
func (l *ledger) bind(p *corev1.Pod) error {
	r, m := l.pods[p.Name], l.nodes[p.Spec.NodeName]
	switch {
	case r == nil:
		return fmt.Errorf("pod %s was bound, which is gone", p.Name)
	case r.node != "":
		return fmt.Errorf("pod %s was bound to %s, and is on %s", p.Name, p.Spec.NodeName, r.node)
	case m == nil:
		return fmt.Errorf("pod %s was bound to node %s, which is gone", p.Name, p.Spec.NodeName)
	}
	r.node = p.Spec.NodeName
	m.pods[p.Name] = r
	l.charge(m, r, 1)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x %s %s", l.digest, p.Name, r.node)
	l.digest = h.Sum64()
	return l.check(m, r)
}

func (l *ledger) charge(m *machine, r *resident, sign int64) {
	requests := sizes[r.shape.size][0].Resources.Requests
	m.cpu += sign * requests.Cpu().MilliValue()
	m.memory += sign * requests.Memory().Value()
	switch r.shape.kind {
	case ganged:
		l.gangs[r.shape.group] += int(sign)
	case spread:
		z := l.zones[r.shape.group]
		if z == nil {
			z = new([zones]int)
			l.zones[r.shape.group] = z
		}
		z[m.zone] += int(sign)
	}
}

// check holds a new pod of a machine to the rules.
func (l *ledger) check(m *machine, r *resident) error {
	if m.cpu > room.Cpu().MilliValue() || m.memory > room.Memory().Value() || len(m.pods) > int(room.Pods().Value()) {
		return fmt.Errorf("node %s is given %dm processors, %d bytes and %d pods, which is more than it has", r.node, m.cpu, m.memory, len(m.pods))
	}
	switch r.shape.kind {
	case apart:
		if m.apart[r.shape.group] {
			return fmt.Errorf("node %s has two pods of %s, which must be apart", r.node, r.shape.group)
		}
		m.apart[r.shape.group] = true
	case spread:
		z := l.zones[r.shape.group]
		least := z[0]
		for _, n := range z {
			least = min(least, n)
		}
		if z[m.zone] > least+1 {
			return fmt.Errorf("%s has %v pods by zone after %s went to zone %d: one more than elsewhere is allowed", r.shape.group, *z, r.name, m.zone)
		}
	}
	return nil
}

// end takes a pod out.
func (l *ledger) end(name string) *resident {
	r := l.pods[name]
	delete(l.pods, name)
	if m := l.nodes[r.node]; r.node != "" && m != nil {
		l.charge(m, r, -1)
		delete(m.pods, name)
		delete(m.apart, r.shape.group)
	}
	return r
}
