package core

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// validateService checks a service before the cluster hands out its addresses and ports: those may be missing here.
func validateService(s, old *corev1.Service) field.ErrorList {
	var p problems
	path := field.NewPath("spec")
	if old != nil {
		checkServiceUpdate(&p, s, old, path)
	}
	mode, hints := corev1.AnnotationTopologyMode, corev1.DeprecatedAnnotationTopologyAwareHints
	if a, b := s.Annotations[mode], s.Annotations[hints]; a != "" && b != "" && a != b {
		p.invalid(field.NewPath("metadata", "annotations").Key(mode), a, fmt.Sprintf("must match annotations[%s] when both are specified", hints))
	}
	neededOneOf(&p, path.Child("type"), s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	checkServiceType(&p, s, path)
	checkServicePorts(&p, s, path.Child("ports"))
	p.add(metavalidation.ValidateLabels(s.Spec.Selector, path.Child("selector"))...)
	checkSessionAffinity(&p, s, path)
	was := &corev1.ServiceSpec{}
	if old != nil {
		was = &old.Spec
	}
	checkClusterIPs(&p, s, was.ClusterIPs, path)
	for i, ip := range s.Spec.ExternalIPs {
		at := path.Child("externalIPs").Index(i)
		before := len(p.list)
		p.ip(at, ip, was.ExternalIPs...)
		if len(p.list) == before {
			checkEndpointIP(&p, ip, at)
		}
	}
	checkSourceRanges(&p, s, old, path)
	checkTrafficPolicies(&p, s, path)
	return p.list
}

func checkServiceType(p *problems, s *corev1.Service, path *field.Path) {
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		p.required(path.Child("ports"), "")
	}
	if hasNodePorts(s) && isHeadless(s) {
		p.invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone, fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type))
	}
	if !hasClusterIP(s) {
		const why = "may not be set for ExternalName services"
		if len(s.Spec.ClusterIPs) > 0 || s.Spec.ClusterIP != "" {
			p.forbidden(path.Child("clusterIPs"), why)
		}
		if len(s.Spec.IPFamilies) > 0 {
			p.forbidden(path.Child("ipFamilies"), why)
		}
		if s.Spec.IPFamilyPolicy != nil {
			p.forbidden(path.Child("ipFamilyPolicy"), why)
		}
		p.neededSubdomain(path.Child("externalName"), strings.TrimSuffix(s.Spec.ExternalName, "."))
	}
	const onlyLB = "may only be used when `type` is 'LoadBalancer'"
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if s.Spec.AllocateLoadBalancerNodePorts != nil {
			p.forbidden(path.Child("allocateLoadBalancerNodePorts"), onlyLB)
		}
		if s.Spec.LoadBalancerClass != nil {
			p.forbidden(path.Child("loadBalancerClass"), onlyLB)
		}
		return
	}
	if s.Spec.AllocateLoadBalancerNodePorts == nil {
		p.required(path.Child("allocateLoadBalancerNodePorts"), "")
	}
	if s.Spec.LoadBalancerClass != nil {
		p.qualified(path.Child("loadBalancerClass"), *s.Spec.LoadBalancerClass)
	}
}

func checkServicePorts(p *problems, s *corev1.Service, path *field.Path) {
	type pair struct {
		protocol corev1.Protocol
		number   int32
	}
	names, ports, nodes := sets.New[string](), sets.New[pair](), sets.New[pair]()
	for i, port := range s.Spec.Ports {
		at := path.Index(i)
		if port.Name != "" {
			p.label(at.Child("name"), port.Name)
			if names.Has(port.Name) {
				p.add(field.Duplicate(at.Child("name"), port.Name))
			}
			names.Insert(port.Name)
		} else if len(s.Spec.Ports) > 1 {
			p.required(at.Child("name"), "")
		}
		p.each(at.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))
		neededOneOf(p, at.Child("protocol"), port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		p.checkPort(port.TargetPort, at.Child("targetPort"))
		if port.AppProtocol != nil {
			p.qualified(at.Child("appProtocol"), *port.AppProtocol)
		}
		if port.NodePort != 0 {
			if s.Spec.Type == corev1.ServiceTypeClusterIP {
				p.forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'")
			}
			if key := (pair{port.Protocol, port.NodePort}); nodes.Has(key) {
				p.add(field.Duplicate(at.Child("nodePort"), port.NodePort))
			} else {
				nodes.Insert(key)
			}
		}
		if key := (pair{port.Protocol, port.Port}); ports.Has(key) {
			p.add(field.Duplicate(at, corev1.ServicePort{Protocol: port.Protocol, Port: port.Port}))
		} else {
			ports.Insert(key)
		}
	}
}

