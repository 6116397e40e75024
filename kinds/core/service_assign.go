package core

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// The pools of what services hold. A node port is held whatever the protocol: one number, one service.
const (
	clusterIPPool = "ip"
	nodePortPool  = "nodeport"
)

// serviceClaims is what a service holds: no other may have it.
func serviceClaims(s *corev1.Service) []kind.Claim {
	var out []kind.Claim
	if hasClusterIP(s) && !isHeadless(s) {
		for _, ip := range s.Spec.ClusterIPs {
			out = append(out, kind.Claim{Pool: clusterIPPool, Value: ip})
		}
	}
	ports := nodePorts(s)
	if s.Spec.HealthCheckNodePort != 0 {
		ports.Insert(s.Spec.HealthCheckNodePort)
	}
	for _, port := range sets.List(ports) {
		out = append(out, kind.Claim{Pool: nodePortPool, Value: strconv.Itoa(int(port))})
	}
	return out
}

// assigner hands a service its addresses and ports.
type assigner struct {
	problems
	settings kind.Settings
	service  *corev1.Service
	// ranges are the addresses to allocate from, and own those that the service has already.
	ranges []netip.Prefix
	own    map[kind.Claim]bool
	// free says whether a value may be had: nobody holds it, or the service itself did.
	free func(pool, value string) bool
	// given are the ports taken in this assignment.
	given sets.Set[int32]
}

func assignService(env kind.Env, taken func(pool, value string) bool, s, old *corev1.Service) field.ErrorList {
	own := map[kind.Claim]bool{}
	if old != nil {
		for _, c := range serviceClaims(old) {
			own[c] = true
		}
	}
	a := &assigner{settings: env.Settings(), service: s, own: own, given: sets.New[int32](), free: func(pool, value string) bool {
		return own[kind.Claim{Pool: pool, Value: value}] || !taken(pool, value) && (pool != clusterIPPool || !addressTaken(env, value))
	}}
	if !hasClusterIP(s) {
		return nil
	}
	a.ranges = serviceRanges(env)
	if a.families(old); len(a.list) > 0 {
		return a.list
	}
	a.addresses()
	a.ports()
	return a.list
}

