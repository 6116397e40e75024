package core

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var nodeColumns = []kind.Column[corev1.Node]{
	{Name: "Status", Description: "The status of the node", Value: func(n *corev1.Node, _ time.Time) any { return nodeStatus(n) }},
	{Name: "Roles", Description: "The roles of the node", Value: func(n *corev1.Node, _ time.Time) any { return nodeRoles(n) }},
	{Name: "Age", Description: "Time since the object was created.", Value: func(n *corev1.Node, now time.Time) any { return cell.Age(n.CreationTimestamp, now) }},
	{Name: "Version", Description: "Version of the node's agent.", Value: func(n *corev1.Node, _ time.Time) any { return n.Status.NodeInfo.KubeletVersion }},
	{Name: "Internal-IP", Priority: 1, Description: "Address inside the cluster.", Value: func(n *corev1.Node, _ time.Time) any { return nodeAddress(n, corev1.NodeInternalIP) }},
	{Name: "External-IP", Priority: 1, Description: "Address outside of the cluster.", Value: func(n *corev1.Node, _ time.Time) any { return nodeAddress(n, corev1.NodeExternalIP) }},
	{Name: "OS-Image", Priority: 1, Description: "Operating system.", Value: func(n *corev1.Node, _ time.Time) any { return orUnknown(n.Status.NodeInfo.OSImage) }},
	{Name: "Kernel-Version", Priority: 1, Description: "Kernel and architecture.", Value: func(n *corev1.Node, _ time.Time) any {
		text := orUnknown(n.Status.NodeInfo.KernelVersion)
		if a := n.Status.NodeInfo.Architecture; a != "" {
			text += " (" + a + ")"
		}
		return text
	}},
	{Name: "Container-Runtime", Priority: 1, Description: "Container runtime and its version.", Value: func(n *corev1.Node, _ time.Time) any {
		return orUnknown(n.Status.NodeInfo.ContainerRuntimeVersion)
	}},
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			status = "Ready"
		} else if c.Type == corev1.NodeReady {
			status = "NotReady"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(n *corev1.Node) string {
	roles := sets.New[string]()
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			roles.Insert(role)
		} else if key == "kubernetes.io/role" && value != "" {
			roles.Insert(value)
		}
	}
	return cell.OrNone(strings.Join(sets.List(roles), ","))
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return cell.None
}

func orUnknown(text string) string {
	if text == "" {
		return cell.Unknown
	}
	return text
}
