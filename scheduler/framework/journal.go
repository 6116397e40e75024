package framework

// journalKeeps is how many changes a journal remembers; who is further behind looks at all nodes.
const journalKeeps = 4096

// journal lists changes in their order.
type journal[T any] struct {
	first uint64 // the position of list[0]
	list  []T
	read  uint64 // the furthest position up to which anybody has read
}

func (j *journal[T]) add(v T) {
	if len(j.list) >= 2*journalKeeps {
		drop := len(j.list) - journalKeeps
		j.first += uint64(drop)
		kept := copy(j.list, j.list[drop:])
		clear(j.list[kept:])
		j.list = j.list[:kept]
	}
	j.list = append(j.list, v)
}

func (j *journal[T]) end() uint64 { return j.first + uint64(len(j.list)) }

// since lists the changes from position on; ok is false if that is forgotten. The result is valid until the next change.
func (j *journal[T]) since(position uint64) (list []T, ok bool) {
	j.read = max(j.read, j.end())
	if position < j.first {
		return nil, false
	}
	return j.list[position-j.first:], true
}

// truncate forgets what was added after position, unless somebody has read it; it tells how many changes that were.
func (j *journal[T]) truncate(position uint64) int {
	if j.read > position || position < j.first {
		return 0
	}
	dropped := len(j.list) - int(position-j.first)
	clear(j.list[position-j.first:])
	j.list = j.list[:position-j.first]
	return dropped
}

// Cursor is a position in the changes of nodes.
type Cursor struct{ objects, pods uint64 }

// Changed names the slots whose node, or whose pods on it or waiting for it, changed since the cursor was here last, which moves on; known is false if they are not remembered any
// more, or the cursor was never here.
func (n *Nodes) Changed(c *Cursor, visit func(slot int)) (known bool) {
	objects, ok := n.objects.since(c.objects)
	pods, ok2 := n.pods.since(c.pods)
	known = ok && ok2 && *c != Cursor{}
	if known {
		for _, i := range objects {
			visit(int(i))
		}
		for _, s := range pods {
			visit(int(s.slot))
		}
	}
	c.objects, c.pods = n.objects.end(), n.pods.end()
	return known
}

// shift is a pod's coming to (sign 1) or leaving (-1) a slot; without a pod, a change of the pods that wait for room there.
type shift struct {
	slot, sign int32
	pod        *Pod
}
