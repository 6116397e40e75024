// Package status writes a pod's status from what the node knows: the spec, the containers that the runtime has, the answers of probes and the
// decisions of the pod machine.
//
// Generate is pure. Its result holds everything that the node owns; conditions that others own (PodScheduled, DisruptionTarget, readiness gates)
// are carried over. A phase never leaves Succeeded or Failed. It does not send anything: package node does.
package status

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/yare-project/yare/node/machine"
)

// Input is what a status follows from.
type Input struct {
	Pod *corev1.Pod
	// Old is the newest status so far: what this function gave last, or what the API has.
	Old      corev1.PodStatus
	Machine  machine.Input
	Plan     machine.Plan
	HostIPs  []string // the node's addresses, primary first
	Now      time.Time
	RRO      bool   // the runtime can make mounts read-only recursively
	Runtime  string // the runtime's name, which prefixes container ids
	Released bool   // nothing of the pod is on the machine any more
}

// Generate answers the pod's status.
func Generate(in Input) corev1.PodStatus {
	g := &generator{Input: in, old: in.Old}
	s := corev1.PodStatus{
		ObservedGeneration:          in.Pod.Generation,
		QOSClass:                    qos.GetPodQOS(in.Pod),
		StartTime:                   in.Old.StartTime,
		NominatedNodeName:           in.Pod.Status.NominatedNodeName,
		ResourceClaimStatuses:       in.Pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: in.Pod.Status.ExtendedResourceClaimStatus,
	}
	if s.StartTime == nil {
		now := metav1.NewTime(in.Now.Truncate(time.Second))
		s.StartTime = &now
	}
	g.addresses(&s)
	s.InitContainerStatuses = g.containers(in.Pod.Spec.InitContainers, in.Old.InitContainerStatuses, true)
	s.ContainerStatuses = g.containers(in.Pod.Spec.Containers, in.Old.ContainerStatuses, false)
	s.EphemeralContainerStatuses = g.containers(ephemeral(in.Pod), in.Old.EphemeralContainerStatuses, false)
	g.phase(&s)
	g.conditions(&s)
	if in.Pod.Spec.Resources != nil {
		s.Resources = in.Pod.Spec.Resources.DeepCopy()
		s.AllocatedResources = resourcehelper.PodRequests(in.Pod, resourcehelper.PodResourcesOptions{})
	}
	return s
}

type generator struct {
	Input
	old corev1.PodStatus
}

func ephemeral(pod *corev1.Pod) []corev1.Container {
	out := make([]corev1.Container, 0, len(pod.Spec.EphemeralContainers))
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

func (g *generator) addresses(s *corev1.PodStatus) {
	for _, ip := range g.HostIPs {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(g.HostIPs) > 0 {
		s.HostIP = g.HostIPs[0]
	}
	ips := g.podIPs()
	if len(ips) == 0 {
		s.PodIP, s.PodIPs = g.old.PodIP, g.old.PodIPs
		return
	}
	s.PodIP = ips[0]
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
}

// podIPs answers the sandbox's addresses, or the node's for a pod in its network, with the node's primary family first.
func (g *generator) podIPs() []string {
	sandbox := g.Machine.Observed.ReadySandbox()
	if g.Pod.Spec.HostNetwork {
		if sandbox == nil && g.old.PodIP == "" {
			return nil
		}
		return g.HostIPs
	}
	if sandbox == nil {
		return nil
	}
	return SortIPs(sandbox.IPs, g.HostIPs)
}

// SortIPs answers at most one address of each family, that of the node's primary address first.
func SortIPs(ips, hostIPs []string) []string {
	primary4 := true
	if len(hostIPs) > 0 {
		if a, err := netip.ParseAddr(hostIPs[0]); err == nil {
			primary4 = a.Is4()
		}
	}
	var first, second string
	for _, ip := range ips {
		a, err := netip.ParseAddr(ip)
		switch {
		case err != nil:
		case a.Is4() == primary4 && first == "":
			first = a.String()
		case a.Is4() != primary4 && second == "":
			second = a.String()
		}
	}
	var out []string
	for _, ip := range []string{first, second} {
		if ip != "" {
			out = append(out, ip)
		}
	}
	return out
}
