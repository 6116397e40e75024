package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/knftables"
)

// table keeps one address family's table in the kernel equal to what was last asked for. One goroutine uses it.
type table struct {
	nft         knftables.Interface
	family      knftables.Family
	clusterCIDR []netip.Prefix
	serviceCIDR []netip.Prefix

	applied map[types.NamespacedName]Fragment
	// owners says which Service an address belongs to, where two claim the same: the first keeps it, the others wait.
	owners  map[Element]types.NamespacedName
	waiting map[Element]map[types.NamespacedName]bool
	// pairs counts the Services that need a hairpin pair.
	pairs map[Element]int
}

func newTable(nft knftables.Interface, family knftables.Family, clusterCIDR, serviceCIDR []netip.Prefix) *table {
	t := &table{nft: nft, family: family, clusterCIDR: clusterCIDR, serviceCIDR: serviceCIDR}
	t.forget()
	return t
}

func (t *table) forget() {
	t.applied = map[types.NamespacedName]Fragment{}
	t.owners = map[Element]types.NamespacedName{}
	t.waiting = map[Element]map[types.NamespacedName]bool{}
	t.pairs = map[Element]int{}
}

// replace makes the table anew with these fragments, in one transaction: the kernel goes from the old rules to the new ones at once.
func (t *table) replace(ctx context.Context, want map[types.NamespacedName]Fragment) error {
	t.forget()
	tx := t.nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	base(tx, t.family, t.clusterCIDR, t.serviceCIDR)
	t.change(tx, want)
	return t.run(ctx, tx)
}

// update changes some Services' fragments; an empty fragment takes a Service out. It returns the Services that got an address which
// another gave up and that must be asked for again.
func (t *table) update(ctx context.Context, want map[types.NamespacedName]Fragment) (again []types.NamespacedName, err error) {
	tx := t.nft.NewTransaction()
	touched, again := t.change(tx, want)
	if touched == 0 {
		return again, nil
	}
	return again, t.run(ctx, tx)
}

func (t *table) run(ctx context.Context, tx *knftables.Transaction) error {
	if err := t.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("nftables refused a change of %d objects: %w", tx.NumOperations(), err)
	}
	return nil
}

func (t *table) change(tx *knftables.Transaction, want map[types.NamespacedName]Fragment) (touched int, again []types.NamespacedName) {
	old, new := newFragment(), newFragment()
	names := make([]types.NamespacedName, 0, len(want))
	for name := range want {
		names = append(names, name)
		old.Merge(t.applied[name])
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		again = append(again, t.release(name, want[name])...)
	}
	for _, name := range names {
		f := t.claim(name, want[name])
		new.Merge(f)
		if len(f.Chains)+len(f.Elements) == 0 {
			delete(t.applied, name)
		} else {
			t.applied[name] = f
		}
	}
	t.keepShared(old, new)
	return Diff(tx, old, new), again
}

// release gives up the addresses that a Service no longer wants, and tells who waits for them.
func (t *table) release(name types.NamespacedName, want Fragment) (again []types.NamespacedName) {
	for e := range t.applied[name].Elements {
		if e.Of == setHairpin {
			t.pairs[e]--
			continue
		}
		if _, stays := want.Elements[e]; !stays {
			delete(t.owners, e)
			for waiter := range t.waiting[e] {
				again = append(again, waiter)
			}
			delete(t.waiting, e)
		}
	}
	return again
}

// claim takes what a Service wants, less the addresses that another has.
func (t *table) claim(name types.NamespacedName, want Fragment) Fragment {
	out := Fragment{Chains: want.Chains, Affinity: want.Affinity, Elements: map[Element]string{}}
	for e, value := range want.Elements {
		if e.Of == setHairpin {
			t.pairs[e]++
			out.Elements[e] = value
			continue
		}
		if owner, taken := t.owners[e]; taken && owner != name {
			if t.waiting[e] == nil {
				t.waiting[e] = map[types.NamespacedName]bool{}
			}
			t.waiting[e][name] = true
			continue
		}
		t.owners[e] = name
		out.Elements[e] = value
	}
	return out
}

// keepShared takes out of old the hairpin pairs that other Services still need, so that they are not deleted.
func (t *table) keepShared(old, new Fragment) {
	for e := range old.Elements {
		if e.Of != setHairpin {
			continue
		}
		if t.pairs[e] > 0 {
			if _, stays := new.Elements[e]; !stays {
				delete(old.Elements, e)
			}
			continue
		}
		delete(t.pairs, e)
	}
}

// intact tells whether the kernel still has the chains that were asked for; somebody may have flushed the ruleset.
func (t *table) intact(ctx context.Context) bool {
	chains, err := t.nft.List(ctx, "chains")
	if err != nil {
		return false
	}
	have := map[string]bool{}
	for _, c := range chains {
		have[c] = true
	}
	if !have["services"] {
		return false
	}
	for _, f := range t.applied {
		for c := range f.Chains {
			if !have[c] {
				return false
			}
		}
	}
	return true
}
