package framework

import (
	"fmt"
	"math"
)

// choose picks the best feasible node into d.
func (f *Profile) choose(c *Cycle, d *Decision) error {
	if d.Feasible == 1 {
		d.Slot = f.left[0]
		return nil
	}
	if err := f.scoreAll(c); err != nil {
		return err
	}
	best, ties := int64(math.MinInt64), 0
	for _, i := range f.left {
		if t := f.total[i]; t > best {
			best, ties = t, c.Weight(i)
		} else if t == best {
			ties += c.Weight(i)
		}
	}
	d.Score = best + f.common
	lucky := f.rand.IntN(ties)
	for _, i := range f.left {
		if f.total[i] != best {
			continue
		}
		if lucky -= c.Weight(i); lucky < 0 {
			d.Slot = f.member(c.class, i)
			break
		}
	}
	return nil
}

// scoreAll fills f.total for the feasible nodes; what all of them get is in f.common.
func (f *Profile) scoreAll(c *Cycle) error {
	slots := f.nodes.Slots()
	f.common = 0
	if len(f.total) < slots {
		f.total, f.scratch = make([]int64, slots), make([]int64, slots)
	}
	for _, p := range f.PreScore {
		switch s := p.PreScore(c, f.feasible); {
		case s.OK():
		case s.Code == Skip:
			c.skipScore = append(c.skipScore, p.Name())
		default:
			return fmt.Errorf("running PreScore plugin %q: %s", p.Name(), s.Message())
		}
	}
	f.scoreLocal(c)
	for _, w := range f.global {
		if contains(c.skipScore, w.Name()) {
			continue
		}
		if batch, ok := w.ScorePlugin.(BatchScore); ok {
			batch.ScoreAll(c, f.feasible, f.scratch)
		} else {
			for _, i := range f.left {
				f.scratch[i] = w.Score(c, i)
			}
		}
		f.normalize(c, w.ScorePlugin, w.weight, f.scratch)
	}
	return nil
}

func (f *Profile) scoreLocal(c *Cycle) {
	if c.restricted || c.direct || f.isWide(c) {
		f.scoreDirectly(c)
		return
	}
	cells := &c.class.cells
	for _, i := range f.left {
		f.total[i] = f.baseOf(c, cells, i)
	}
	for k, s := range f.normalized {
		for _, i := range f.left {
			if of := cells.of[i]; of >= 0 {
				f.scratch[i] = cells.list[of].raw[k]
			} else {
				f.scratch[i] = s.Score(c, i)
			}
		}
		f.normalize(c, s, f.normalizedWeight[k], f.scratch)
	}
}

// isWide tells whether what is known of cells does not hold for a pod's scores.
func (f *Profile) isWide(c *Cycle) bool {
	for _, p := range f.wide {
		if p.Wide(c) {
			return true
		}
	}
	return false
}

// baseOf is the sum of a node's local scores that need no normalization; only the node where the pod itself waits may be in no cell.
func (f *Profile) baseOf(c *Cycle, cells *cells, i int) (sum int64) {
	if of := cells.of[i]; of >= 0 {
		return cells.list[of].base
	}
	for _, s := range f.plain {
		sum += s.weight * s.Score(c, i)
	}
	return sum
}

// scoreDirectly asks the local plugins about the few nodes that are in question.
func (f *Profile) scoreDirectly(c *Cycle) {
	for _, i := range f.left {
		f.total[i] = 0
		for _, s := range f.plain {
			f.total[i] += s.weight * s.Score(c, i)
		}
	}
	for k, s := range f.normalized {
		for _, i := range f.left {
			f.scratch[i] = s.Score(c, i)
		}
		f.normalize(c, s, f.normalizedWeight[k], f.scratch)
	}
}

// normalize adds a plugin's weighted scores to the totals.
func (f *Profile) normalize(c *Cycle, p ScorePlugin, weight int64, raw []int64) {
	switch mode := p.Normalization(); mode {
	case None:
		for _, i := range f.left {
			f.total[i] += weight * raw[i]
		}
	case ByMax, ByMaxReversed:
		var most int64
		for _, i := range f.left {
			most = max(most, raw[i])
		}
		f.addByMax(mode == ByMaxReversed, weight, raw, most)
	default:
		own := f.scratch
		if &own[0] != &raw[0] {
			copy(own, raw)
		}
		p.(Normalizer).Normalize(c, f.feasible, own)
		for _, i := range f.left {
			f.total[i] += weight * own[i]
		}
	}
}

func (f *Profile) addByMax(reversed bool, weight int64, raw []int64, most int64) {
	switch {
	case most == 0 && reversed:
		f.common += weight * MaxScore
	case most == 0:
	case reversed:
		for _, i := range f.left {
			f.total[i] += weight * (MaxScore - MaxScore*raw[i]/most)
		}
	default:
		for _, i := range f.left {
			f.total[i] += weight * (MaxScore * raw[i] / most)
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Scores gives the total of every feasible node by name, for explanations and tests. It decides nothing.
func (f *Profile) Scores(c *Cycle) (map[string]int64, *Diagnosis, error) {
	d, why, err := f.Decide(c)
	if d == nil {
		return nil, why, err
	}
	c.skipScore = nil
	if err := f.scoreAll(c); err != nil {
		return nil, nil, err
	}
	out := map[string]int64{}
	for _, i := range f.left {
		out[f.nodes.Name[i]] = f.total[i] + f.common
		if !f.grouped || f.apart.Has(i) {
			continue
		}
		for _, m := range c.class.cells.list[c.class.cells.of[i]].slots {
			if !f.apart.Has(int(m)) {
				out[f.nodes.Name[m]] = f.total[i] + f.common
			}
		}
	}
	return out, nil, nil
}
