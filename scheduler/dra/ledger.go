package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// amounts is how much of each capacity is taken.
type amounts map[resourcev1.QualifiedName]resource.Quantity

func (a amounts) add(b map[resourcev1.QualifiedName]resource.Quantity) {
	for name, q := range b {
		sum := a[name].DeepCopy()
		sum.Add(q)
		a[name] = sum
	}
}

func (a amounts) sub(b map[resourcev1.QualifiedName]resource.Quantity) {
	for name, q := range b {
		sum := a[name].DeepCopy()
		sum.Sub(q)
		a[name] = sum
	}
}

// share is a device that several requests share.
type share struct {
	holders int
	taken   amounts
}

// ledger says which devices are taken. Administrators' access takes none.
type ledger struct {
	devices map[ID]int // by how many claims; more than one is somebody's mistake, but counted
	shares  map[ID]*share
}

func newLedger() *ledger { return &ledger{devices: map[ID]int{}, shares: map[ID]*share{}} }

// taken tells whether a device is taken as a whole.
func (l *ledger) taken(id ID) bool { return l.devices[id] > 0 }

// used tells whether a device is taken at all.
func (l *ledger) used(id ID) bool { return l.devices[id] > 0 || l.shares[id] != nil }

func (l *ledger) add(a *resourcev1.AllocationResult) {
	for _, r := range results(a) {
		id := ID{r.Driver, r.Pool, r.Device}
		if r.ShareID == nil {
			l.devices[id]++
			continue
		}
		s := l.shares[id]
		if s == nil {
			s = &share{taken: amounts{}}
			l.shares[id] = s
		}
		s.holders++
		s.taken.add(r.ConsumedCapacity)
	}
}

func (l *ledger) remove(a *resourcev1.AllocationResult) {
	for _, r := range results(a) {
		id := ID{r.Driver, r.Pool, r.Device}
		if r.ShareID == nil {
			if l.devices[id]--; l.devices[id] <= 0 {
				delete(l.devices, id)
			}
			continue
		}
		if s := l.shares[id]; s != nil {
			s.taken.sub(r.ConsumedCapacity)
			if s.holders--; s.holders <= 0 {
				delete(l.shares, id)
			}
		}
	}
}

// results are what an allocation takes.
func results(a *resourcev1.AllocationResult) []*resourcev1.DeviceRequestAllocationResult {
	if a == nil {
		return nil
	}
	out := make([]*resourcev1.DeviceRequestAllocationResult, 0, len(a.Devices.Results))
	for i := range a.Devices.Results {
		if r := &a.Devices.Results[i]; !ptr.Deref(r.AdminAccess, false) {
			out = append(out, r)
		}
	}
	return out
}
