package launch

import (
	"fmt"
	"maps"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/machine"
)

// Sandbox answers the config of a pod's sandbox. cgroupParent is the pod's cgroup, or empty to leave it to the runtime.
func (b *Builder) Sandbox(pod *corev1.Pod, attempt int, cgroupParent string) (*runtimeapi.PodSandboxConfig, error) {
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		return nil, fmt.Errorf("this node does not support user namespaces (spec.hostUsers: false); leave hostUsers unset or true")
	}
	dns, err := b.dns(pod)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: uint32(attempt)},
		LogDirectory: b.LogDir(pod),
		DnsConfig:    dns,
		Labels:       podLabels(pod),
		Annotations:  maps.Clone(pod.Annotations),
		PortMappings: ports(pod),
	}
	if !pod.Spec.HostNetwork {
		if config.Hostname, err = b.sandboxHostname(pod); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return nil, fmt.Errorf("log folder: %w", err)
	}
	config.Linux, err = b.sandboxLinux(pod, cgroupParent)
	return config, err
}

func podLabels(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[LabelPodName], labels[LabelPodNamespace], labels[LabelPodUID] = pod.Name, pod.Namespace, string(pod.UID)
	return labels
}

func ports(pod *corev1.Pod) []*runtimeapi.PortMapping {
	if pod.Spec.HostNetwork {
		return nil
	}
	var out []*runtimeapi.PortMapping
	add := func(list []corev1.Container) {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.HostPort == 0 {
					continue
				}
				out = append(out, &runtimeapi.PortMapping{HostIp: p.HostIP, HostPort: p.HostPort, ContainerPort: p.ContainerPort,
					Protocol: runtimeapi.Protocol(runtimeapi.Protocol_value[string(p.Protocol)])})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if machine.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(pod.Spec.InitContainers[i : i+1])
		}
	}
	add(pod.Spec.Containers)
	return out
}

func (b *Builder) sandboxLinux(pod *corev1.Pod, cgroupParent string) (*runtimeapi.LinuxPodSandboxConfig, error) {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		Privileged:       anyPrivileged(pod),
		NamespaceOptions: namespaces(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	linux := &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroupParent, SecurityContext: sc, Sysctls: map[string]string{}}
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	linux.Resources = plainResources(resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts))
	linux.Overhead = &runtimeapi.LinuxContainerResources{}
	if pod.Spec.Overhead != nil {
		linux.Overhead = plainResources(pod.Spec.Overhead, pod.Spec.Overhead)
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return linux, nil
	}
	for _, s := range p.Sysctls {
		linux.Sysctls[strings.ReplaceAll(s.Name, "/", ".")] = s.Value
	}
	if p.RunAsUser != nil && !pod.Spec.HostNetwork {
		sc.RunAsUser = &runtimeapi.Int64Value{Value: *p.RunAsUser}
	}
	if p.RunAsGroup != nil && p.RunAsUser != nil && !pod.Spec.HostNetwork {
		sc.RunAsGroup = &runtimeapi.Int64Value{Value: *p.RunAsGroup}
	}
	sc.SupplementalGroups, sc.SupplementalGroupsPolicy = podGroups(p)
	sc.SelinuxOptions = selinux(p.SELinuxOptions)
	return linux, nil
}

func anyPrivileged(pod *corev1.Pod) bool {
	yes := func(sc *corev1.SecurityContext) bool { return sc != nil && sc.Privileged != nil && *sc.Privileged }
	for i := range pod.Spec.InitContainers {
		if yes(pod.Spec.InitContainers[i].SecurityContext) {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if yes(pod.Spec.Containers[i].SecurityContext) {
			return true
		}
	}
	return false
}

func namespaces(pod *corev1.Pod) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_POD, Ipc: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n
}

func podGroups(p *corev1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy) {
	var groups []int64
	if p.FSGroup != nil {
		groups = append(groups, *p.FSGroup)
	}
	groups = append(groups, p.SupplementalGroups...)
	policy := runtimeapi.SupplementalGroupsPolicy_Merge
	if p.SupplementalGroupsPolicy != nil && *p.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		policy = runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return groups, policy
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
