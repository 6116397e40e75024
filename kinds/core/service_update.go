package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// checkServiceUpdate: addresses and families stay once given; only the second of two may come or go.
func checkServiceUpdate(p *problems, s, old *corev1.Service, path *field.Path) {
	const once = "may not change once set"
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer && !ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		p.invalid(path.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, once)
	}
	if needsHealthCheck(old) && needsHealthCheck(s) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		p.forbidden(path.Child("healthCheckNodePort"), isImmutable)
	}
	if !hasClusterIP(s) || !hasClusterIP(old) || isHeadless(s) && isHeadless(old) {
		return
	}
	single := ptr.Deref(s.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack
	now, was, at := s.Spec.ClusterIPs, old.Spec.ClusterIPs, path.Child("clusterIPs")
	if len(was) > 0 && len(now) == 0 {
		p.invalid(at.Index(0), now, "primary clusterIP can not be unset")
	}
	for i := 0; i < min(len(now), len(was)); i++ {
		if now[i] != was[i] {
			p.invalid(at.Index(i), now, once)
		}
	}
	if len(was) == 2 && len(now) == 1 && !single {
		p.invalid(path.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary clusterIP")
	}
	if isHeadless(s) != isHeadless(old) {
		return
	}
	families, before, at := s.Spec.IPFamilies, old.Spec.IPFamilies, path.Child("ipFamilies")
	for i := 0; i < min(len(families), len(before)); i++ {
		if families[i] != before[i] {
			p.invalid(at.Index(0), families, once)
		}
	}
	if len(before) == 2 && len(families) == 1 && !single {
		p.invalid(path.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary ipFamily")
	}
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	var p problems
	var before []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		before = append(before, in.IP)
	}
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(ingress) > 0 {
		p.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
		return p.list
	}
	for i, in := range ingress {
		at := path.Index(i)
		if in.IP != "" {
			p.ip(at.Child("ip"), in.IP, before...)
		}
		switch {
		case in.IPMode == nil && in.IP != "":
			p.required(at.Child("ipMode"), "must be specified when `ip` is set")
		case in.IPMode != nil && in.IP == "":
			p.forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set")
		default:
			optionalOneOf(&p, at.Child("ipMode"), in.IPMode, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
		}
		if in.Hostname != "" {
			p.subdomain(at.Child("hostname"), in.Hostname)
			if netutils.ParseIPSloppy(in.Hostname) != nil {
				p.invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address")
			}
		}
	}
	return p.list
}

func warnService(s, _ *corev1.Service) []string {
	var out []string
	say := func(when bool, text string) {
		if when {
			out = append(out, text)
		}
	}
	_, hints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	say(hints, fmt.Sprintf("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	headless := s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone
	external := !hasClusterIP(s)
	say(headless && s.Spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
	say(headless && len(s.Spec.ExternalIPs) > 0, "spec.externalIPs is ignored for headless services")
	say(headless && s.Spec.SessionAffinity != corev1.ServiceAffinityNone, "spec.SessionAffinity is ignored for headless services")
	say(external && len(s.Spec.ExternalIPs) > 0, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q", s.Spec.Type))
	say(!external && s.Spec.ExternalName != "", fmt.Sprintf("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName))
	say(ptr.Deref(s.Spec.TrafficDistribution, "") == corev1.ServiceTrafficDistributionPreferClose, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q",
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	say(len(s.Spec.ExternalIPs) > 0 && !isHeadless(s) && !external, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	spec := field.NewPath("spec")
	for i, ip := range s.Spec.ExternalIPs {
		out = append(out, validation.GetWarningsForIP(spec.Child("externalIPs").Index(i), ip)...)
	}
	for i, ip := range s.Spec.ClusterIPs {
		if ip != "" && ip != corev1.ClusterIPNone {
			out = append(out, validation.GetWarningsForIP(spec.Child("clusterIPs").Index(i), ip)...)
		}
	}
	if s.Spec.LoadBalancerIP != "" {
		out = append(out, validation.GetWarningsForIP(spec.Child("loadBalancerIP"), s.Spec.LoadBalancerIP)...)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		out = append(out, validation.GetWarningsForCIDR(spec.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	return out
}
