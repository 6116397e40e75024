package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// preparePodStatus keeps what a writer of the status must not lose: the class, and which generation each condition was about.
func preparePodStatus(pod, old *corev1.Pod) {
	defaultPodStatus(&pod.Status)
	dropDisabledStatus(&pod.Status, &old.Status)
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = old.Status.QOSClass
	}
	if pod.Status.ObservedGeneration == 0 {
		pod.Status.ObservedGeneration = old.Status.ObservedGeneration
	}
	pod.OwnerReferences = old.OwnerReferences
	before := map[corev1.PodConditionType][]int64{}
	for _, c := range old.Status.Conditions {
		before[c.Type] = append(before[c.Type], c.ObservedGeneration)
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		list := before[c.Type]
		if len(list) == 0 {
			continue
		}
		before[c.Type] = list[1:]
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = list[0]
		}
	}
}

func validatePodStatus(pod, old *corev1.Pod) field.ErrorList {
	var p problems
	path := field.NewPath("status")
	now, was := &pod.Status, &old.Status
	p.add(validateAnnotationUpdate(pod, old)...)
	checkPodConditions(&p, now.Conditions, path.Child("conditions"))
	if pod.Spec.NodeName != old.Spec.NodeName {
		p.forbidden(path.Child("nodeName"), "may not be changed directly")
	}
	if now.NominatedNodeName != was.NominatedNodeName && now.NominatedNodeName != "" {
		p.subdomain(path.Child("nominatedNodeName"), now.NominatedNodeName)
		if old.Spec.NodeName != "" {
			p.forbidden(path.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node")
		}
	}
	if now.ObservedGeneration < 0 {
		p.invalid(path.Child("observedGeneration"), now.ObservedGeneration, "must be a non-negative integer")
	}
	if now.QOSClass != was.QOSClass {
		p.invalid(path.Child("qosClass"), now.QOSClass, isImmutable)
	}
	checkTransitions(&p, now.ContainerStatuses, was.ContainerStatuses, old.Spec.Containers, &old.Spec, path.Child("containerStatuses"))
	checkTransitions(&p, now.InitContainerStatuses, was.InitContainerStatuses, old.Spec.InitContainers, &old.Spec, path.Child("initContainerStatuses"))
	checkEphemeralTransitions(&p, now.EphemeralContainerStatuses, was.EphemeralContainerStatuses, path.Child("ephemeralContainerStatuses"))
	checkClaimStatuses(&p, now, &pod.Spec, path)
	checkPodAddresses(&p, now, was, path)
	checkContainerStatuses(&p, now.ContainerStatuses, pod.Spec.Containers, &pod.Spec, path.Child("containerStatuses"))
	checkContainerStatuses(&p, now.InitContainerStatuses, pod.Spec.InitContainers, &pod.Spec, path.Child("initContainerStatuses"))
	checkContainerStatuses(&p, now.EphemeralContainerStatuses, nil, &pod.Spec, path.Child("ephemeralContainerStatuses"))
	for i, s := range now.EphemeralContainerStatuses {
		if len(s.AllocatedResourcesStatus) > 0 {
			p.forbidden(path.Child("ephemeralContainerStatuses").Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status")
		}
	}
	return p.list
}

func checkPodConditions(p *problems, conditions []corev1.PodCondition, path *field.Path) {
	for i, c := range conditions {
		if c.ObservedGeneration < 0 {
			p.invalid(path.Index(i).Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer")
		}
		p.qualified(path.Index(i).Child("Type"), string(c.Type))
	}
}

// checkTransitions: what ended and will not be restarted must not come back to life.
func checkTransitions(p *problems, now, was []corev1.ContainerStatus, containers []corev1.Container, spec *corev1.PodSpec, path *field.Path) {
	if restartsAll(spec) {
		return
	}
	for i, old := range was {
		if old.State.Terminated == nil {
			continue
		}
		n := slices.IndexFunc(now, func(s corev1.ContainerStatus) bool { return s.Name == old.Name })
		if n < 0 || now[n].State.Terminated != nil {
			continue
		}
		c := containerNamed(containers, old.Name)
		if c == nil || !RestartsAfter(spec, c, old.State.Terminated.ExitCode) {
			p.forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state")
		}
	}
}

func checkEphemeralTransitions(p *problems, now, was []corev1.ContainerStatus, path *field.Path) {
	for i, old := range was {
		alive := slices.ContainsFunc(now, func(s corev1.ContainerStatus) bool { return s.Name == old.Name && s.State.Terminated == nil })
		if old.State.Terminated != nil && alive {
			p.forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state")
		}
	}
}

// restartsAll: one container's rule may restart every container of the pod.
func restartsAll(spec *corev1.PodSpec) bool {
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}) {
			return true
		}
	}
	return false
}

