package dra

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
)

// Bounds of the work for one node's explanation.
const (
	looksPerExplanation = 40 // of stepsPerLook steps, in all searches together
	holdersTried        = 64 // claims that are tried one by one
)

// trial finds what would let claims have devices on a node that has none for them. The book is locked all the while, and left as it was.
type trial struct {
	book    *Book
	state   *state
	node    *corev1.Node
	demands []*demand
	budget  int
	all     []holder // of the node; nil: not asked for yet
}

// holder is a claim that has devices.
type holder struct {
	key        types.NamespacedName
	claim      *resourcev1.ResourceClaim
	allocation *resourcev1.AllocationResult
}

// possible tells whether a search finds devices for demands as things are now.
func (t *trial) possible(demands []*demand) bool {
	picks, _, _, err := t.book.stock.allocate(t.node, demands, func() bool { t.budget--; return t.budget < 0 })
	return err == nil && picks != nil
}

func (t *trial) remedies() []framework.Remedy {
	if t.possible(t.demands) {
		return nil // it was refused for something that is no more
	}
	tolerant := tolerating(t.demands)
	if t.possible(tolerant) {
		return t.taints(t.demands)
	}
	if gone := t.holders(t.demands); gone != nil {
		return t.freed(gone, t.demands)
	}
	if out := t.loosened(); out != nil {
		return out
	}
	if gone := t.holders(tolerant); gone != nil {
		return append(t.freed(gone, tolerant), t.taintsWithout(gone)...)
	}
	if t.budget < 0 {
		return []framework.Remedy{deviceRemedy("", partMore, "claims with fewer requests, or narrower selectors: they have too many combinations on node %s to say more", t.node.Name)}
	}
	return t.more()
}

// tolerating is demands whose requests put up with all taints.
func tolerating(demands []*demand) []*demand {
	out := make([]*demand, len(demands))
	for k, d := range demands {
		clone := *d
		clone.requests = nil
		for _, alternatives := range d.requests {
			var list []*request
			for _, r := range alternatives {
				other := *r
				other.tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
				list = append(list, &other)
			}
			clone.requests = append(clone.requests, list)
		}
		out[k] = &clone
	}
	return out
}

// taints names those that the claims must tolerate: of the devices that they then get.
func (t *trial) taints(demands []*demand) []framework.Remedy {
	picks, _, _, err := t.book.stock.allocate(t.node, tolerating(demands), nil)
	if err != nil || picks == nil {
		return nil
	}
	var out []framework.Remedy
	for k, d := range demands {
		for _, p := range picks[k] {
			for _, taint := range p.device.spec.Taints {
				if !keepsAway(p.request, d, taint) {
					continue
				}
				m := deviceRemedy(p.request.name, partTolerate, "a toleration of taint %s of device %s in %s", taintText(taint), p.device.id, t.title(d, p.request))
				if !slices.ContainsFunc(out, func(o framework.Remedy) bool { return o.Do == m.Do }) {
					out = append(out, m)
				}
			}
		}
	}
	return out
}

// keepsAway tells whether a request, as the claim has it, does not tolerate a taint.
func keepsAway(r *request, d *demand, taint resourcev1.DeviceTaint) bool {
	for _, alternatives := range d.requests {
		for _, own := range alternatives {
			if own.name == r.name {
				return !own.tolerates(&resourcev1.Device{Taints: []resourcev1.DeviceTaint{taint}})
			}
		}
	}
	return false
}

func taintText(t resourcev1.DeviceTaint) string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// taintsWithout is taints once some claims have given their devices back.
func (t *trial) taintsWithout(gone []holder) []framework.Remedy {
	defer t.without(gone)()
	return t.taints(t.demands)
}

// without takes claims out of the ledger; the function that it returns puts them back.
func (t *trial) without(list []holder) (back func()) {
	for _, h := range list {
		t.book.stock.remove(h.allocation)
	}
	return func() {
		for _, h := range list {
			t.book.stock.add(h.allocation)
		}
	}
}

// holders finds the fewest claims that must give their devices back for demands to be met: one, if one is enough; else a set that none can be left out of. Nil: that does not help.
func (t *trial) holders(demands []*demand) []holder {
	all := t.onNode()
	for k, h := range all {
		if k == holdersTried {
			break
		}
		back := t.without(all[k : k+1])
		enough := t.possible(demands)
		back()
		if enough {
			return []holder{h}
		}
	}
	needed := all[:sort.Search(len(all), func(n int) bool {
		defer t.without(all[:n])()
		return t.possible(demands)
	})]
	if len(needed) == len(all) {
		back := t.without(all)
		enough := t.possible(demands)
		back()
		if !enough {
			return nil
		}
	}
	for k := len(needed) - 1; k >= 0 && len(needed) <= holdersTried; k-- {
		fewer := slices.Delete(slices.Clone(needed), k, k+1)
		back := t.without(fewer)
		if t.possible(demands) {
			needed = fewer
		}
		back()
	}
	return needed
}

