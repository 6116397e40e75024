package dra

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/google/go-cmp/cmp"
)

func list(s ...*resourcev1.ResourceSlice) []*resourcev1.ResourceSlice { return s }

func with(s *resourcev1.ResourceSlice, f func(*resourcev1.ResourceSliceSpec)) *resourcev1.ResourceSlice {
	f(&s.Spec)
	return s
}

func elsewhere(node string) func(*resourcev1.ResourceSliceSpec) {
	return func(s *resourcev1.ResourceSliceSpec) { s.NodeName = &node }
}

func inZone(zone string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}}}
}

func TestAllocation(t *testing.T) {
	three := slice("p", dev("a", attr("kind", "x"), attr("numa", "0")), dev("b", attr("kind", "y"), attr("numa", "0")), dev("c", attr("kind", "x"), attr("numa", "1")))
	many := slice("p")
	for i := range 40 {
		many.Spec.Devices = append(many.Spec.Devices, dev("d"+string(rune('a'+i/26))+string(rune('a'+i%26))))
	}
	mig := parts(slice("p", dev("half-1", draws("gpu", "memory", "20Gi")), dev("half-2", draws("gpu", "memory", "20Gi")), dev("whole", draws("gpu", "memory", "40Gi"))), counterSlice("p", "gpu/memory=40Gi"))
	nic := slice("p", dev("nic", sharing, room("bandwidth", "10", &resourcev1.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("1")),
		ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1")), Step: ptr.To(resource.MustParse("2"))}})))
	sharedBy := func(amount string) *resourcev1.ResourceClaim {
		c := taken("p/nic")
		r := &c.Status.Allocation.Devices.Results[0]
		r.ShareID, r.ConsumedCapacity = ptr.To(c.UID), map[resourcev1.QualifiedName]resource.Quantity{"bandwidth": resource.MustParse(amount)}
		return c
	}
	for name, c := range map[string]struct {
		slices []*resourcev1.ResourceSlice
		taken  []*resourcev1.ResourceClaim
		claims []*resourcev1.ResourceClaim
		want   string // what they get, or part of the refusal after "!"
	}{
		"the first that fits":            {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/a"},
		"a device in use is passed over": {list(three), []*resourcev1.ResourceClaim{taken("p/a")}, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/b"},
		"by a selector":                  {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", where(is("kind", "y"))))}, "r=p/b"},
		"two claims never share":         {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", where(is("kind", "x")))), claimOf(exact("s", where(is("kind", "x"))))}, "r=p/a s=p/c"},
		"a later need moves an earlier":  {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"), exact("s", where(is("kind", "x"), is("numa", "0"))))}, "r=p/b s=p/a"},
		"several":                        {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", count(2)))}, "r=p/a r=p/b"},
		"more than there are":            {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", count(4)))}, "!request r wants 4 devices, of 3 that match"},
		"more than are free":             {list(three), []*resourcev1.ResourceClaim{taken("p/a", "p/b")}, []*resourcev1.ResourceClaim{claimOf(exact("r", count(2)))}, "!too few free devices for request r"},
		"none that matches":              {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", where(is("kind", "z"))))}, "!no device matches request r"},
		"all":                            {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", all, where(is("kind", "x"))))}, "r=p/a r=p/c"},
		"all, of which one is in use":    {list(three), []*resourcev1.ResourceClaim{taken("p/c")}, []*resourcev1.ResourceClaim{claimOf(exact("r", all, where(is("kind", "x"))))}, "!request r wants all devices"},
		"all of none":                    {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", all, where(is("kind", "z"))))}, "!no device matches request r"},
		"32 are the most":                {list(many), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", count(33)))}, "!more than 32 devices"},
		"32 over two requests":           {list(many), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", count(20)), exact("s", count(13)))}, "!more than 32 devices"},
		"all are too many":               {list(many), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", all))}, "!no combination of free devices meets all requests and constraints"},
		"administrators":                 {list(three), []*resourcev1.ResourceClaim{taken("p/a")}, []*resourcev1.ResourceClaim{claimOf(exact("r", admin))}, "r=p/a"},
		"administrators of all":          {list(three), []*resourcev1.ResourceClaim{taken("p/a", "p/b")}, []*resourcev1.ResourceClaim{claimOf(exact("r", admin, all))}, "r=p/a r=p/b r=p/c"},
		"administrators, once a claim":   {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", admin), exact("s", admin))}, "r=p/a s=p/b"},
		"the same value":                 {list(three), nil, []*resourcev1.ResourceClaim{tied(claimOf(exact("r", where(is("kind", "x"))), exact("s", where(is("kind", "x")))), same("kind"))}, "r=p/a s=p/c"},
		"the same value can't be":        {list(three), nil, []*resourcev1.ResourceClaim{tied(claimOf(exact("r", count(3))), same("numa"))}, "!no combination of free devices meets all requests and constraints"},
		"the same value moves the first": {list(three), nil, []*resourcev1.ResourceClaim{tied(claimOf(exact("r", where(is("kind", "x"))), exact("s", where(is("kind", "y")))), same("numa"))}, "r=p/a s=p/b"},
		"distinct values":                {list(three), nil, []*resourcev1.ResourceClaim{tied(claimOf(exact("r", count(2))), distinct("numa"))}, "r=p/a r=p/c"},
		"distinct values, three":         {list(three), nil, []*resourcev1.ResourceClaim{tied(claimOf(exact("r", count(3))), distinct("numa"))}, "!no combination of free devices meets all requests and constraints"},
		"an attribute that is not there": {list(three), nil, []*resourcev1.ResourceClaim{tied(claimOf(exact("r")), same("colour"))}, "!no combination of free devices meets all requests and constraints"},
		"ties are between some requests": {list(three), nil, []*resourcev1.ResourceClaim{tied(claimOf(exact("r"), exact("s"), exact("u")), same("kind", "r", "u"))}, "r=p/a s=p/b u=p/c"},
		"the first alternative":          {list(three), nil, []*resourcev1.ResourceClaim{claimOf(first("r", exact("y", where(is("kind", "y"))), exact("x", count(2), where(is("kind", "x")))))}, "r/y=p/b"},
		"the second alternative":         {list(three), []*resourcev1.ResourceClaim{taken("p/b")}, []*resourcev1.ResourceClaim{claimOf(first("r", exact("y", where(is("kind", "y"))), exact("x", count(2), where(is("kind", "x")))))}, "r/x=p/a r/x=p/c"},
		"no alternative":                 {list(three), []*resourcev1.ResourceClaim{taken("p/b", "p/a")}, []*resourcev1.ResourceClaim{claimOf(first("r", exact("y", where(is("kind", "y"))), exact("x", count(2), where(is("kind", "x")))))}, "!too few free devices for request r/y; too few free devices for request r/x"},
		"a taint keeps off":              {list(slice("p", dev("a", taint("bad", resourcev1.DeviceTaintEffectNoSchedule)), dev("b"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/b"},
		"a taint that is tolerated":      {list(slice("p", dev("a", taint("bad", resourcev1.DeviceTaintEffectNoExecute)), dev("b"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", tolerates("bad")))}, "r=p/a"},
		"a taint without effect":         {list(slice("p", dev("a", taint("note", resourcev1.DeviceTaintEffectNone)))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/a"},
		"all, of which one is tainted":   {list(slice("p", dev("a", taint("bad", resourcev1.DeviceTaintEffectNoSchedule)), dev("b"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", all))}, "!request r wants all devices"},
		"two halves":                     {mig, nil, []*resourcev1.ResourceClaim{claimOf(exact("r", count(2)))}, "r=p/half-1 r=p/half-2"},
		"three are more than there is":   {mig, nil, []*resourcev1.ResourceClaim{claimOf(exact("r", count(3)))}, "!no combination of free devices meets all requests and constraints"},
		"a half is gone, the whole too":  {mig, []*resourcev1.ResourceClaim{taken("p/half-1")}, []*resourcev1.ResourceClaim{claimOf(exact("r", where(`device.attributes["`+driverName+`"].?kind.orValue("") == ""`), count(2)))}, "!too few free devices for request r"},
		"the whole is gone, no half":     {mig, []*resourcev1.ResourceClaim{taken("p/whole")}, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "!too few free devices for request r"},
		"a share":                        {list(nic), []*resourcev1.ResourceClaim{sharedBy("5")}, []*resourcev1.ResourceClaim{claimOf(exact("r", wants("bandwidth", "4")))}, "r=p/nic"}, // 4 becomes 5
		"a share too large":              {list(nic), []*resourcev1.ResourceClaim{sharedBy("5")}, []*resourcev1.ResourceClaim{claimOf(exact("r", wants("bandwidth", "6")))}, "!too few free devices for request r"},
		"two shares in one claim":        {list(nic), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", wants("bandwidth", "5")), exact("s", wants("bandwidth", "5")))}, "r=p/nic s=p/nic"},
		"the default share":              {list(nic), []*resourcev1.ResourceClaim{sharedBy("9")}, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/nic"},
		"a capacity that it has not":     {list(nic), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", wants("colour", "1")))}, "!no device matches request r"},
		"another node's":                 {list(with(slice("p", dev("a")), elsewhere("n2"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "!no device matches request r"},
		"for all nodes":                  {list(with(slice("p", dev("a")), func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.AllNodes = nil, ptr.To(true) })), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/a"},
		"for nodes with a label":         {list(with(slice("p", dev("a")), func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.NodeSelector = nil, inZone("a") })), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/a"},
		"for nodes with another label":   {list(with(slice("p", dev("a")), func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.NodeSelector = nil, inZone("b") })), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "!no device matches"},
		"each device says":               {list(with(slice("p", dev("a", func(d *resourcev1.Device) { d.NodeName = ptr.To("n2") }), dev("b", func(d *resourcev1.Device) { d.AllNodes = ptr.To(true) })), func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.PerDeviceNodeSelection = nil, ptr.To(true) })), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/b"},
		"pools by name":                  {list(slice("q", dev("a")), slice("p", dev("b"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/b"},
		"those that bind at once first":  {list(slice("p", dev("a", func(d *resourcev1.Device) { d.BindingConditions = []string{"ready"} })), slice("q", dev("b"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=q/b"},
		"a pool with a slice missing":    {list(with(slice("p", dev("a")), func(s *resourcev1.ResourceSliceSpec) { s.Pool.ResourceSliceCount = 2 }), slice("q", dev("b"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=q/b"},
		"all with a slice missing":       {list(with(slice("p", dev("a")), func(s *resourcev1.ResourceSliceSpec) { s.Pool.ResourceSliceCount = 2 })), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", all))}, "!resource pool dra.example.com/p is currently being updated"},
		"two devices of one name":        {list(slice("p", dev("a"), dev("a"))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", all))}, "!invalid: duplicate device name a"},
		"counters that there are not":    {list(slice("p", dev("a", draws("gpu", "memory", "1")))), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", all))}, "!invalid: counter set gpu not found"},
		"the newest generation":          {list(slice("p", dev("old")), with(func() *resourcev1.ResourceSlice { s := slice("p", dev("new")); s.Name = "p2"; return s }(), func(s *resourcev1.ResourceSliceSpec) { s.Pool.Generation = 2 })), nil, []*resourcev1.ResourceClaim{claimOf(exact("r"))}, "r=p/new"},
		"a class that is not there":      {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", func(e *resourcev1.ExactDeviceRequest) { e.DeviceClassName = "no" }))}, "!request r: device class no does not exist"},
		"an expression that fails":       {list(three), nil, []*resourcev1.ResourceClaim{claimOf(exact("r", where(`device.attributes["dra.example.com"].nothing == "x"`)))}, "!error: claim c, request r: selector #0: device dra.example.com/p/a: CEL runtime error"},
	} {
		got, why, _ := shop(c.slices, c.taken...).allocate(t, testNode(), c.claims...)
		if refusal, refused := strings.CutPrefix(c.want, "!"); refused && !strings.Contains(why, refusal) || !refused && got != c.want {
			t.Errorf("%s: got %q, refused with %q; want %q", name, got, why, c.want)
		}
	}
}

// What a claim gets says to drivers and to other nodes what they need to know.
func TestResult(t *testing.T) {
	opaque := func(s string) resourcev1.DeviceConfiguration {
		return resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: s}}
	}
	b := shop(list(with(slice("p", dev("a", sharing, room("slots", "4")), dev("b", attr("kind", "x"))), func(s *resourcev1.ResourceSliceSpec) { s.NodeName, s.NodeSelector = nil, inZone("a") })))
	k := class("configured")
	k.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque("class")}}
	b.SetClass("configured", k)
	use := func(e *resourcev1.ExactDeviceRequest) { e.DeviceClassName = "configured" }
	c := claimOf(exact("r", use, wants("slots", "3")), first("s", exact("one", use, where(is("kind", "x"))), exact("two")))
	c.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: opaque("everything")}, {Requests: []string{"s/one"}, DeviceConfiguration: opaque("chosen")},
		{Requests: []string{"s/two"}, DeviceConfiguration: opaque("not chosen")}}
	// The selector of s/one fails on devices without the attribute, so they are told apart by a has().
	c.Spec.Devices.Requests[1].FirstAvailable[0].Selectors = celOf(`"kind" in device.attributes["` + driverName + `"]`)
	got, why, out := b.allocate(t, testNode(), c)
	if got != "r=p/a s/one=p/b" {
		t.Fatalf("got %q, %s", got, why)
	}
	a := out[0]
	if r := a.Devices.Results[0]; r.ShareID == nil || r.ConsumedCapacity["slots"] != resource.MustParse("3") {
		t.Errorf("the share is %+v", r)
	}
	want := []resourcev1.DeviceAllocationConfiguration{
		{Source: resourcev1.AllocationConfigSourceClass, Requests: []string{"r", "s/one"}, DeviceConfiguration: opaque("class")},
		{Source: resourcev1.AllocationConfigSourceClaim, DeviceConfiguration: opaque("everything")},
		{Source: resourcev1.AllocationConfigSourceClaim, Requests: []string{"s/one"}, DeviceConfiguration: opaque("chosen")},
	}
	if diff := cmp.Diff(want, a.Devices.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(inZone("a"), a.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
}

// A search with more combinations than can be tried ends, and devices that look the same do not make it one.
func TestSearchIsBounded(t *testing.T) {
	s := slice("p")
	for i := range 60 {
		s.Spec.Devices = append(s.Spec.Devices, dev("d"+string(rune('a'+i/26))+string(rune('a'+i%26)), attr("kind", "x")))
	}
	b := shop(list(s))
	hopeless := claimOf(exact("r", count(10)), exact("s", count(10)), exact("u", count(10), where(is("kind", "x"))))
	hopeless = tied(hopeless, same("kind"), distinct("kind", "u"))
	d, _ := newDemand(hopeless, b.class)
	picks, _, steps, err := b.stock.allocate(testNode(), []*demand{d}, nil)
	if picks != nil || err != nil || steps > 20_000 {
		t.Errorf("picks %v, error %v, %d steps for devices that are all alike", picks, err, steps)
	}
	for i := range s.Spec.Devices { // now no two are
		one := &s.Spec.Devices[i]
		attr("id", one.Name)(one)
	}
	b = shop(list(s))
	hopeless = tied(hopeless, distinct("id"), distinct("kind", "u"))
	d, _ = newDemand(hopeless, b.class)
	if _, _, _, err = b.stock.allocate(testNode(), []*demand{d}, nil); err != errTooLong {
		t.Errorf("error %v, want %v", err, errTooLong)
	}
}