// RestartsAfter says whether a container that ended with a code is started again: by the first of its rules that matches, else by its own
// policy, else by the pod's.
func RestartsAfter(spec *corev1.PodSpec, c *corev1.Container, code int32) bool {
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, code)
		if in == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
	}
	policy := string(spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
	}
	switch policy {
	case string(corev1.RestartPolicyAlways):
		return true
	case string(corev1.RestartPolicyOnFailure):
		return code != 0
	}
	return false
}

func checkPodAddresses(p *problems, s, was *corev1.PodStatus, path *field.Path) {
	pods, hosts := make([]string, len(s.PodIPs)), make([]string, len(s.HostIPs))
	var podsBefore, hostsBefore []string
	for _, ip := range was.PodIPs {
		podsBefore = append(podsBefore, ip.IP)
	}
	for _, ip := range was.HostIPs {
		hostsBefore = append(hostsBefore, ip.IP)
	}
	for i, ip := range s.PodIPs {
		pods[i] = ip.IP
		p.ip(path.Child("podIPs").Index(i), ip.IP, podsBefore...)
	}
	for i, ip := range s.HostIPs {
		hosts[i] = ip.IP
		p.ip(path.Child("hostIPs").Index(i), ip.IP, hostsBefore...)
	}
	if len(hosts) > 0 && s.HostIP != hosts[0] {
		p.invalid(path.Child("hostIPs").Index(0).Child("ip"), hosts[0], "must be equal to `hostIP`")
	}
	const why = "may specify no more than one IP for each IP family"
	if dual, err := netutils.IsDualStackIPStrings(pods); len(pods) > 1 && (err != nil || !dual || len(pods) > 2) {
		p.invalid(path.Child("podIPs"), pods, why)
	}
	if dual, err := netutils.IsDualStackIPStrings(hosts); len(hosts) > 1 && (err != nil || !dual || len(hosts) > 2) {
		p.invalid(path.Child("hostIPs"), hosts, why)
	}
}

func checkContainerStatuses(p *problems, list []corev1.ContainerStatus, containers []corev1.Container, spec *corev1.PodSpec, path *field.Path) {
	windows := spec.OS != nil && spec.OS.Name == corev1.Windows
	for i, s := range list {
		if s.User != nil && s.User.Linux != nil {
			at, user := path.Index(i).Child("user", "linux"), s.User.Linux
			if windows {
				p.forbidden(at, "cannot be set for a windows pod")
				continue
			}
			p.each(at.Child("uid"), user.UID, validation.IsValidUserID(user.UID))
			p.each(at.Child("gid"), user.GID, validation.IsValidGroupID(user.GID))
			for j, id := range user.SupplementalGroups {
				p.each(at.Child("supplementalGroups").Index(j), id, validation.IsValidGroupID(id))
			}
		}
		for j, m := range s.VolumeMounts {
			if m.VolumeStatus != nil && m.VolumeStatus.Image != nil {
				at := path.Index(i).Child("volumeMounts").Index(j).Child("volumeStatus", "image", "imageRef")
				if ref := m.VolumeStatus.Image.ImageRef; p.needs(at, ref) && len(ref) > 256 {
					p.add(field.TooLong(at, "", 256))
				}
			}
		}
		for j, r := range s.AllocatedResourcesStatus {
			checkResourceHealth(p, &r, containerNamed(containers, s.Name), path.Index(i).Child("allocatedResourcesStatus").Index(j))
		}
	}
}

