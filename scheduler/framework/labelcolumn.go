package framework

// LabelColumn holds one label's value of every node as a small number; 0 means that the node lacks the label.
type LabelColumn struct {
	Value []int32

	ids     map[string]int32
	members [][]int32 // by value: the slots that have it
	at      []int32   // by slot: its place there
	value   Column
	some    Column
}

func newLabelColumn(slots int) *LabelColumn {
	c := &LabelColumn{Value: make([]int32, slots), ids: map[string]int32{}, members: make([][]int32, 1), at: make([]int32, slots)}
	c.value.At = func(i int) int64 { return int64(c.Value[i]) }
	c.some.At = func(i int) int64 { return int64(min(c.Value[i], 1)) }
	return c
}

// Label is the column of a label key, made on first use and kept up to date from then on.
func (n *Nodes) Label(key string) *LabelColumn {
	if c := n.columns[key]; c != nil {
		return c
	}
	c := newLabelColumn(len(n.Name))
	n.columns[key] = c
	for i := range n.Valid.All() {
		c.set(i, n.Object[i].Labels, key)
	}
	return c
}

// Values is one more than the largest value of the column.
func (c *LabelColumn) Values() int { return len(c.ids) + 1 }

// Members are the slots of the nodes that have a value, in no order. They are shared: don't change or keep them.
func (c *LabelColumn) Members(value int32) []int32 { return c.members[value] }

// Column tells nodes apart by the label's value; Present only by whether they have it.
func (c *LabelColumn) Column() *Column  { return &c.value }
func (c *LabelColumn) Present() *Column { return &c.some }

// coarse tells whether so many nodes share a value that it tells them apart well enough. Where hardly two nodes do, what is counted there does.
func (c *LabelColumn) coarse() bool { return len(c.ids)*len(c.ids) <= max(len(c.Value), 256) }

func (c *LabelColumn) grow() { c.Value, c.at = append(c.Value, 0), append(c.at, 0) }

func (c *LabelColumn) set(i int, l map[string]string, key string) {
	v, ok := l[key]
	if !ok {
		c.put(i, 0)
		return
	}
	id, ok := c.ids[v]
	if !ok {
		id = int32(len(c.ids) + 1)
		c.ids[v] = id
		c.members = append(c.members, nil)
	}
	c.put(i, id)
}

func (c *LabelColumn) put(i int, id int32) {
	old := c.Value[i]
	if old == id {
		return
	}
	if list := c.members[old]; old != 0 {
		last := list[len(list)-1]
		list[c.at[i]], c.at[last] = last, c.at[i]
		c.members[old] = list[:len(list)-1]
	}
	c.Value[i] = id
	if id != 0 {
		c.at[i] = int32(len(c.members[id]))
		c.members[id] = append(c.members[id], int32(i))
	}
}
