package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var serviceColumns = []kind.Column[corev1.Service]{
	{Name: "Type", Description: "How the service is exposed.", Value: func(s *corev1.Service, _ time.Time) any { return string(s.Spec.Type) }},
	{Name: "Cluster-IP", Description: "Address inside the cluster.", Value: func(s *corev1.Service, _ time.Time) any {
		if len(s.Spec.ClusterIPs) > 0 {
			return s.Spec.ClusterIPs[0]
		}
		return cell.None
	}},
	{Name: "External-IP", Description: "Addresses or name outside of the cluster.", Value: func(s *corev1.Service, _ time.Time) any { return externalAddress(s) }},
	{Name: "Port(s)", Description: "Ports, with the nodes' ports after a colon.", Value: func(s *corev1.Service, _ time.Time) any { return servicePorts(s) }},
	{Name: "Selector", Priority: 1, Description: "Labels of the pods behind the service.", Value: func(s *corev1.Service, _ time.Time) any {
		return labels.FormatLabels(s.Spec.Selector)
	}},
}

// maxBalancerWidth keeps the table readable when a balancer has many addresses.
const maxBalancerWidth = 16

func externalAddress(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return cell.OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeLoadBalancer:
		addresses := sets.New[string]()
		for _, in := range s.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				addresses.Insert(in.IP)
			} else if in.Hostname != "" {
				addresses.Insert(in.Hostname)
			}
		}
		text := strings.Join(sets.List(addresses), ",")
		if len(text) > maxBalancerWidth {
			text = text[:maxBalancerWidth-3] + "..."
		}
		if len(s.Spec.ExternalIPs) > 0 {
			all := s.Spec.ExternalIPs
			if text != "" {
				all = append([]string{text}, all...)
			}
			return strings.Join(all, ",")
		}
		if text == "" {
			return "<pending>"
		}
		return text
	}
	return cell.Unknown
}

func servicePorts(s *corev1.Service) string {
	var out []string
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			out = append(out, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			out = append(out, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return cell.OrNone(strings.Join(out, ","))
}
