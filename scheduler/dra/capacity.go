package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// consumption is what a request takes of each capacity of a device. ok is false if the device has not what is asked for, or may not give it out in that size.
func consumption(asked *resourcev1.CapacityRequirements, d *resourcev1.Device) (_ amounts, ok bool) {
	var want map[resourcev1.QualifiedName]resource.Quantity
	if asked != nil {
		want = asked.Requests
	}
	for name := range want {
		if _, has := d.Capacity[name]; !has {
			return nil, false
		}
	}
	out := amounts{}
	for name, c := range d.Capacity {
		q, some := want[name]
		take := portion(q, some, &c)
		if !allowed(take, c.RequestPolicy) || take.Cmp(c.Value) > 0 {
			return nil, false
		}
		out[name] = take
	}
	return out, true
}

// portion rounds what is asked for up to what the policy gives out. What is not asked for is the policy's default, or all there is.
func portion(want resource.Quantity, asked bool, c *resourcev1.DeviceCapacity) resource.Quantity {
	p := c.RequestPolicy
	switch {
	case !asked && p != nil && p.Default != nil:
		return p.Default.DeepCopy()
	case !asked:
		return c.Value.DeepCopy()
	case p == nil:
		return want.DeepCopy()
	case p.ValidRange != nil && p.ValidRange.Min != nil:
		return stepUp(want, p.ValidRange)
	}
	for _, v := range p.ValidValues { // the API keeps them sorted
		if want.Cmp(v) <= 0 {
			return v.DeepCopy()
		}
	}
	return want.DeepCopy()
}

func stepUp(want resource.Quantity, r *resourcev1.CapacityRequestPolicyRange) resource.Quantity {
	if want.Cmp(*r.Min) < 0 {
		return r.Min.DeepCopy()
	}
	if r.Step == nil || r.Step.Value() <= 0 {
		return want.DeepCopy()
	}
	step := r.Step.Value()
	over := want.Value() - r.Min.Value()
	steps := over / step
	if over%step != 0 {
		steps++
	}
	return *resource.NewQuantity(r.Min.Value()+steps*step, resource.BinarySI)
}

func allowed(q resource.Quantity, p *resourcev1.CapacityRequestPolicy) bool {
	switch {
	case p == nil || p.Default != nil && q.Cmp(*p.Default) == 0:
		return true
	case p.ValidRange != nil:
		r := p.ValidRange
		if r.Max != nil && q.Cmp(*r.Max) > 0 {
			return false
		}
		return r.Step == nil || r.Min == nil || r.Step.Value() <= 0 || (q.Value()-r.Min.Value())%r.Step.Value() == 0
	case len(p.ValidValues) > 0:
		for _, v := range p.ValidValues {
			if q.Cmp(v) == 0 {
				return true
			}
		}
		return false
	}
	return true
}

// fits tells whether a device has room for what is to be taken beside what is taken already.
func fits(d *resourcev1.Device, take amounts, taken ...amounts) bool {
	for name, q := range take {
		sum := q.DeepCopy()
		for _, t := range taken {
			if more, ok := t[name]; ok {
				sum.Add(more)
			}
		}
		if sum.Cmp(d.Capacity[name].Value) > 0 {
			return false
		}
	}
	return true
}
