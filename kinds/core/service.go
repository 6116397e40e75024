package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.Service]{
	Names:           kind.Names{Plural: "services", Short: []string{"svc"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	ReturnDeleted:   true,
	Default:         defaultService,
	Prepare:         prepareService,
	Validate:        validateService,
	ValidateStatus:  validateServiceStatus,
	ValidateName:    labelName,
	Warn:            warnService,
	Assign:          assignService,
	Claims:          serviceClaims,
	Attendants:      serviceAttendants,
	Columns:         serviceColumns,
	NoGeneration:    true,
	CreateOnUpdate:  true,
	Fields: map[string]func(*corev1.Service) string{
		"spec.clusterIP": func(s *corev1.Service) string { return s.Spec.ClusterIP },
		"spec.type":      func(s *corev1.Service) string { return string(s.Spec.Type) },
	},
	Subs: []kind.Sub[corev1.Service]{{Name: "proxy", Body: corev1.SchemeGroupVersion.WithKind("ServiceProxyOptions"), New: func() runtime.Object { return &corev1.ServiceProxyOptions{} }, Connect: serviceProxy, Methods: proxyMethods, Named: true}},
})

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	defaultTo(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)}}
		}
	}
	defaultTo(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		defaultTo(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if reachableFromOutside(s) {
		defaultTo(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if hasClusterIP(s) {
		defaultPtr(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		defaultPtr(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				defaultPtr(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func reachableFromOutside(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	}
	return s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func isHeadless(s *corev1.Service) bool {
	return slices.Equal(s.Spec.ClusterIPs, []string{corev1.ClusterIPNone})
}

// hasNodePorts: a service whose ports have one each, given or asked for.
func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func allocatesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true)
}

func needsHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// prepareService makes of what a client says what it means: the same YAML again keeps what the cluster handed out, and a change of type drops what
// the new type does not have, unless the client changed that too.
func prepareService(now, was *corev1.Service) {
	if was == nil {
		if now.Spec.ClusterIP != "" && len(now.Spec.ClusterIPs) == 0 {
			now.Spec.ClusterIPs = []string{now.Spec.ClusterIP}
		}
		return
	}
	dropOfOtherType(now, was)
	keepHandedOut(now, was)
	alignClusterIPs(now, was)
}

func dropOfOtherType(now, was *corev1.Service) {
	n, w := &now.Spec, &was.Spec
	if hasClusterIP(was) && !hasClusterIP(now) {
		if n.ClusterIP == w.ClusterIP && slices.Equal(n.ClusterIPs, w.ClusterIPs) {
			n.ClusterIP, n.ClusterIPs = "", nil
		}
		if slices.Equal(n.IPFamilies, w.IPFamilies) {
			n.IPFamilies = nil
		}
		if ptr.Equal(n.IPFamilyPolicy, w.IPFamilyPolicy) {
			n.IPFamilyPolicy = nil
		}
		if ptr.Equal(n.InternalTrafficPolicy, w.InternalTrafficPolicy) {
			n.InternalTrafficPolicy = nil
		}
	}
	if hasNodePorts(was) && !hasNodePorts(now) && nodePorts(was).IsSuperset(nodePorts(now)) {
		for i := range n.Ports {
			n.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheck(was) && !needsHealthCheck(now) && n.HealthCheckNodePort == w.HealthCheckNodePort {
		n.HealthCheckNodePort = 0
	}
	if w.Type == corev1.ServiceTypeLoadBalancer && n.Type != corev1.ServiceTypeLoadBalancer {
		if ptr.Equal(n.AllocateLoadBalancerNodePorts, w.AllocateLoadBalancerNodePorts) {
			n.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(n.LoadBalancerClass, w.LoadBalancerClass) {
			n.LoadBalancerClass = nil
		}
	}
	if reachableFromOutside(was) && !reachableFromOutside(now) && n.ExternalTrafficPolicy == w.ExternalTrafficPolicy {
		n.ExternalTrafficPolicy = ""
	}
	if n.Type != corev1.ServiceTypeLoadBalancer {
		now.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

func nodePorts(s *corev1.Service) sets.Set[int32] {
	out := sets.New[int32]()
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			out.Insert(p.NodePort)
		}
	}
	return out
}

func keepHandedOut(now, was *corev1.Service) {
	if hasClusterIP(was) && hasClusterIP(now) {
		defaultTo(&now.Spec.ClusterIP, was.Spec.ClusterIP)
		if len(now.Spec.ClusterIPs) == 0 && now.Spec.ClusterIP == was.Spec.ClusterIP {
			now.Spec.ClusterIPs = slices.Clone(was.Spec.ClusterIPs)
		}
	}
	if allocatesNodePorts(was) && allocatesNodePorts(now) {
		used := nodePorts(was).Intersection(nodePorts(now))
		before := map[string]int32{}
		for _, p := range was.Spec.Ports {
			before[p.Name] = p.NodePort
		}
		for i := range now.Spec.Ports {
			if p := &now.Spec.Ports[i]; p.NodePort == 0 && !used.Has(before[p.Name]) {
				p.NodePort = before[p.Name]
			}
		}
	}
	if needsHealthCheck(was) && needsHealthCheck(now) {
		defaultTo(&now.Spec.HealthCheckNodePort, was.Spec.HealthCheckNodePort)
	}
}

// alignClusterIPs serves clients that know only one of clusterIP and clusterIPs.
func alignClusterIPs(now, was *corev1.Service) {
	n, w := &now.Spec, &was.Spec
	if n.ClusterIP == w.ClusterIP || !slices.Equal(n.ClusterIPs, w.ClusterIPs) && len(n.ClusterIPs) > 0 {
		return
	}
	n.ClusterIPs = nil
	if n.ClusterIP != "" {
		n.ClusterIPs = []string{n.ClusterIP}
	}
}