func checkSessionAffinity(p *problems, s *corev1.Service, path *field.Path) {
	neededOneOf(p, path.Child("sessionAffinity"), s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	c, at := s.Spec.SessionAffinityConfig, path.Child("sessionAffinityConfig")
	switch s.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if c != nil {
			p.forbidden(at, "must not be set when session affinity is None")
		}
	case corev1.ServiceAffinityClientIP:
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			p.required(at, "when session affinity type is ClientIP")
		} else if t := *c.ClientIP.TimeoutSeconds; t <= 0 || t > maxAffinitySeconds {
			p.invalid(at.Child("clientIP", "timeoutSeconds"), t, fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds))
		}
	}
}

func checkClusterIPs(p *problems, s *corev1.Service, was []string, path *field.Path) {
	if !hasClusterIP(s) {
		return
	}
	ips, at := s.Spec.ClusterIPs, path.Child("clusterIPs")
	switch {
	case s.Spec.ClusterIP == "" && len(ips) > 0:
		p.invalid(at, ips, "must be empty when `clusterIP` is not specified")
	case s.Spec.ClusterIP != "" && len(ips) == 0:
		p.required(at, "")
	case s.Spec.ClusterIP != "" && ips[0] != s.Spec.ClusterIP:
		p.invalid(at, ips, "first value must match `clusterIP`")
	}
	seen := sets.New[corev1.IPFamily]()
	for i, family := range s.Spec.IPFamilies {
		oneOf(p, path.Child("ipFamilies").Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if seen.Has(family) {
			p.add(field.Duplicate(path.Child("ipFamilies").Index(i), family))
		}
		seen.Insert(family)
	}
	optionalOneOf(p, path.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)
	before := len(p.list)
	for i, ip := range ips {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				p.invalid(at, ips, "'None' must be the first and only value")
			}
			continue
		}
		p.ip(at.Index(i), ip, was...)
	}
	if len(ips) > 2 {
		p.invalid(at, ips, "may only hold up to 2 values")
	}
	if len(p.list) > before || isHeadless(s) {
		return
	}
	if dual, err := netutils.IsDualStackIPStrings(ips); len(ips) > 1 && (err != nil || !dual) {
		p.invalid(at, ips, "may specify no more than one IP for each IP family")
	}
	for i, ip := range ips {
		if i >= len(s.Spec.IPFamilies) {
			break
		}
		switch family := s.Spec.IPFamilies[i]; family {
		case familyOf(ip):
		case corev1.IPv4Protocol, corev1.IPv6Protocol: // any other was refused above
			p.invalid(at.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i))
		}
	}
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func checkSourceRanges(p *problems, s, old *corev1.Service, path *field.Path) {
	const onlyLB = "may only be used when `type` is 'LoadBalancer'"
	isLB := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if ranges := s.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		at := path.Child("LoadBalancerSourceRanges") // clients know the cause by this spelling
		if !isLB {
			p.forbidden(at, onlyLB)
		}
		var before []string
		if old != nil {
			before = old.Spec.LoadBalancerSourceRanges
		}
		for i, r := range ranges {
			p.cidr(at.Index(i), strings.TrimSpace(r), before...)
		}
		return
	}
	text, set := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !set {
		return
	}
	at := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if !isLB {
		p.forbidden(at, onlyLB)
	}
	if strings.TrimSpace(text) == "" || old != nil && old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == text {
		return
	}
	for r := range strings.SplitSeq(text, ",") {
		p.cidr(at, strings.TrimSpace(r))
	}
}

func checkTrafficPolicies(p *problems, s *corev1.Service, path *field.Path) {
	external := s.Spec.ExternalTrafficPolicy
	if reachableFromOutside(s) {
		neededOneOf(p, path.Child("externalTrafficPolicy"), external, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	} else if external != "" {
		p.invalid(path.Child("externalTrafficPolicy"), external, "may only be set for externally-accessible services")
	}
	if port, at := s.Spec.HealthCheckNodePort, path.Child("healthCheckNodePort"); port != 0 {
		if needsHealthCheck(s) {
			p.each(at, port, validation.IsValidPortNum(int(port)))
		} else {
			p.invalid(at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
		}
	}
	if hasClusterIP(s) && s.Spec.InternalTrafficPolicy == nil {
		p.required(path.Child("internalTrafficPolicy"), "")
	}
	optionalOneOf(p, path.Child("internalTrafficPolicy"), s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	if t := s.Spec.TrafficDistribution; t != nil {
		inOrder(p, path.Child("trafficDistribution"), *t, corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
	}
}

// maxAffinitySeconds is a day.
const maxAffinitySeconds = 24 * 60 * 60

// checkEndpointIP refuses addresses to which traffic must not be sent.
func checkEndpointIP(p *problems, text string, at *field.Path) {
	parsed := netutils.ParseIPSloppy(text)
	ip, ok := netip.AddrFromSlice(parsed)
	if !ok {
		p.invalid(at, text, "must be a valid IP address")
		return
	}
	ip = ip.Unmap()
	switch {
	case ip.IsUnspecified():
		p.invalid(at, text, "may not be unspecified ("+text+")")
	case ip.IsLoopback():
		p.invalid(at, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	case ip.IsLinkLocalUnicast():
		p.invalid(at, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	case ip.IsLinkLocalMulticast():
		p.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}
