package dra

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// plain is the rules written down as a check of a whole choice, with an allocator that tries every choice there is.
type plain struct {
	devices []plainDevice
	used    map[string]bool             // devices that others have as a whole
	shared  map[string]map[string]int64 // what others take of shared devices
	sets    map[string]int64            // counters
	claims  []*resourcev1.ResourceClaim
}

type plainDevice struct {
	name string // pool/device
	spec resourcev1.Device
}

// chosen is one device for one request of one claim.
type chosenDevice struct {
	claim   int
	request resourcev1.ExactDeviceRequest
	base    string
	name    string
	device  int
}

// alternativesPlain lists what a request may mean, most wanted first.
func alternativesPlain(r resourcev1.DeviceRequest) (out []resourcev1.DeviceRequest) {
	if r.Exactly != nil {
		return []resourcev1.DeviceRequest{r}
	}
	for _, s := range r.FirstAvailable {
		out = append(out, resourcev1.DeviceRequest{Name: r.Name + "/" + s.Name, Exactly: &resourcev1.ExactDeviceRequest{Selectors: s.Selectors, AllocationMode: s.AllocationMode, Count: s.Count,
			Tolerations: s.Tolerations, Capacity: s.Capacity}})
	}
	return out
}

// matches knows only selectors of the form that is() writes.
func (p *plain) matches(r *resourcev1.ExactDeviceRequest, d plainDevice) bool {
	for _, s := range r.Selectors {
		var name, value string
		rest := strings.TrimPrefix(s.CEL.Expression, fmt.Sprintf("device.attributes[%q].", driverName))
		name, value, _ = strings.Cut(rest, " == ")
		if v, _ := strconv.Unquote(value); *d.spec.Attributes[resourcev1.QualifiedName(name)].StringValue != v {
			return false
		}
	}
	take, ok := p.takes(r, d)
	return ok && take <= slots(d)
}

func slots(d plainDevice) int64 {
	q := d.spec.Capacity["slots"].Value
	return q.Value()
}

// takes is how much of a device's slots a request takes: all, unless it says.
func (p *plain) takes(r *resourcev1.ExactDeviceRequest, d plainDevice) (int64, bool) {
	_, has := d.spec.Capacity["slots"]
	if r.Capacity == nil {
		return slots(d), true
	}
	q := r.Capacity.Requests["slots"]
	return q.Value(), has
}

func (p *plain) tolerated(r *resourcev1.ExactDeviceRequest, d plainDevice) bool {
	return len(d.spec.Taints) == 0 || slices.ContainsFunc(r.Tolerations, func(t resourcev1.DeviceToleration) bool { return t.Key == d.spec.Taints[0].Key })
}

// valid checks a choice from the beginning.
func (p *plain) valid(choice []chosenDevice) bool {
	holders, shares, left := map[int][]int{}, map[int]int64{}, map[string]int64{}
	for set, n := range p.sets {
		left[set] = n
	}
	isShared := func(d int) bool { return ptr.Deref(p.devices[d].spec.AllowMultipleAllocations, false) }
	draw := func(d plainDevice) bool {
		for _, use := range d.spec.ConsumesCounters {
			q := use.Counters["memory"].Value
			left[use.CounterSet] -= q.Value()
			if left[use.CounterSet] < 0 {
				return false
			}
		}
		return true
	}
	for _, d := range p.devices {
		if p.used[d.name] || p.shared[d.name] != nil {
			draw(d)
		}
	}
	for _, c := range choice {
		d := p.devices[c.device]
		admin := ptr.Deref(c.request.AdminAccess, false)
		if !p.tolerated(&c.request, d) {
			return false
		}
		if admin && slices.Contains(holders[c.device], c.claim) || !admin && (p.used[d.name] || len(holders[c.device]) > 0) {
			return false
		}
		again := false
		if isShared(c.device) {
			before, others := shares[c.device]
			again = others || p.shared[d.name] != nil
			take, _ := p.takes(&c.request, d)
			shares[c.device] = before + take
			if shares[c.device]+p.shared[d.name]["slots"] > slots(d) {
				return false
			}
		} else {
			holders[c.device] = append(holders[c.device], c.claim)
		}
		if !again && !draw(d) {
			return false
		}
	}
	for ci, claim := range p.claims {
		for _, k := range claim.Spec.Devices.Constraints {
			values := map[string]int{}
			n := 0
			for _, c := range choice {
				if c.claim != ci || len(k.Requests) > 0 && !slices.Contains(k.Requests, c.base) && !slices.Contains(k.Requests, c.name) {
					continue
				}
				name := strings.TrimPrefix(string(ptr.Deref(k.MatchAttribute, ptr.Deref(k.DistinctAttribute, ""))), driverName+"/")
				values[*p.devices[c.device].spec.Attributes[resourcev1.QualifiedName(name)].StringValue]++
				n++
			}
			if k.MatchAttribute != nil && len(values) > 1 || k.DistinctAttribute != nil && len(values) < n {
				return false
			}
		}
	}
	return true
}

