package dra

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const driverName = "dra.example.com"

// dev makes a device; attributes are given as name, value pairs, where a value may be a string, int, bool or *string for a version.
func dev(name string, change ...func(*resourcev1.Device)) resourcev1.Device {
	d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}}
	for _, f := range change {
		f(&d)
	}
	return d
}

func attr(name, value string) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.Attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{StringValue: &value}
	}
}

func room(name, value string, policy ...*resourcev1.CapacityRequestPolicy) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		c := resourcev1.DeviceCapacity{Value: resource.MustParse(value)}
		if len(policy) > 0 {
			c.RequestPolicy = policy[0]
		}
		d.Capacity[resourcev1.QualifiedName(name)] = c
	}
}

func sharing(d *resourcev1.Device) { d.AllowMultipleAllocations = ptr.To(true) }

func taint(key string, effect resourcev1.DeviceTaintEffect) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.Taints = append(d.Taints, resourcev1.DeviceTaint{Key: key, Effect: effect})
	}
}

func draws(set, counter, amount string) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.ConsumesCounters = append(d.ConsumesCounters, resourcev1.DeviceCounterConsumption{CounterSet: set, Counters: map[string]resourcev1.Counter{counter: {Value: resource.MustParse(amount)}}})
	}
}

// slice is a pool of one slice on node n1.
func slice(pool string, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: resourcev1.ResourceSliceSpec{Driver: driverName, NodeName: ptr.To("n1"),
		Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}, Devices: devices}}
}

// counterSlice holds a pool's counters, as "set/counter=amount".
func counterSlice(pool string, amounts ...string) *resourcev1.ResourceSlice {
	s := slice(pool)
	s.Name = pool + "-counters"
	for _, a := range amounts {
		name, amount, _ := strings.Cut(a, "=")
		set, counter, _ := strings.Cut(name, "/")
		s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourcev1.CounterSet{Name: set, Counters: map[string]resourcev1.Counter{counter: {Value: resource.MustParse(amount)}}})
	}
	return s
}

// parts makes slices the parts of one generation of one pool.
func parts(list ...*resourcev1.ResourceSlice) []*resourcev1.ResourceSlice {
	for _, s := range list {
		s.Spec.Pool.ResourceSliceCount = int64(len(list))
	}
	return list
}

func class(name string, selectors ...string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selectors = celOf(selectors...)
	return c
}

func celOf(expressions ...string) []resourcev1.DeviceSelector {
	var out []resourcev1.DeviceSelector
	for _, e := range expressions {
		out = append(out, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return out
}

// is selects devices by an attribute.
func is(name, value string) string {
	return fmt.Sprintf("device.attributes[%q].%s == %q", driverName, name, value)
}

func exact(name string, change ...func(*resourcev1.ExactDeviceRequest)) resourcev1.DeviceRequest {
	e := &resourcev1.ExactDeviceRequest{DeviceClassName: "any", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	for _, f := range change {
		f(e)
	}
	return resourcev1.DeviceRequest{Name: name, Exactly: e}
}

func count(n int64) func(*resourcev1.ExactDeviceRequest) {
	return func(e *resourcev1.ExactDeviceRequest) { e.Count = n }
}

func all(e *resourcev1.ExactDeviceRequest) {
	e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
}

func admin(e *resourcev1.ExactDeviceRequest) { e.AdminAccess = ptr.To(true) }

func where(expressions ...string) func(*resourcev1.ExactDeviceRequest) {
	return func(e *resourcev1.ExactDeviceRequest) { e.Selectors = celOf(expressions...) }
}

func wants(name, amount string) func(*resourcev1.ExactDeviceRequest) {
	return func(e *resourcev1.ExactDeviceRequest) {
		e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{resourcev1.QualifiedName(name): resource.MustParse(amount)}}
	}
}

func tolerates(key string) func(*resourcev1.ExactDeviceRequest) {
	return func(e *resourcev1.ExactDeviceRequest) {
		e.Tolerations = append(e.Tolerations, resourcev1.DeviceToleration{Key: key, Operator: resourcev1.DeviceTolerationOpExists})
	}
}

// first makes a prioritized list of exact requests.
func first(name string, alternatives ...resourcev1.DeviceRequest) resourcev1.DeviceRequest {
	r := resourcev1.DeviceRequest{Name: name}
	for _, a := range alternatives {
		r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Name: a.Name, DeviceClassName: a.Exactly.DeviceClassName, Selectors: a.Exactly.Selectors, AllocationMode: a.Exactly.AllocationMode,
			Count: a.Exactly.Count, Tolerations: a.Exactly.Tolerations, Capacity: a.Exactly.Capacity})
	}
	return r
}

func claimOf(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c"}}
	c.Spec.Devices.Requests = requests
	return c
}

func same(attribute string, requests ...string) resourcev1.DeviceConstraint {
	return resourcev1.DeviceConstraint{MatchAttribute: ptr.To(resourcev1.FullyQualifiedName(driverName + "/" + attribute)), Requests: requests}
}

func distinct(attribute string, requests ...string) resourcev1.DeviceConstraint {
	return resourcev1.DeviceConstraint{DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(driverName + "/" + attribute)), Requests: requests}
}

func tied(c *resourcev1.ResourceClaim, constraints ...resourcev1.DeviceConstraint) *resourcev1.ResourceClaim {
	c.Spec.Devices.Constraints = constraints
	return c
}

// taken is a claim that has devices, given as "pool/device".
func taken(devices ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "t-" + strings.Join(devices, ""), UID: types.UID(strings.Join(devices, ""))}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range devices {
		pool, name, _ := strings.Cut(d, "/")
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: driverName, Pool: pool, Device: name})
	}
	return c
}

func testNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}}
}

// shop is a book with slices and claims that have devices; the class "any" has no selectors.
func shop(slices []*resourcev1.ResourceSlice, claims ...*resourcev1.ResourceClaim) *Book {
	b := NewBook(Config{})
	b.SetClass("any", class("any"))
	for _, s := range slices {
		b.SetSlice(s.Name, s)
	}
	for _, c := range claims {
		b.SetClaim(nil, c)
	}
	return b
}

// allocate gives claims devices on a node and writes what they got: "request=pool/device" of each claim in turn; why is the refusal.
func (b *Book) allocate(t testing.TB, node *corev1.Node, claims ...*resourcev1.ResourceClaim) (got string, why string, out []*resourcev1.AllocationResult) {
	t.Helper()
	var demands []*demand
	for _, c := range claims {
		d, refusal := newDemand(c, b.class)
		if refusal != "" {
			return "", refusal, nil
		}
		demands = append(demands, d)
	}
	picks, why, _, err := b.stock.allocate(node, demands, nil)
	if err != nil {
		return "", "error: " + err.Error(), nil
	}
	if picks == nil {
		return "", why, nil
	}
	var words []string
	for i, d := range demands {
		a := d.result(node, picks[i])
		out = append(out, a)
		for _, r := range a.Devices.Results {
			words = append(words, r.Request+"="+r.Pool+"/"+r.Device)
		}
	}
	return strings.Join(words, " "), "", out
}
