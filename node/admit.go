package node

import (
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corehelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/yare-project/yare/node/machine"
)

// admit judges a pod that the node meets for the first time. One that was at work before this agent was is not judged again.
func (a *Agent) admit(pod *corev1.Pod) *machine.Verdict {
	if pod.Status.StartTime != nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var others []*corev1.Pod
	for _, o := range a.active() {
		if o.UID != pod.UID {
			others = append(others, o)
		}
	}
	if v := judgeSysctls(pod, a.cfg.AllowedUnsafeSysctls); v != nil {
		return v
	}
	return judge(pod, others, a.node.present(), a.cfg.MaxPods)
}

// counts answers whether a pod uses the node's resources.
func counts(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// judge answers why a node can't run a pod beside others, or nil. The rules and reasons are those by which a scheduler places pods; a pod that
// breaks one was placed by hand or in a race.
func judge(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node, maxPods int) *machine.Verdict {
	if os := pod.Spec.OS; os != nil && os.Name != corev1.Linux {
		return &machine.Verdict{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if len(others)+1 > maxPods {
		return outOf(corev1.ResourcePods, 1, int64(len(others)), int64(maxPods))
	}
	if v := fits(pod, others, node.Status.Allocatable); v != nil {
		return v
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && !corehelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, t, false) {
			return predicate("TaintToleration", fmt.Sprintf("node(s) had untolerated taint(s): %s", t.ToString()))
		}
	}
	if port := clash(pod, others); port != 0 {
		return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	return nil
}

func predicate(name, why string) *machine.Verdict {
	return &machine.Verdict{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why)}
}

func outOf(name corev1.ResourceName, requested, used, capacity int64) *machine.Verdict {
	return &machine.Verdict{Reason: "OutOf" + string(name), Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		name, requested, used, capacity)}
}

// fits answers the first resource, by name, that a pod would take more of than is left. A resource that the node doesn't know is passed over:
// it is counted elsewhere.
func fits(pod *corev1.Pod, others []*corev1.Pod, allocatable corev1.ResourceList) *machine.Verdict {
	want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	used := map[corev1.ResourceName]resource.Quantity{}
	for _, o := range others {
		for name, q := range resourcehelper.PodRequests(o, resourcehelper.PodResourcesOptions{}) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, string(name))
	}
	sort.Strings(names)
	for _, s := range names {
		name := corev1.ResourceName(s)
		have, known := allocatable[name]
		q, u := want[name], used[name]
		if !known || q.IsZero() {
			continue
		}
		sum := u.DeepCopy()
		sum.Add(q)
		if sum.Cmp(have) > 0 {
			if name == corev1.ResourceCPU {
				return outOf(name, q.MilliValue(), u.MilliValue(), have.MilliValue())
			}
			return outOf(name, q.Value(), u.Value(), have.Value())
		}
	}
	return nil
}

// clash answers a host port that another pod has already, or zero.
func clash(pod *corev1.Pod, others []*corev1.Pod) int32 {
	taken := map[corev1.ContainerPort]bool{}
	for _, o := range others {
		for _, p := range hostPorts(o) {
			taken[p] = true
		}
	}
	for _, p := range hostPorts(pod) {
		for t := range taken {
			if t.HostPort == p.HostPort && t.Protocol == p.Protocol && (t.HostIP == p.HostIP || t.HostIP == "" || p.HostIP == "") {
				return p.HostPort
			}
		}
	}
	return 0
}

func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			key := corev1.ContainerPort{HostPort: p.HostPort, Protocol: p.Protocol, HostIP: p.HostIP}
			if key.HostIP == "0.0.0.0" || key.HostIP == "::" {
				key.HostIP = ""
			}
			if key.Protocol == "" {
				key.Protocol = corev1.ProtocolTCP
			}
			out = append(out, key)
		}
	}
	for i := range pod.Spec.InitContainers {
		if machine.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}
