package dra

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// ID names a device.
type ID struct{ Driver, Pool, Device string }

func (id ID) String() string { return id.Driver + "/" + id.Pool + "/" + id.Device }

type poolID struct{ driver, pool string }

func (id poolID) String() string { return id.driver + "/" + id.pool }

func (id poolID) compare(o poolID) int {
	return cmp.Or(cmp.Compare(id.driver, o.driver), cmp.Compare(id.pool, o.pool))
}

// place says from which nodes a slice or a device can be reached.
type place struct {
	node     string
	all      bool
	selector *nodeaffinity.NodeSelector
}

func newPlace(node *string, all *bool, selector *corev1.NodeSelector) (place, error) {
	p := place{node: ptr.Deref(node, ""), all: ptr.Deref(all, false)}
	if p.node == "" && !p.all && selector != nil {
		var err error
		if p.selector, err = nodeaffinity.NewNodeSelector(selector); err != nil {
			return place{}, fmt.Errorf("nodeSelector: %w", err)
		}
	}
	return p, nil
}

func (p place) reaches(node *corev1.Node) bool {
	switch {
	case p.node != "":
		return p.node == node.Name
	case p.all:
		return true
	}
	return p.selector != nil && p.selector.Match(node)
}

// device is one device of a pool's newest generation. All of it but verdicts is immutable.
type device struct {
	id       ID
	at       int // its place in the pool
	spec     *resourcev1.Device
	slice    *resourcev1.ResourceSlice
	where    place
	pool     *pool
	verdicts map[string]verdict // by selector
}

func (d *device) shared() bool { return ptr.Deref(d.spec.AllowMultipleAllocations, false) }

// pool is the newest generation of a driver's pool.
type pool struct {
	id         poolID
	incomplete bool   // slices are missing: the driver is at it
	invalid    string // why nothing can be allocated from it
	devices    []*device
	counters   map[string]map[string]resourcev1.Counter
	local      string // the node that all its devices are on, if there is one
	binding    bool   // a device has conditions for binding
}

// reaches tells whether a device of the pool can be reached from a node.
func (p *pool) reaches(node *corev1.Node) bool {
	if p.local != "" {
		return p.local == node.Name
	}
	return slices.ContainsFunc(p.devices, func(d *device) bool { return d.where.reaches(node) })
}

// inventory is what drivers publish.
type inventory struct {
	slices map[string]*resourcev1.ResourceSlice
	byPool map[poolID]map[string]*resourcev1.ResourceSlice
	pools  map[poolID]*pool
	local  map[string]*site // by node
	shared []*pool          // ordered

	sharedVersion uint64 // changes with the shared pools and what is taken of them
}

// site is a node's own pools.
type site struct {
	pools   []*pool // ordered
	version uint64  // changes with them and what is taken of them
}

func newInventory() *inventory {
	return &inventory{slices: map[string]*resourcev1.ResourceSlice{}, byPool: map[poolID]map[string]*resourcev1.ResourceSlice{}, pools: map[poolID]*pool{}, local: map[string]*site{}}
}

func poolOf(s *resourcev1.ResourceSlice) poolID { return poolID{s.Spec.Driver, s.Spec.Pool.Name} }

// set takes in a slice's newest state; nil means that it is gone.
func (v *inventory) set(name string, s *resourcev1.ResourceSlice) {
	if old := v.slices[name]; old != nil {
		id := poolOf(old)
		delete(v.byPool[id], name)
		delete(v.slices, name)
		if s == nil || poolOf(s) != id {
			v.rebuild(id)
		}
	}
	if s == nil {
		return
	}
	id := poolOf(s)
	if v.byPool[id] == nil {
		v.byPool[id] = map[string]*resourcev1.ResourceSlice{}
	}
	v.slices[name], v.byPool[id][name] = s, s
	v.rebuild(id)
}

func (v *inventory) rebuild(id poolID) {
	if old := v.pools[id]; old != nil {
		v.unlink(old)
	}
	if len(v.byPool[id]) == 0 {
		delete(v.byPool, id)
		delete(v.pools, id)
		return
	}
	p := newPool(id, v.byPool[id])
	v.pools[id] = p
	if p.local != "" {
		at := v.site(p.local)
		at.pools = insert(at.pools, p)
	} else {
		v.shared = insert(v.shared, p)
	}
	v.touch(p)
}

func (v *inventory) site(node string) *site {
	at := v.local[node]
	if at == nil {
		at = &site{}
		v.local[node] = at
	}
	return at
}

// touch notes that a pool is not what it was.
func (v *inventory) touch(p *pool) {
	if p.local == "" {
		v.sharedVersion++
		return
	}
	v.site(p.local).version++
}

