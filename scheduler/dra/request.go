package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// request is one request of a claim, or one alternative of a prioritized list.
type request struct {
	name        string // as results and configurations refer to it: "gpu", or "gpu/large"
	base        string // the same without the alternative
	class       *resourcev1.DeviceClass
	selectors   []string
	from        []string // where each selector stands, for errors
	all         bool
	count       int
	admin       bool
	tolerations []resourcev1.DeviceToleration
	capacity    *resourcev1.CapacityRequirements
	rank        int // among the alternatives
}

// demand is a claim that is to get devices.
type demand struct {
	claim       *resourcev1.ResourceClaim
	requests    [][]*request // alternatives, the most wanted first
	constraints []*resourcev1.DeviceConstraint
	least       int // devices
}

// newDemand reads a claim; refusal says why it can't be met anywhere.
func newDemand(claim *resourcev1.ResourceClaim, class func(name string) (*resourcev1.DeviceClass, bool)) (d *demand, refusal string) {
	d = &demand{claim: claim}
	for i := range claim.Spec.Devices.Constraints {
		c := &claim.Spec.Devices.Constraints[i]
		if _, known := newConstraint(c); !known {
			return nil, fmt.Sprintf("claim %s, constraint #%d: empty constraint (unsupported constraint type?)", claim.Name, i)
		}
		d.constraints = append(d.constraints, c)
	}
	for i := range claim.Spec.Devices.Requests {
		alternatives, why := alternativesOf(&claim.Spec.Devices.Requests[i], claim.Name, class)
		if why != "" {
			return nil, why
		}
		d.requests = append(d.requests, alternatives)
		least := alternatives[0].least()
		for _, r := range alternatives {
			least = min(least, r.least())
		}
		if d.least += least; d.least > resourcev1.AllocationResultsMaxSize {
			return nil, fmt.Sprintf("claim %s, request %s: the claim asks for more than %d devices, which is the most that one claim can get", claim.Name, alternatives[0].base, resourcev1.AllocationResultsMaxSize)
		}
	}
	return d, ""
}

// least is how many devices a request takes at least.
func (r *request) least() int {
	if r.all {
		return 1
	}
	return r.count
}

func alternativesOf(q *resourcev1.DeviceRequest, claim string, class func(string) (*resourcev1.DeviceClass, bool)) ([]*request, string) {
	var out []*request
	if e := q.Exactly; e != nil {
		r := &request{name: q.Name, base: q.Name, admin: ptr.Deref(e.AdminAccess, false), tolerations: e.Tolerations, capacity: e.Capacity}
		if why := r.fill(claim, e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, class); why != "" {
			return nil, why
		}
		return append(out, r), ""
	}
	for i := range q.FirstAvailable {
		s := &q.FirstAvailable[i]
		r := &request{name: resourceclaim.CreateSubRequestRef(q.Name, s.Name), base: q.Name, tolerations: s.Tolerations, capacity: s.Capacity, rank: i}
		if why := r.fill(claim, s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, class); why != "" {
			return nil, why
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Sprintf("resource claim %s, request %s: unknown request type", claim, q.Name)
	}
	return out, ""
}

func (r *request) fill(claim, className string, selectors []resourcev1.DeviceSelector, mode resourcev1.DeviceAllocationMode, count int64, class func(string) (*resourcev1.DeviceClass, bool)) string {
	var ok bool
	if r.class, ok = class(className); !ok {
		return fmt.Sprintf("request %s: device class %s does not exist", r.name, className)
	}
	why := r.take(r.class.Spec.Selectors, "class "+className)
	if why == "" {
		why = r.take(selectors, "claim "+claim+", request "+r.name)
	}
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		r.count = int(min(count, resourcev1.AllocationResultsMaxSize+1)) // more is refused just the same
	case resourcev1.DeviceAllocationModeAll:
		r.all = true
	default:
		return fmt.Sprintf("claim %s, request %s: unsupported count mode %s", claim, r.name, mode)
	}
	return why
}

func (r *request) take(list []resourcev1.DeviceSelector, from string) string {
	for i, s := range list {
		if s.CEL == nil {
			return fmt.Sprintf("%s, selector #%d: CEL expression empty (unsupported selector type?)", from, i)
		}
		r.selectors = append(r.selectors, s.CEL.Expression)
		r.from = append(r.from, fmt.Sprintf("%s: selector #%d", from, i))
	}
	return ""
}

// tolerates tells whether a request puts up with all taints of a device that keep others from it.
func (r *request) tolerates(d *resourcev1.Device) bool {
	for _, t := range d.Taints {
		if t.Effect != resourcev1.DeviceTaintEffectNoSchedule && t.Effect != resourcev1.DeviceTaintEffectNoExecute {
			continue
		}
		ok := false
		for _, tolerated := range r.tolerations {
			ok = ok || resourceclaim.ToleratesTaint(tolerated, t)
		}
		if !ok {
			return false
		}
	}
	return true
}
