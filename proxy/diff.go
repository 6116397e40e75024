package proxy

import (
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// affinityEntries bounds the clients remembered by one endpoint.
const affinityEntries = 65535

// Diff adds to tx what turns the table's state from old into new. The order keeps every reference valid: sets and chains are made first,
// then filled, then pointed to; what is no longer pointed to goes last. It reports how many objects it touched.
func Diff(tx *knftables.Transaction, old, new Fragment) int {
	touched := 0
	for _, name := range sorted(new.Affinity) {
		if _, there := old.Affinity[name]; !there {
			addAffinity(tx, name, new.Affinity[name])
			touched++
		}
	}
	for _, name := range sorted(new.Chains) {
		if _, there := old.Chains[name]; !there {
			tx.Add(&knftables.Chain{Name: name})
		}
	}
	for _, name := range sorted(new.Chains) {
		if rules, there := old.Chains[name]; there && slices.Equal(rules, new.Chains[name]) {
			continue
		}
		tx.Flush(&knftables.Chain{Name: name})
		for _, rule := range new.Chains[name] {
			tx.Add(&knftables.Rule{Chain: name, Rule: rule})
		}
		touched++
	}
	touched += diffElements(tx, old, new)
	touched += removeChains(tx, old, new)
	for _, name := range sorted(old.Affinity) {
		if _, stays := new.Affinity[name]; !stays {
			tx.Delete(&knftables.Set{Name: name})
			touched++
		}
	}
	return touched
}

func addAffinity(tx *knftables.Transaction, name string, a AffinitySet) {
	addr := "ipv4_addr"
	if a.IPv6 {
		addr = "ipv6_addr"
	}
	size := uint64(affinityEntries)
	tx.Add(&knftables.Set{Name: name, Type: addr, Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}, Timeout: &a.Timeout, Size: &size})
}

func diffElements(tx *knftables.Transaction, old, new Fragment) (touched int) {
	for _, e := range sortedElements(old.Elements) {
		if value, stays := new.Elements[e]; !stays || value != old.Elements[e] {
			tx.Delete(element(e, old.Elements[e]))
			touched++
		}
	}
	for _, e := range sortedElements(new.Elements) {
		if value, there := old.Elements[e]; !there || value != new.Elements[e] {
			tx.Add(element(e, new.Elements[e]))
			touched++
		}
	}
	return touched
}

// removeChains empties them all before it deletes any: they may lead to each other.
func removeChains(tx *knftables.Transaction, old, new Fragment) (touched int) {
	var gone []string
	for _, name := range sorted(old.Chains) {
		if _, stays := new.Chains[name]; !stays {
			gone = append(gone, name)
			tx.Flush(&knftables.Chain{Name: name})
		}
	}
	for _, name := range gone {
		tx.Delete(&knftables.Chain{Name: name})
	}
	return len(gone)
}

func element(e Element, value string) *knftables.Element {
	out := &knftables.Element{Key: strings.Split(e.Key, " . ")}
	if e.Of == setHairpin {
		out.Set = e.Of
		return out
	}
	out.Map, out.Value = e.Of, []string{value}
	return out
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func sortedElements(m map[Element]string) []Element {
	return slices.SortedFunc(maps.Keys(m), func(a, b Element) int {
		if c := strings.Compare(a.Of, b.Of); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
}