// solve tries everything, in the order of alternatives, and answers the names of those of the first solution.
func (p *plain) solve(ci, ri int, choice []chosenDevice, names []string) ([]string, bool) {
	if ci == len(p.claims) {
		return names, p.valid(choice)
	}
	requests := p.claims[ci].Spec.Devices.Requests
	if ri == len(requests) {
		return p.solve(ci+1, 0, choice, names)
	}
	for _, alt := range alternativesPlain(requests[ri]) {
		var fit []int
		for i, d := range p.devices {
			if !p.matches(alt.Exactly, d) {
				continue
			}
			if take, _ := p.takes(alt.Exactly, d); alt.Exactly.AllocationMode == resourcev1.DeviceAllocationModeAll && ptr.Deref(d.spec.AllowMultipleAllocations, false) && take+p.shared[d.name]["slots"] > slots(d) {
				continue
			}
			fit = append(fit, i)
		}
		n := int(alt.Exactly.Count)
		if alt.Exactly.AllocationMode == resourcev1.DeviceAllocationModeAll {
			if n = len(fit); n == 0 {
				continue
			}
		}
		for _, set := range subsets(fit, n) {
			next := slices.Clone(choice)
			for _, d := range set {
				next = append(next, chosenDevice{ci, *alt.Exactly, requests[ri].Name, alt.Name, d})
			}
			if got, ok := p.solve(ci, ri+1, next, append(slices.Clone(names), fmt.Sprint(ci, " ", alt.Name))); ok {
				return got, true
			}
		}
	}
	return nil, false
}

func subsets(of []int, n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var out [][]int
	for i := range of {
		for _, rest := range subsets(of[i+1:], n-1) {
			out = append(out, append([]int{of[i]}, rest...))
		}
	}
	return out
}