func checkResourceHealth(p *problems, r *corev1.ResourceStatus, c *corev1.Container, path *field.Path) {
	if c != nil {
		_, requested := c.Resources.Requests[r.Name]
		switch {
		case strings.HasPrefix(string(r.Name), "claim:"):
			if !slices.ContainsFunc(c.Resources.Claims, func(claim corev1.ResourceClaim) bool {
				name := "claim:" + claim.Name
				if claim.Request != "" {
					name += "/" + claim.Request
				}
				return name == string(r.Name)
			}) {
				p.invalid(path.Child("name"), r.Name, "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")
			}
		case !requested:
			p.invalid(path.Child("name"), r.Name, "must match one of the container's resource requests")
		}
	}
	seen := sets.New[corev1.ResourceID]()
	for i, h := range r.Resources {
		at := path.Child("resources").Index(i)
		oneOf(p, at.Child("health"), h.Health, corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)
		if seen.Has(h.ResourceID) {
			p.add(field.Duplicate(at.Child("resourceID"), h.ResourceID))
		}
		seen.Insert(h.ResourceID)
	}
}

func checkClaimStatuses(p *problems, s *corev1.PodStatus, spec *corev1.PodSpec, path *field.Path) {
	seen := sets.New[string]()
	for i, c := range s.ResourceClaimStatuses {
		at := path.Child("resourceClaimStatuses").Index(i)
		if !slices.ContainsFunc(spec.ResourceClaims, func(pc corev1.PodResourceClaim) bool { return pc.Name == c.Name }) {
			p.invalid(at.Child("name"), c.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		if seen.Has(c.Name) {
			p.add(field.Duplicate(at.Child("name"), c.Name))
		}
		seen.Insert(c.Name)
		if c.ResourceClaimName != nil {
			p.subdomain(at.Child("resourceClaimName"), *c.ResourceClaimName)
		}
	}
	for i, n := range s.NodeAllocatableResourceClaimStatuses {
		at := path.Child("nodeAllocatableResourceClaimStatuses").Index(i)
		p.needs(at.Child("resourceClaimName"), n.ResourceClaimName)
		if len(n.Containers) == 0 {
			p.required(at.Child("containers"), "must not be empty")
		}
		if len(n.Resources) == 0 {
			p.required(at.Child("resources"), "must not be empty")
		}
		for name, amount := range n.Resources {
			if !isNative(name) {
				p.invalid(at.Child("resources").Key(string(name)), name, "must be a node allocatable resource name")
			}
			if amount.Cmp(resource.Quantity{}) < 0 {
				p.invalid(at.Child("resources").Key(string(name)), amount.String(), "must be non-negative")
			}
		}
	}
	e := s.ExtendedResourceClaimStatus
	if e == nil {
		return
	}
	at := path.Child("extendedResourceClaimStatus")
	if len(e.RequestMappings) == 0 {
		p.required(at.Child("requestMappings"), "at least one request mapping is required")
	}
	mapped := sets.New[corev1.ContainerExtendedResourceRequest]()
	for i, m := range e.RequestMappings {
		at := at.Child("requestMappings").Index(i)
		if mapped.Has(m) {
			p.add(field.Duplicate(at, m.ContainerName+"/"+m.ResourceName+"/"+m.RequestName))
		}
		mapped.Insert(m)
		c := containerNamed(slices.Concat(spec.InitContainers, spec.Containers), m.ContainerName)
		if c == nil {
			p.invalid(at.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name")
		} else if _, there := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !there {
			p.invalid(at.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
		}
		p.label(at.Child("requestName"), m.RequestName)
	}
	p.neededSubdomain(at.Child("resourceClaimName"), e.ResourceClaimName)
}
