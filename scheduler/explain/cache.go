package explain

import "github.com/yare-project/yare/scheduler/framework"

const classesKept = 64

// Cache keeps the last explanation of each class of pods for as long as no node, pod on one or namespace changed. It belongs to one goroutine.
type Cache struct {
	changes uint64
	known   map[string][]Change
}

// Pod is Pod, at most once per class and state. Pods with claims or disks are explained each for itself: what they wait for is their own.
func (k *Cache) Pod(c *framework.Cycle, d *framework.Diagnosis) []Change {
	if len(c.Pod.Volumes) > 0 || len(c.Pod.Disks) > 0 || len(c.Pod.Object.Spec.ResourceClaims) > 0 || d.PreFilter != nil {
		return Pod(c, d)
	}
	if now := c.Nodes.Changes(); k.known == nil || k.changes != now || len(k.known) >= classesKept {
		k.known, k.changes = map[string][]Change{}, now
	}
	key := c.Pod.Signature()
	out, ok := k.known[key]
	if !ok {
		out = Pod(c, d)
		k.known[key] = out
	}
	return out
}