func (a *assigner) configured(family corev1.IPFamily) (netip.Prefix, bool) {
	for _, cidr := range a.settings.ServiceCIDRs {
		if cidr.Addr().Is6() == (family == corev1.IPv6Protocol) {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

func (a *assigner) primary() corev1.IPFamily {
	if len(a.settings.ServiceCIDRs) > 0 && a.settings.ServiceCIDRs[0].Addr().Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// families settles ipFamilyPolicy and ipFamilies, by the service's wishes and what the cluster has.
func (a *assigner) families(old *corev1.Service) {
	s, path := &a.service.Spec, field.NewPath("spec")
	headlessManual := s.ClusterIP == corev1.ClusterIPNone && len(s.Selector) == 0
	if s.IPFamilyPolicy == nil {
		s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
		if old != nil && old.Spec.IPFamilyPolicy != nil {
			s.IPFamilyPolicy = ptr.To(*old.Spec.IPFamilyPolicy)
		} else if headlessManual {
			s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
		}
	}
	policy, policyPath := *s.IPFamilyPolicy, path.Child("ipFamilyPolicy")
	if policy == corev1.IPFamilyPolicySingleStack {
		if old != nil && slices.Equal(old.Spec.ClusterIPs, s.ClusterIPs) && len(s.ClusterIPs) > 1 {
			s.ClusterIPs = s.ClusterIPs[:1]
		}
		if old != nil && slices.Equal(old.Spec.IPFamilies, s.IPFamilies) && len(s.IPFamilies) > 1 {
			s.IPFamilies = s.IPFamilies[:1]
		}
		if len(s.ClusterIPs) == 2 {
			a.invalid(policyPath, policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
		}
		if len(s.IPFamilies) == 2 {
			a.invalid(policyPath, policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
		}
	}
	for i, ip := range s.ClusterIPs {
		if ip == corev1.ClusterIPNone || i < len(s.IPFamilies) {
			continue
		}
		if _, ok := a.configured(familyOf(ip)); !ok {
			a.invalid(path.Child("clusterIPs").Index(i), s.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", familyOf(ip)))
			continue
		}
		s.IPFamilies = append(s.IPFamilies, familyOf(ip))
	}
	if len(s.IPFamilies) == 0 {
		s.IPFamilies = []corev1.IPFamily{a.primary()}
	}
	_, secondConfigured := a.configured(otherFamily(a.primary()))
	if headlessManual {
		// Who writes the endpoints by hand may write either family, whatever the cluster has.
		secondConfigured = true
	} else {
		if policy == corev1.IPFamilyPolicyRequireDualStack && !secondConfigured {
			a.invalid(policyPath, policy, "this cluster is not configured for dual-stack services")
		}
		for i, family := range s.IPFamilies {
			if _, ok := a.configured(family); !ok {
				a.invalid(path.Child("ipFamilies").Index(i), family, "not configured on this cluster")
			}
		}
	}
	if policy != corev1.IPFamilyPolicySingleStack && len(s.IPFamilies) == 1 && secondConfigured && !(old != nil && keepsDualPreference(a.service, old)) {
		s.IPFamilies = append(s.IPFamilies, otherFamily(s.IPFamilies[0]))
	}
}

// keepsDualPreference: a service that merely prefers two families is not given a second one because the cluster has it by now.
func keepsDualPreference(s, old *corev1.Service) bool {
	prefer := corev1.IPFamilyPolicyPreferDualStack
	return s.Spec.Type == old.Spec.Type && *s.Spec.IPFamilyPolicy == prefer && ptr.Deref(old.Spec.IPFamilyPolicy, prefer) == prefer &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

func (a *assigner) addresses() {
	s, path := &a.service.Spec, field.NewPath("spec", "clusterIPs")
	if isHeadless(a.service) {
		return
	}
	for i, family := range s.IPFamilies {
		if _, ok := a.configured(family); !ok {
			continue // a family that the cluster no longer has keeps its address
		}
		if i < len(s.ClusterIPs) && s.ClusterIPs[i] != "" {
			a.wantAddress(s.ClusterIPs[i], path)
			continue
		}
		ip, ok := a.anyAddress(family)
		if !ok {
			a.add(field.InternalError(path, fmt.Errorf("failed to allocate a serviceIP for Service %q: range is full", a.service.Name)))
			return
		}
		s.ClusterIPs = append(s.ClusterIPs[:min(i, len(s.ClusterIPs))], ip)
	}
	if len(s.ClusterIPs) > 0 {
		s.ClusterIP = s.ClusterIPs[0]
	}
}

// anyAddress picks from the first range of a family that has a free address.
func (a *assigner) anyAddress(family corev1.IPFamily) (string, bool) {
	for _, cidr := range a.ranges {
		if cidr.Addr().Is6() != (family == corev1.IPv6Protocol) {
			continue
		}
		if ip, ok := pickAddress(cidr, a.seed(), func(ip string) bool { return a.free(clusterIPPool, ip) }); ok {
			return ip, true
		}
	}
	return "", false
}

func (a *assigner) wantAddress(text string, path *field.Path) {
	if a.own[kind.Claim{Pool: clusterIPPool, Value: text}] {
		return // it stays, even where its range has gone
	}
	ip, err := netip.ParseAddr(text)
	why := ""
	switch {
	case err != nil:
		why = err.Error()
	case !slices.ContainsFunc(a.ranges, func(cidr netip.Prefix) bool { return usable(cidr, ip) }):
		why = fmt.Sprintf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", ip, rangeText(a.ranges, ip))
	case !a.free(clusterIPPool, text):
		why = "provided IP is already allocated"
	}
	if why != "" {
		a.invalid(path, a.service.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %v: %v", text, why))
	}
}

// seed spreads services over a range, the same service always to the same place.
func (a *assigner) seed() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.service.Namespace + "/" + a.service.Name + "/" + string(a.service.UID)))
	return h.Sum64()
}

func (a *assigner) ports() {
	s, path := a.service, field.NewPath("spec")
	if hasNodePorts(s) {
		for i := range s.Spec.Ports {
			if n := s.Spec.Ports[i].NodePort; n != 0 {
				a.wantPort(n, path.Child("ports").Index(i).Child("nodePort"), "")
			}
		}
		byPort := map[int32]int32{}
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				byPort[p.Port] = p.NodePort
			}
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if p.NodePort != 0 || !allocatesNodePorts(s) {
				continue
			}
			// The same port over TCP and UDP gets the same node port.
			if n := byPort[p.Port]; n != 0 && !slices.ContainsFunc(s.Spec.Ports, func(o corev1.ServicePort) bool { return o.NodePort == n && o.Protocol == p.Protocol }) {
				p.NodePort = n
				continue
			}
			p.NodePort = a.anyPort(path.Child("ports").Index(i).Child("nodePort"))
			byPort[p.Port] = p.NodePort
		}
	}
	if !needsHealthCheck(s) {
		return
	}
	at := path.Child("healthCheckNodePort")
	if n := s.Spec.HealthCheckNodePort; n != 0 {
		if a.given.Has(n) {
			a.invalid(at, n, fmt.Sprintf("failed to allocate requested HealthCheck NodePort %v: provided port is already allocated", n))
			return
		}
		a.wantPort(n, at, fmt.Sprintf("failed to allocate requested HealthCheck NodePort %v: ", n))
		return
	}
	s.Spec.HealthCheckNodePort = a.anyPort(at)
}

func (a *assigner) wantPort(n int32, at *field.Path, prefix string) {
	low, high := a.settings.NodePortMin, a.settings.NodePortMax
	switch value := strconv.Itoa(int(n)); {
	case a.given.Has(n):
	case !a.free(nodePortPool, value):
		a.invalid(at, n, prefix+"provided port is already allocated")
	case int(n) < low || int(n) > high:
		a.invalid(at, n, prefix+fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", low, high))
	default:
		a.given.Insert(n)
	}
}

func (a *assigner) anyPort(at *field.Path) int32 {
	low, size := a.settings.NodePortMin, uint64(max(0, a.settings.NodePortMax-a.settings.NodePortMin+1))
	n, ok := pick(size, lowerBand(size, 32, 128), a.seed(), func(i uint64) bool {
		port := low + int(i)
		return !a.given.Has(int32(port)) && a.free(nodePortPool, strconv.Itoa(port))
	})
	if !ok {
		a.add(field.InternalError(at, fmt.Errorf("failed to allocate a nodePort: range is full (%s)", strings.TrimSpace(fmt.Sprintf("%d-%d", low, a.settings.NodePortMax)))))
		return 0
	}
	port := int32(low + int(n))
	a.given.Insert(port)
	return port
}
