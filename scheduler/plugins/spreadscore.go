package plugins

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// wishes counts what the preferred constraints of a template's pods are about.
type wishes struct {
	list    []constraint
	columns []*framework.LabelColumn
	tallies []*framework.Tally // by constraint: by node for those on the host name, by domain for the others
	strict  bool               // nodes without all labels do not count
}

func newWishes(c *framework.Cycle, list []constraint, strict bool) *wishes {
	w := &wishes{list: list, columns: columns(c.Nodes, list), strict: strict}
	n, pod := c.Nodes, c.Pod
	for k := range list {
		con := &list[k]
		if con.key == corev1.LabelHostname { // there all nodes count
			w.tallies = append(w.tallies, n.NewTally("", con.times(pod), nil))
			continue
		}
		w.tallies = append(w.tallies, n.NewTally(con.key, con.times(pod), func(i int) bool { return con.includes(pod, n.Object[i]) && (!strict || hasAll(w.columns, i)) }))
	}
	return w
}

// tellApart adds the numbers by which nodes differ. Which domains there are counts too, so that they are told apart even where they count the same.
func (w *wishes) tellApart(columns []*framework.Column) []*framework.Column {
	for k, t := range w.tallies {
		t.Sync()
		if w.list[k].key == corev1.LabelHostname {
			columns = append(columns, t.Column(), w.columns[k].Present())
		} else {
			columns = append(columns, w.columns[k].Column())
		}
	}
	return columns
}

// spreadState is what scores need in one decision.
type spreadState struct {
	*wishes
	weight  []float64
	ignored framework.Bits // feasible nodes that lack a label
}

// PreScore implements framework.PreScorePlugin.
func (p *spread) PreScore(c *framework.Cycle, feasible framework.Bits) *framework.Status {
	k, err := p.of(c)
	if err != nil {
		return framework.Fail(PodTopologySpread, err)
	}
	if k.wishes == nil {
		return skipFilter
	}
	s := &spreadState{wishes: k.wishes}
	considered := 0
	for i := range feasible.All() {
		if !s.strict || hasAll(s.columns, i) {
			considered += c.Weight(i)
			continue
		}
		if s.ignored == nil {
			s.ignored = make(framework.Bits, len(feasible))
		}
		s.ignored.Set(i)
	}
	for k, t := range s.tallies {
		t.Sync()
		size := considered
		if s.list[k].key != corev1.LabelHostname {
			size = s.domainsAmong(k, feasible)
		}
		s.weight = append(s.weight, math.Log(float64(size+2)))
	}
	c.Put(spreadScores, s)
	return nil
}

// domainsAmong is in how many domains of a constraint the nodes are; those without the label are in one.
func (s *spreadState) domainsAmong(k int, feasible framework.Bits) (size int) {
	seen := make(framework.Bits, 1+s.columns[k].Values()>>6)
	for i := range feasible.All() {
		if v := int(s.columns[k].Value[i]); !s.ignored.Has(i) && !seen.Has(v) {
			seen.Set(v)
			size++
		}
	}
	return size
}

// Score is high where many matching pods are; Normalize turns that round. Smaller topologies weigh less.
func (*spread) Score(c *framework.Cycle, i int) int64 {
	return c.Get(spreadScores).(*spreadState).score(i)
}

// ScoreAll implements framework.BatchScore.
func (*spread) ScoreAll(c *framework.Cycle, in framework.Bits, scores []int64) {
	s := c.Get(spreadScores).(*spreadState)
	for i := range in.All() {
		scores[i] = s.score(i)
	}
}

func (s *spreadState) score(i int) int64 {
	if s.ignored.Has(i) {
		return 0
	}
	var sum float64
	for k, t := range s.tallies {
		if s.columns[k].Value[i] == 0 {
			continue
		}
		n := t.OnNode(i)
		if s.list[k].key != corev1.LabelHostname {
			n = t.In(i)
		}
		sum += float64(n)*s.weight[k] + float64(s.list[k].maxSkew-1)
	}
	return int64(math.Round(sum))
}
