package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
)

// countResources are measured in whole objects; measuredResources in amounts. Together they are the names that need no domain.
var (
	countResources = sets.New(corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers)
	measuredResources = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsCPU,
		corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceRequestsStorage, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage)
	containerResources = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage)
)

func isHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func isQuotaHugePage(name corev1.ResourceName) bool {
	return isHugePage(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// isNative: resources without a domain, and those of kubernetes.io, are Kubernetes' own.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtended: a device or other countable thing of a domain.
func isExtended(name corev1.ResourceName) bool {
	const prefix = "requests."
	return !isNative(name) && !strings.HasPrefix(string(name), prefix) && len(validation.IsQualifiedName(prefix+string(name))) == 0
}

// overcommitAllowed: limits may exceed requests only for native resources other than huge pages.
func overcommitAllowed(name corev1.ResourceName) bool {
	return isNative(name) && !isHugePage(name)
}

func checkResourceName(p *problems, name corev1.ResourceName, path *field.Path) bool {
	before := len(p.list)
	p.qualified(path, string(name))
	if len(p.list) == before && !strings.Contains(string(name), "/") &&
		!countResources.Has(name) && !measuredResources.Has(name) && name != corev1.ResourceStorage && !isQuotaHugePage(name) {
		p.invalid(path, name, "must be a standard resource type or fully qualified")
	}
	return len(p.list) == before
}

// CheckContainerResourceName checks the name of something that a container can ask for.
func CheckContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	var p problems
	checkContainerResourceName(&p, name, path)
	return p.list
}

func checkContainerResourceName(p *problems, name corev1.ResourceName, path *field.Path) {
	checkResourceName(p, name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if !containerResources.Has(name) && !isHugePage(name) {
			p.invalid(path, name, "must be a standard resource for containers")
		}
	case !isNative(name) && !isExtended(name):
		p.invalid(path, name, "doesn't follow extended resource name standard")
	}
}

func checkPodResourceName(p *problems, name corev1.ResourceName, path *field.Path) {
	if checkResourceName(p, name, path) && !resourcehelper.IsSupportedPodLevelResource(name) {
		p.add(field.NotSupported(path, name, sets.List(resourcehelper.SupportedPodLevelResources())))
	}
}

// checkAmount checks the amount of a resource: not negative, whole for what is counted.
func checkAmount(p *problems, name corev1.ResourceName, amount resource.Quantity, path *field.Path) {
	if amount.Sign() < 0 {
		p.invalid(path, amount.String(), mustNotBeNegative)
	}
	if (countResources.Has(name) || isExtended(name)) && amount.MilliValue()%1000 != 0 {
		p.invalid(path, amount, "must be an integer")
	}
}

func checkHugePageAmount(p *problems, name corev1.ResourceName, amount resource.Quantity, path *field.Path) {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 || amount.Value()%size.Value() != 0 {
		p.invalid(path, amount.String(), fmt.Sprintf("%s is not positive integer multiple of %s", amount.String(), name))
	}
}

func (c *podCheck) checkResources(r *corev1.ResourceRequirements, checkName func(*problems, corev1.ResourceName, *field.Path), path *field.Path) {
	var compute, huge bool
	one := func(name corev1.ResourceName, amount resource.Quantity, at *field.Path) {
		checkName(&c.problems, name, at)
		checkAmount(&c.problems, name, amount, at)
		if isHugePage(name) {
			huge = true
			checkHugePageAmount(&c.problems, name, amount, at)
		}
		compute = compute || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	limits, requests := path.Child("limits"), path.Child("requests")
	for name, amount := range r.Limits {
		one(name, amount, limits.Key(string(name)))
	}
	for name, amount := range r.Requests {
		one(name, amount, requests.Key(string(name)))
		limit, limited := r.Limits[name]
		switch {
		case !limited && !overcommitAllowed(name):
			c.required(limits, "Limit must be set for non overcommitable resources")
		case limited && !overcommitAllowed(name) && amount.Cmp(limit) != 0:
			c.invalid(requests, amount.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case limited && amount.Cmp(limit) > 0:
			c.invalid(requests, amount.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
	}
	if huge && !compute {
		c.forbidden(path, "HugePages require cpu or memory")
	}
	c.checkClaimRefs(r.Claims, path.Child("claims"))
}

// checkClaimRefs checks which of the pod's resource claims a container uses: a whole claim once, or each of its requests once.
func (c *podCheck) checkClaimRefs(claims []corev1.ResourceClaim, path *field.Path) {
	whole, parts := sets.New[string](), map[string]sets.Set[string]{}
	for i, claim := range claims {
		at := path.Index(i)
		if claim.Name == "" {
			c.required(at, "")
			continue
		}
		used := parts[claim.Name]
		switch {
		case whole.Has(claim.Name):
			c.add(field.Duplicate(at, claim.Name))
		case claim.Request == "":
			for range used {
				c.add(field.Duplicate(at, claim.Name))
			}
			whole.Insert(claim.Name)
		default:
			c.label(at.Child("request"), claim.Request)
			if used == nil {
				used = sets.New[string]()
				parts[claim.Name] = used
			}
			if used.Has(claim.Request) {
				c.add(field.Duplicate(at, claim.Name+"/"+claim.Request))
			}
			used.Insert(claim.Request)
		}
		if !c.claims.Has(claim.Name) {
			missing := field.NotFound(at, claim.Name)
			missing.Detail = "must be one of the names in pod.spec.resourceClaims which is empty"
			if len(c.claims) > 0 {
				missing.Detail = "must be one of the names in pod.spec.resourceClaims: " + strings.Join(sets.List(c.claims), ", ")
			}
			c.add(missing)
		}
	}
}

// checkPodResources checks the resources of the pod as a whole against those of its containers (KEP-2837).
func (c *podCheck) checkPodResources(path *field.Path) {
	r, at := c.spec.Resources, path.Child("resources")
	if r == nil {
		return
	}
	if c.spec.OS != nil && c.spec.OS.Name == corev1.Windows {
		c.forbidden(at, "may not be set for a windows pod")
		return
	}
	if r.Claims != nil {
		c.forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level")
	}
	c.checkResources(r, checkPodResourceName, at)
	pod := &corev1.Pod{Spec: *c.spec}
	for name, sum := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if own, there := r.Requests[name]; there && sum.Cmp(own) > 0 {
			c.invalid(at.Child("requests").Key(string(name)), own.String(), fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String()))
		}
	}
	for name, sum := range resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if own, there := r.Limits[name]; there && isHugePage(name) && sum.Cmp(own) > 0 {
			c.invalid(at.Child("limits").Key(string(name)), own.String(), fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String()))
		}
	}
	for i, container := range c.spec.Containers {
		for name, limit := range container.Resources.Limits {
			if own, there := r.Limits[name]; there && limit.Cmp(own) > 0 {
				c.invalid(path.Child("containers").Index(i).Child("resources", "limits").Key(string(name)), limit.String(), fmt.Sprintf("must be less than or equal to pod limits of %s", own.String()))
			}
		}
	}
}
