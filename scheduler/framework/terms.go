package framework

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
)

// TermKind tells the lists of a pod's affinity terms apart.
type TermKind uint8

// The kinds of terms.
const (
	RequiredAffinity TermKind = iota
	RequiredAntiAffinity
	PreferredAffinity
	PreferredAntiAffinity
)

// Terms is one affinity term of all the pods that have it: pods of one template, and others that say the same.
type Terms struct {
	Kind   TermKind
	Term   Term
	Weight int64 // of preferred terms

	key    string
	pods   int    // that have it and are counted on a slot
	tally  *Tally // of those pods
	listed bool
}

// termBook lists the terms of the pods on nodes.
type termBook struct {
	terms     map[string]*Terms
	termEpoch uint64
}

// termsKept is how many terms that no pod has any more are remembered at most.
const termsKept = 512

// intern finds or makes what the book says about a term.
func (b *termBook) intern(kind TermKind, t *Term, weight int64) *Terms {
	key := strconv.Itoa(int(kind)) + "/" + strconv.FormatInt(weight, 10) + "/" + strconv.Quote(t.TopologyKey) + written(t.Selector)
	for _, name := range slices.Sorted(maps.Keys(t.Namespaces)) {
		key += "/" + name
	}
	if t.NamespaceSelector != nil {
		key += "//" + written(t.NamespaceSelector)
	}
	if g := b.terms[key]; g != nil {
		return g
	}
	return &Terms{Kind: kind, Term: *t, Weight: weight, key: key}
}

// written tells selectors apart; what selects nothing looks like what selects everything otherwise.
func written(s labels.Selector) string {
	if _, some := s.Requirements(); !some {
		return "nothing"
	}
	return strconv.Quote(s.String())
}

// countTerms follows a pod's coming to (1) or leaving (-1) a slot.
func (n *Nodes) countTerms(p *Pod, sign int) {
	for k, g := range p.template.terms {
		if !g.listed {
			if other := n.terms[g.key]; other != nil { // made twice before either was listed
				p.template.terms[k], g = other, other
			} else {
				n.list(g)
			}
		}
		g.pods += sign
	}
}

func (n *Nodes) list(g *Terms) {
	if len(n.terms) >= 2*termsKept {
		maps.DeleteFunc(n.terms, func(_ string, o *Terms) bool {
			if o.pods <= 0 {
				o.listed = false
			}
			return o.pods <= 0
		})
	}
	g.listed = true
	n.terms[g.key] = g
	n.termEpoch++
}

// TermEpoch changes whenever pods come with terms that none had before, and with the labels of namespaces, by which terms select.
func (n *Nodes) TermEpoch() uint64 { return n.termEpoch + n.spaceEpoch }

// TermsAbout lists the terms of pods on nodes that select pod, in no particular order.
func (n *Nodes) TermsAbout(pod *Pod, kinds ...TermKind) []*Terms {
	own := n.NamespaceLabels(pod.Object.Namespace)
	var out []*Terms
	for _, g := range n.terms {
		if slices.Contains(kinds, g.Kind) && g.Term.Matches(pod.Object, own) {
			out = append(out, g)
		}
	}
	return out
}

// Tally counts the pods that have the term, up to date.
func (n *Nodes) TermTally(g *Terms) *Tally {
	if g.tally == nil {
		g.tally = n.NewTally(g.Term.TopologyKey, func(p *Pod) (times int64) {
			for _, o := range p.template.terms {
				if o == g {
					times++
				}
			}
			return times
		}, nil)
	}
	g.tally.Sync()
	return g.tally
}
