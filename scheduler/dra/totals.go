package dra

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// total is how many devices of a class a node reaches, in one state of it.
type total struct {
	node          *corev1.Node
	local, shared uint64
	all, taken    int64
}

// Totals counts the devices of the class that stands for an extended resource which the node in a slot reaches, and those of them that are taken, by one claim or in part by
// several: what the resource counts for in scores on a node that has none of it by itself. Taints don't matter, nor whether a pool is complete. Nothing counts if a selector
// fails for a device there.
func (b *Book) Totals(resource corev1.ResourceName, slot int, node *corev1.Node) (all, taken int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	class := b.backing[resource]
	if class == nil {
		return 0, 0
	}
	t := b.memory.total(class.Name, slot)
	local, shared := b.stock.versions(node.Name)
	if t.node != node || t.local != local || t.shared != shared {
		*t = total{node: node, local: local, shared: shared}
		t.all, t.taken = b.stock.count(class, node)
	}
	return t.all, t.taken
}

// total is the place for what is known of a class in a slot.
func (m *memory) total(class string, slot int) *total {
	if m.totals == nil {
		m.totals = map[string][]total{}
	}
	list := m.totals[class]
	if more := slot + 1 - len(list); more > 0 {
		list = append(list, make([]total, more)...)
		m.totals[class] = list
	}
	return &list[slot]
}

func (s *stock) count(class *resourcev1.DeviceClass, node *corev1.Node) (all, taken int64) {
	for _, p := range s.on(node) {
		for _, d := range p.devices {
			if !d.where.reaches(node) {
				continue
			}
			ok, err := s.inClass(class, d)
			if err != nil {
				return 0, 0
			}
			if !ok {
				continue
			}
			if all++; s.used(d.id) {
				taken++
			}
		}
	}
	return all, taken
}

func (s *stock) inClass(class *resourcev1.DeviceClass, d *device) (bool, error) {
	for _, selector := range class.Spec.Selectors {
		if selector.CEL == nil {
			continue
		}
		if ok, err := s.match(selector.CEL.Expression, d); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}
