package framework

// journalKeeps is how many changes a journal remembers; who is further behind looks at all nodes.
const journalKeeps = 4096

// journal lists slots in the order of their changes.
type journal struct {
	first uint64 // the position of slots[0]
	slots []int32
}

func (j *journal) add(i int) {
	if len(j.slots) >= 2*journalKeeps {
		drop := len(j.slots) - journalKeeps
		j.first += uint64(drop)
		j.slots = append(j.slots[:0], j.slots[drop:]...)
	}
	j.slots = append(j.slots, int32(i))
}

func (j *journal) end() uint64 { return j.first + uint64(len(j.slots)) }

// since lists the slots that changed from position on; ok is false if that is forgotten.
func (j *journal) since(position uint64) (slots []int32, ok bool) {
	if position < j.first {
		return nil, false
	}
	return j.slots[position-j.first:], true
}
