package launch

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/yare-project/yare/node/machine"
)

// plainResources converts requests and limits to CPU shares and quota and a memory limit.
func plainResources(requests, limits corev1.ResourceList) *runtimeapi.LinuxContainerResources {
	cpu := limits.Cpu().MilliValue()
	request := requests.Cpu().MilliValue()
	if _, set := requests[corev1.ResourceCPU]; !set {
		request = cpu
	}
	return &runtimeapi.LinuxContainerResources{CpuShares: machine.Shares(request), CpuPeriod: machine.QuotaPeriod, CpuQuota: machine.Quota(cpu),
		MemoryLimitInBytes: limits.Memory().Value()}
}

// Limits answers a container's own limits, or where it has none and the pod does, the pod's.
func Limits(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	out := c.Resources.Limits.DeepCopy()
	if pod.Spec.Resources == nil {
		return out
	}
	if out == nil {
		out = corev1.ResourceList{}
	}
	for name, q := range pod.Spec.Resources.Limits {
		if own, set := out[name]; !set || own.IsZero() {
			out[name] = q
		}
	}
	return out
}

// Resources answers what a container gets of the machine.
func (b *Builder) Resources(pod *corev1.Pod, c *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits := Limits(pod, c)
	r := plainResources(c.Resources.Requests, limits)
	r.OomScoreAdj = int64(max(OOMScoreAdj(pod, c, b.MemoryCapacity), b.OOMFloor))
	for _, size := range b.HugePageSizes {
		r.HugepageLimits = append(r.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: size, Limit: hugeLimit(limits, size)})
	}
	return r
}

func hugeLimit(limits corev1.ResourceList, size string) uint64 {
	for name, q := range limits {
		if s, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
			if have, err := resource.ParseQuantity(s); err == nil && hugeName(have.Value()) == size {
				return uint64(q.Value())
			}
		}
	}
	return 0
}

// hugeName is a page size as the kernel names it in cgroup files.
func hugeName(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for bytes >= 1024 && i < len(units)-1 {
		bytes, i = bytes/1024, i+1
	}
	return resource.NewQuantity(bytes, resource.DecimalSI).String() + units[i]
}

const (
	oomGuaranteed = -997
	oomBestEffort = 1000
	nodeCritical  = 2_000_001_000 // the priority of system-node-critical
)

// OOMScoreAdj answers how readily the kernel kills a container when memory runs out: by the pod's quality of service, and for burstable
// pods by how much of the machine's memory they request. Source: Kubernetes documentation, "Node out of memory behavior".
func OOMScoreAdj(pod *corev1.Pod, c *corev1.Container, capacity int64) int {
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical {
		return oomGuaranteed
	}
	switch qos.GetPodQOS(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	if capacity <= 0 {
		return oomBestEffort - 1
	}
	extra := unclaimed(pod)
	score := 1000 - 1000*(c.Resources.Requests.Memory().Value()+extra)/capacity
	if isSidecar(pod, c) {
		score = min(score, 1000-1000*(smallest(pod)+extra)/capacity)
	}
	return int(min(max(score, 1000+oomGuaranteed), oomBestEffort-1))
}

// unclaimed is each container's equal part of the memory that the pod requests beyond its containers.
func unclaimed(pod *corev1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return 0
	}
	whole := pod.Spec.Resources.Requests.Memory().Value()
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	n := int64(len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		if machine.IsSidecar(&pod.Spec.InitContainers[i]) {
			n++
		}
	}
	return max(whole-sum.Memory().Value(), 0) / max(n, 1)
}

func isSidecar(pod *corev1.Pod, c *corev1.Container) bool {
	_, kind := machine.Spec(pod, c.Name)
	return kind == "initContainers" && machine.IsSidecar(c)
}

func smallest(pod *corev1.Pod) int64 {
	least := int64(-1)
	for i := range pod.Spec.Containers {
		if v := pod.Spec.Containers[i].Resources.Requests.Memory().Value(); least < 0 || v < least {
			least = v
		}
	}
	return max(least, 0)
}