// versions tell the state of all that can be reached from a node.
func (v *inventory) versions(node string) (local, shared uint64) {
	if at := v.local[node]; at != nil {
		local = at.version
	}
	return local, v.sharedVersion
}

func (v *inventory) unlink(p *pool) {
	same := func(o *pool) bool { return o == p }
	if p.local == "" {
		v.shared = slices.DeleteFunc(v.shared, same)
	} else {
		at := v.site(p.local) // it stays, for its version
		at.pools = slices.DeleteFunc(at.pools, same)
	}
	v.touch(p)
}

func insert(list []*pool, p *pool) []*pool {
	at, _ := slices.BinarySearchFunc(list, p, comparePools)
	return slices.Insert(list, at, p)
}

// comparePools puts pools in the order in which they are drawn from: those whose devices bind at once come first, then by driver and name.
func comparePools(a, b *pool) int {
	if a.binding != b.binding {
		if a.binding {
			return 1
		}
		return -1
	}
	return a.id.compare(b.id)
}

// on lists the pools with devices for a node, in order.
func (v *inventory) on(node *corev1.Node) []*pool {
	var out []*pool
	if at := v.local[node.Name]; at != nil {
		out = at.pools
	}
	if len(v.shared) == 0 {
		return out
	}
	out = slices.Clone(out)
	for _, p := range v.shared {
		if p.reaches(node) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, comparePools)
	return out
}

// newPool takes the newest generation of a pool's slices.
func newPool(id poolID, all map[string]*resourcev1.ResourceSlice) *pool {
	var newest []*resourcev1.ResourceSlice
	for _, s := range all {
		switch {
		case len(newest) == 0 || s.Spec.Pool.Generation > newest[0].Spec.Pool.Generation:
			newest = append(newest[:0], s)
		case s.Spec.Pool.Generation == newest[0].Spec.Pool.Generation:
			newest = append(newest, s)
		}
	}
	// Drivers say by the names of slices which devices are to be drawn first.
	slices.SortFunc(newest, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	p := &pool{id: id, incomplete: int64(len(newest)) != newest[0].Spec.Pool.ResourceSliceCount, counters: map[string]map[string]resourcev1.Counter{}}
	p.local = localTo(newest)
	for _, s := range newest {
		if err := p.add(s); err != nil {
			p.invalid = err.Error()
			break
		}
	}
	if p.invalid == "" && !p.incomplete {
		if err := p.check(); err != nil {
			p.invalid = err.Error()
		}
	}
	return p
}

func localTo(list []*resourcev1.ResourceSlice) string {
	node := ""
	for _, s := range list {
		if len(s.Spec.SharedCounters) > 0 {
			continue // counters are no devices: where they are does not matter
		}
		name := ptr.Deref(s.Spec.NodeName, "")
		if name == "" || node != "" && name != node {
			return ""
		}
		node = name
	}
	return node
}

func (p *pool) add(s *resourcev1.ResourceSlice) error {
	for i := range s.Spec.SharedCounters {
		set := &s.Spec.SharedCounters[i]
		if p.counters[set.Name] != nil {
			return fmt.Errorf("duplicate counter set name %s", set.Name)
		}
		p.counters[set.Name] = set.Counters
	}
	where, err := newPlace(s.Spec.NodeName, s.Spec.AllNodes, s.Spec.NodeSelector)
	if err != nil {
		return fmt.Errorf("slice %s: %w", s.Name, err)
	}
	for i := range s.Spec.Devices {
		d := &device{id: ID{s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Devices[i].Name}, at: len(p.devices), spec: &s.Spec.Devices[i], slice: s, where: where, pool: p, verdicts: map[string]verdict{}}
		if ptr.Deref(s.Spec.PerDeviceNodeSelection, false) {
			if d.where, err = newPlace(d.spec.NodeName, d.spec.AllNodes, d.spec.NodeSelector); err != nil {
				return fmt.Errorf("device %s: %w", d.id, err)
			}
		}
		p.binding = p.binding || len(d.spec.BindingConditions) > 0
		p.devices = append(p.devices, d)
	}
	return nil
}

// check refuses a pool whose devices can't be told apart, or draw on counters that there are not.
func (p *pool) check() error {
	names := map[string]bool{}
	for _, d := range p.devices {
		if names[d.id.Device] {
			return fmt.Errorf("duplicate device name %s", d.id.Device)
		}
		names[d.id.Device] = true
		for _, use := range d.spec.ConsumesCounters {
			set, ok := p.counters[use.CounterSet]
			if !ok {
				return fmt.Errorf("counter set %s not found", use.CounterSet)
			}
			for name := range use.Counters {
				if _, ok := set[name]; !ok {
					return fmt.Errorf("counter %s not found in counter set %s", name, use.CounterSet)
				}
			}
		}
	}
	return nil
}
