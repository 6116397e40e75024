package framework

import (
	"fmt"
	"math/rand/v2"
)

// Weighted is a plugin with the weight of its scores.
type Weighted struct {
	Plugin
	Weight int64
}

// Set lists plugins by extension point, in order.
type Set struct {
	PreEnqueue []PreEnqueuePlugin
	QueueSort  QueueSortPlugin
	PreFilter  []PreFilterPlugin
	Filter     []FilterPlugin
	PostFilter []PostFilterPlugin
	PreScore   []PreScorePlugin
	Score      []WeightedScore
	Reserve    []ReservePlugin
	Permit     []PermitPlugin
	PreBind    []PreBindPlugin
	Bind       []BindPlugin
	PostBind   []PostBindPlugin
}

// WeightedScore is a score plugin and its weight.
type WeightedScore struct {
	ScorePlugin
	Weight int64
}

// Profile decides for the pods of one scheduler name. Make one with NewProfile.
type Profile struct {
	Name string
	Set

	nodes *Nodes
	rand  *rand.Rand
	tick  uint64

	onNode, onPods, onCluster []FilterPlugin
	plain                     []weighted    // local scores without normalization
	normalized                []ScorePlugin // local scores with
	normalizedWeight          []int64
	global                    []weighted // scores of scope OnCluster
	wide                      []WideScore
	epochs                    []EpochPlugin
	prepares                  map[string]bool // names of PreScore plugins
	hints                     map[string]Plugin

	local   []Plugin        // filters and scores of narrow scope
	cluster []clusterPlugin // those of scope OnCluster

	classes  map[*shape]*Class
	cols     []*Column
	raw      []int64
	feasible Bits
	grouped  bool      // feasible nodes stand for others
	within   Bits      // the nodes that were looked at, if outside is set
	outside  *Status   // the verdict of others that no other filter refuses
	weight   []int32   // by slot: for how many
	left     []int     // the feasible nodes as a list, once all filters are through
	apart    Bits      // nodes for which none stands
	alone    Bits      // memory for apart
	verdicts []*Status // by slot: refusals of this decision beyond those of the class
	refused  []int     // the slots that have one
	total    []int64
	common   int64 // what is to be added to each total
	scratch  []int64
}

type clusterPlugin struct {
	Plugin
	filters, scores bool
}

type weighted struct {
	ScorePlugin
	weight int64
}

// NewProfile orders the plugins of a profile over nodes. rng chooses among equally good nodes.
func NewProfile(name string, set Set, nodes *Nodes, rng *rand.Rand) (*Profile, error) {
	f := &Profile{Name: name, Set: set, nodes: nodes, rand: rng, classes: map[*shape]*Class{}, prepares: map[string]bool{}, hints: map[string]Plugin{}}
	for _, p := range set.Filter {
		switch p.FilterScope() {
		case OnNode:
			f.onNode = append(f.onNode, p)
		case OnNodePods:
			f.onPods = append(f.onPods, p)
		case OnCluster:
			f.onCluster = append(f.onCluster, p)
		default:
			return nil, fmt.Errorf("profile %q: filter %s has the unknown scope %d", name, p.Name(), p.FilterScope())
		}
		f.note(p)
	}
	for _, p := range set.PreScore {
		f.prepares[p.Name()] = true
	}
	for _, s := range set.Score {
		if err := f.addScore(s); err != nil {
			return nil, fmt.Errorf("profile %q: %w", name, err)
		}
	}
	f.sort()
	for _, p := range set.PreFilter {
		f.note(p)
	}
	for _, p := range set.PreEnqueue {
		f.note(p)
	}
	for _, p := range set.Reserve {
		f.note(p)
	}
	for _, p := range set.Permit {
		f.note(p)
	}
	return f, nil
}

// sort tells the plugins that judge nodes singly from those that look at the cluster.
func (f *Profile) sort() {
	for _, p := range f.onNode {
		f.local = append(f.local, p)
	}
	for _, p := range f.onPods {
		f.local = append(f.local, p)
	}
	for _, p := range f.plain {
		f.local = append(f.local, p.ScorePlugin)
	}
	for _, p := range f.normalized {
		f.local = append(f.local, p)
	}
	add := func(p Plugin, filters, scores bool) {
		for k := range f.cluster {
			if o := &f.cluster[k]; o.Name() == p.Name() {
				o.filters, o.scores = o.filters || filters, o.scores || scores
				return
			}
		}
		f.cluster = append(f.cluster, clusterPlugin{p, filters, scores})
	}
	for _, p := range f.onCluster {
		add(p, true, false)
	}
	for _, p := range f.PreScore {
		add(p, false, true)
	}
	for _, p := range f.global {
		add(p.ScorePlugin, false, true)
	}
}

func (f *Profile) note(p Plugin) {
	if _, known := f.hints[p.Name()]; known {
		return
	}
	f.hints[p.Name()] = p
	if e, ok := p.(EpochPlugin); ok {
		f.epochs = append(f.epochs, e)
	}
}

func (f *Profile) addScore(s WeightedScore) error {
	if s.Weight <= 0 {
		return fmt.Errorf("score plugin %s has weight %d; it must be positive", s.Name(), s.Weight)
	}
	if s.Normalization() == Own {
		if _, ok := s.ScorePlugin.(Normalizer); !ok {
			return fmt.Errorf("score plugin %s wants its own normalization but has none", s.Name())
		}
	}
	f.note(s.ScorePlugin)
	if wide, ok := s.ScorePlugin.(WideScore); ok && s.ScoreScope() != OnCluster {
		f.wide = append(f.wide, wide)
	}
	w := weighted{s.ScorePlugin, s.Weight}
	switch {
	case s.ScoreScope() == OnCluster:
		f.global = append(f.global, w)
	case f.prepares[s.Name()]:
		return fmt.Errorf("score plugin %s prepares in PreScore, so its scope must be OnCluster", s.Name())
	case s.Normalization() == None:
		f.plain = append(f.plain, w)
	default:
		f.normalized, f.normalizedWeight = append(f.normalized, s.ScorePlugin), append(f.normalizedWeight, s.Weight)
	}
	return nil
}

// Epoch changes whenever verdicts of plugins of narrow scope may, of which neither a node nor its pods tell.
func (f *Profile) Epoch() (sum uint64) {
	for _, p := range f.epochs {
		sum += p.Epoch()
	}
	return sum
}

// Helps tells whether e may let p go, which the named plugins refused.
func (f *Profile) Helps(p *Pod, plugins []string, e *Event) bool {
	if len(plugins) == 0 {
		return true
	}
	for _, name := range plugins {
		h, ok := f.hints[name].(HintPlugin)
		if !ok || (h.Events()&e.Kind != 0 && h.Helps(p, e)) {
			return true
		}
	}
	return false
}

// Awaits is the union of the events that the named plugins wait for.
func (f *Profile) Awaits(plugins []string) EventKind {
	var kinds EventKind
	for _, name := range plugins {
		h, ok := f.hints[name].(HintPlugin)
		if !ok {
			return AnyEvent
		}
		kinds |= h.Events()
	}
	if len(plugins) == 0 {
		return AnyEvent
	}
	return kinds
}

// Admit asks the PreEnqueue plugins.
func (f *Profile) Admit(p *Pod) *Status {
	for _, x := range f.PreEnqueue {
		if s := x.PreEnqueue(p); !s.OK() {
			return s
		}
	}
	return nil
}