func TestSearchAgreesWithTryingEverything(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("YARE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	g := rand.New(rand.NewPCG(seed, 1))
	met, refused := 0, 0
	for n := range 600 {
		p, b := randomShop(g)
		want, ok := p.solve(0, 0, nil, nil)
		var demands []*demand
		for _, c := range p.claims {
			d, why := newDemand(c, b.class)
			if why != "" {
				t.Fatal(why)
			}
			demands = append(demands, d)
		}
		picks, why, _, err := b.stock.allocate(testNode(), demands, nil)
		if err != nil {
			t.Fatal(err)
		}
		fail := func(format string, args ...any) {
			t.Fatalf("case %d: %s\ndevices: %+v\nused %v shared %v counters %v\nclaims: %s\nreplay: YARE_SEED=%d go test ./scheduler/dra -run TestSearchAgreesWithTryingEverything", n, fmt.Sprintf(format, args...),
				p.devices, p.used, p.shared, p.sets, describe(p.claims), seed)
		}
		if ok != (picks != nil) {
			fail("trying everything: %t %v; the search: %v (%s)", ok, want, picks, why)
		}
		if !ok {
			refused++
			continue
		}
		met++
		var choice []chosenDevice
		var names []string
		for ci, list := range picks {
			for _, r := range chosen(demands[ci], list) {
				names = append(names, fmt.Sprint(ci, " ", r.name))
			}
			for _, pk := range list {
				i := slices.IndexFunc(p.devices, func(d plainDevice) bool { return d.name == pk.device.id.Pool+"/"+pk.device.id.Device })
				e := resourcev1.ExactDeviceRequest{Tolerations: pk.request.tolerations, Capacity: pk.request.capacity, AdminAccess: &pk.request.admin}
				choice = append(choice, chosenDevice{ci, e, pk.request.base, pk.request.name, i})
			}
		}
		if !slices.Equal(names, want) {
			fail("alternatives %v, the most wanted possible are %v", names, want)
		}
		if !p.valid(choice) {
			fail("what was chosen breaks a rule: %+v", choice)
		}
	}
	if met < 100 || refused < 100 {
		t.Errorf("%d cases met and %d refused: the cases are too much alike", met, refused)
	}
}

func describe(claims []*resourcev1.ResourceClaim) string {
	var b strings.Builder
	for _, c := range claims {
		fmt.Fprintf(&b, "%+v\n", c.Spec.Devices)
	}
	return b.String()
}

func randomShop(g *rand.Rand) (*plain, *Book) {
	p := &plain{used: map[string]bool{}, shared: map[string]map[string]int64{}, sets: map[string]int64{}}
	var slicesOf []*resourcev1.ResourceSlice
	var others []*resourcev1.ResourceClaim
	countersIn := g.IntN(3) == 0
	for pi := range 1 + g.IntN(2) {
		pool := "p" + strconv.Itoa(pi)
		var devices []resourcev1.Device
		for di := range 1 + g.IntN(4) {
			d := dev("d"+strconv.Itoa(di), attr("kind", pickOf(g, "x", "y")), attr("numa", pickOf(g, "0", "1")))
			if g.IntN(4) == 0 {
				sharing(&d)
				room("slots", strconv.Itoa(2+g.IntN(3)))(&d)
			}
			if g.IntN(6) == 0 {
				taint("bad", resourcev1.DeviceTaintEffectNoSchedule)(&d)
			}
			if countersIn && pi == 0 {
				draws("set", "memory", strconv.Itoa(1+g.IntN(3)))(&d)
			}
			devices = append(devices, d)
			name := pool + "/" + d.Name
			p.devices = append(p.devices, plainDevice{name, d})
			switch shared := ptr.Deref(d.AllowMultipleAllocations, false); {
			case g.IntN(4) > 0:
			case shared:
				c := taken(name)
				r := &c.Status.Allocation.Devices.Results[0]
				r.ShareID, r.ConsumedCapacity = ptr.To(types.UID("s")), map[resourcev1.QualifiedName]resource.Quantity{"slots": resource.MustParse("1")}
				p.shared[name] = map[string]int64{"slots": 1}
				others = append(others, c)
			default:
				p.used[name] = true
				others = append(others, taken(name))
			}
		}
		s := slice(pool, devices...)
		if countersIn && pi == 0 {
			p.sets["set"] = int64(1 + g.IntN(6))
			slicesOf = append(slicesOf, parts(s, counterSlice(pool, fmt.Sprintf("set/memory=%d", p.sets["set"])))...)
		} else {
			slicesOf = append(slicesOf, s)
		}
	}
	for ci := range 1 + g.IntN(2) {
		p.claims = append(p.claims, randomClaim(g, ci))
	}
	return p, shop(slicesOf, others...)
}

func pickOf(g *rand.Rand, of ...string) string { return of[g.IntN(len(of))] }

func randomClaim(g *rand.Rand, ci int) *resourcev1.ResourceClaim {
	one := func(name string, sub bool) resourcev1.DeviceRequest {
		var change []func(*resourcev1.ExactDeviceRequest)
		if g.IntN(2) == 0 {
			change = append(change, where(is("kind", pickOf(g, "x", "y"))))
		}
		if g.IntN(3) == 0 {
			change = append(change, count(int64(1+g.IntN(3))))
		}
		switch g.IntN(10) {
		case 0:
			change = append(change, all)
		case 1:
			change = append(change, wants("slots", strconv.Itoa(1+g.IntN(2))))
		case 2:
			if !sub {
				change = append(change, admin)
			}
		case 3:
			change = append(change, tolerates("bad"))
		}
		return exact(name, change...)
	}
	var requests []resourcev1.DeviceRequest
	for ri := range 1 + g.IntN(2) {
		name := "r" + strconv.Itoa(ri)
		if g.IntN(3) == 0 {
			requests = append(requests, first(name, one("a", true), one("b", true)))
		} else {
			requests = append(requests, one(name, false))
		}
	}
	c := claimOf(requests...)
	c.Name, c.UID = "c"+strconv.Itoa(ci), types.UID("c"+strconv.Itoa(ci))
	for range g.IntN(2) {
		k := []func(string, ...string) resourcev1.DeviceConstraint{same, distinct}[g.IntN(2)](pickOf(g, "kind", "numa"))
		if g.IntN(2) == 0 {
			k.Requests = []string{"r0"}
		}
		c.Spec.Devices.Constraints = append(c.Spec.Devices.Constraints, k)
	}
	return c
}