// onNode lists the claims that have devices of pools which the node reaches: those that fewer pods use come first.
func (t *trial) onNode() []holder {
	if t.all != nil {
		return t.all
	}
	t.all = []holder{}
	seen := map[*entry]bool{}
	reach := map[poolID]bool{}
	for _, p := range t.book.stock.on(t.node) {
		reach[p.id] = true
		for e := range t.book.holders[p.id] {
			if !seen[e] {
				seen[e] = true
				t.all = append(t.all, holder{keyOf(e.claim), e.claim, e.counted})
			}
		}
	}
	for uid, a := range t.book.pending { // decided on, but not written
		by := t.book.sharing[uid]
		if by == nil || !slices.ContainsFunc(results(a), func(r *resourcev1.DeviceRequestAllocationResult) bool { return reach[poolID{r.Driver, r.Pool}] }) {
			continue
		}
		key := keyOf(by.claim)
		if key.Name == "" {
			key.Name = by.claim.GenerateName
		}
		t.all = append(t.all, holder{key, by.claim, a})
	}
	slices.SortFunc(t.all, func(a, b holder) int {
		return cmp.Or(cmp.Compare(len(a.claim.Status.ReservedFor), len(b.claim.Status.ReservedFor)), compareNames(a.key, b.key))
	})
	return t.all
}

// freed tells who must give devices back. Where others would do as well, it says from how many.
func (t *trial) freed(gone []holder, demands []*demand) []framework.Remedy {
	var names []types.NamespacedName
	m := framework.Remedy{Kind: framework.Device, Plugin: Name, Part: partFree + float64(len(gone))/1000}
	devices := 0
	for _, h := range gone {
		names = append(names, h.key)
		devices += len(results(h.allocation))
		for _, p := range podsOf(h.claim) {
			if !slices.Contains(m.Pods, p) {
				m.Pods = append(m.Pods, p)
			}
		}
	}
	slices.SortFunc(names, compareNames)
	slices.SortFunc(m.Pods, compareNames)
	users := "which no pod uses"
	if len(m.Pods) > 0 {
		users = "which " + listed("pod", m.Pods) + verb(len(m.Pods), " uses", " use")
	}
	m.Name = names[0].Name
	m.Do = fmt.Sprintf("the %s on node %s back that %s %s, %s; %s", noun(devices, "device"), t.node.Name, listed("claim", names), verb(len(names), "has", "have"), users, t.wanted(demands))
	return []framework.Remedy{m}
}

func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

func noun(n int, word string) string {
	if n == 1 {
		return word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// wanted says which requests are short of free devices.
func (t *trial) wanted(demands []*demand) string {
	var parts []string
	x := newSearch(&t.book.stock, t.node, demands)
	for ci, d := range demands {
		for _, alternatives := range d.requests {
			r := alternatives[0]
			for _, other := range alternatives { // the one that would get them
				if c := x.candidates(r); c.refuse == "" && x.err == nil {
					break
				}
				r = other
			}
			if x.lack(ci, r) == "" {
				continue
			}
			matching, free := x.count(ci, r)
			want := "all"
			if !r.all {
				want = strconv.Itoa(r.count)
			}
			parts = append(parts, fmt.Sprintf("%s wants %s of the %d that match there, and %d %s free", t.title(d, r), want, matching, free, verb(free, "is", "are")))
		}
	}
	if len(parts) == 0 {
		return "too few are free for all requests together"
	}
	return strings.Join(parts, ", ")
}

func wish(r *request) string {
	if r.all {
		return "all are wanted"
	}
	return fmt.Sprintf("%d %s wanted", r.count, verb(r.count, "is", "are"))
}

// loosened says which constraint keeps the claims from devices that are free.
func (t *trial) loosened() []framework.Remedy {
	for k, d := range t.demands {
		for i := range d.constraints {
			clone := *d
			clone.constraints = slices.Delete(slices.Clone(d.constraints), i, i+1)
			demands := slices.Clone(t.demands)
			demands[k] = &clone
			if t.possible(demands) {
				return []framework.Remedy{t.constraint(d, d.constraints[i])}
			}
		}
	}
	none := make([]*demand, len(t.demands))
	for k, d := range t.demands {
		clone := *d
		clone.constraints = nil
		none[k] = &clone
	}
	if !t.possible(none) {
		return nil
	}
	var out []framework.Remedy
	for _, d := range t.demands {
		for _, c := range d.constraints {
			out = append(out, t.constraint(d, c))
		}
	}
	return out
}

func (t *trial) constraint(d *demand, c *resourcev1.DeviceConstraint) framework.Remedy {
	about := "all requests"
	if len(c.Requests) > 0 {
		about = noun(len(c.Requests), "request") + " " + strings.Join(c.Requests, ", ")
		if len(c.Requests) > 1 {
			about = "requests " + strings.Join(c.Requests, ", ")
		}
	}
	if c.MatchAttribute != nil {
		return deviceRemedy(d.claim.Name, partLoosen, "enough free devices with one value of attribute %s on node %s for %s of claim %s, or no such constraint", *c.MatchAttribute, t.node.Name, about, d.claim.Name)
	}
	return deviceRemedy(d.claim.Name, partLoosen, "enough free devices with different values of attribute %s on node %s for %s of claim %s, or no such constraint", *c.DistinctAttribute, t.node.Name, about, d.claim.Name)
}

// title names a request as users know it.
func (t *trial) title(d *demand, r *request) string {
	if e := t.state.extended; e != nil && d.claim.Name == "" {
		for _, b := range e.demands {
			for _, m := range b.mappings {
				if m.RequestName == r.name {
					return fmt.Sprintf("extended resource %s of container %s", m.ResourceName, m.ContainerName)
				}
			}
		}
	}
	return fmt.Sprintf("request %s of claim %s", r.name, d.claim.Name)
}
