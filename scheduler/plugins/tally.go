package plugins

import "github.com/yare-project/yare/scheduler/framework"

// tally counts something by topology domain: by label key, then by the number of the label's value.
type tally struct {
	keys   []string
	column []*framework.LabelColumn
	counts [][]int64
}

// of is the column and the counts of a key.
func (t *tally) of(n *framework.Nodes, key string) (*framework.LabelColumn, []int64) {
	for k, known := range t.keys {
		if known == key {
			return t.column[k], t.counts[k]
		}
	}
	c := n.Label(key)
	t.keys, t.column, t.counts = append(t.keys, key), append(t.column, c), append(t.counts, make([]int64, c.Values()))
	return c, t.counts[len(t.counts)-1]
}

// add counts v in the domain of node i, if it has the label.
func (t *tally) add(n *framework.Nodes, key string, i int, v int64) {
	c, counts := t.of(n, key)
	if id := c.Value[i]; id != 0 {
		counts[id] += v
	}
}

// addAll counts a number of each node in its domain, times v.
func (t *tally) addAll(n *framework.Nodes, key string, by []int32, v int64) {
	c, counts := t.of(n, key)
	for i := range n.Valid.All() {
		if id := c.Value[i]; id != 0 && by[i] != 0 {
			counts[id] += int64(by[i]) * v
		}
	}
}

// at is the count in the domain of node i; ok tells whether the node has the label.
func (t *tally) at(n *framework.Nodes, key string, i int) (count int64, ok bool) {
	c, counts := t.of(n, key)
	id := c.Value[i]
	if id == 0 {
		return 0, false
	}
	return counts[id], true
}

// sum adds up what all keys count in the domains of node i.
func (t *tally) sum(i int) int64 {
	var sum int64
	for k, c := range t.column {
		if id := c.Value[i]; id != 0 {
			sum += t.counts[k][id]
		}
	}
	return sum
}

// any tells whether some domain of node i has a positive count.
func (t *tally) any(i int) bool {
	for k, c := range t.column {
		if id := c.Value[i]; id != 0 && t.counts[k][id] > 0 {
			return true
		}
	}
	return false
}

// empty tells whether nothing is counted anywhere.
func (t *tally) empty() bool {
	for _, counts := range t.counts {
		for _, v := range counts {
			if v != 0 {
				return false
			}
		}
	}
	return true
}
