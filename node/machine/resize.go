package machine

import (
	corev1 "k8s.io/api/core/v1"
)

// resizeRestarts answers whether the change of a container's resources needs a new container, by its resizePolicy.
func (p *planner) resizeRestarts(c *corev1.Container, got *Container) bool {
	for _, rule := range c.ResizePolicy {
		if rule.RestartPolicy == corev1.RestartContainer && changed(c, got, rule.ResourceName) {
			return true
		}
	}
	return false
}

// changed answers whether the limit or request of one resource differs from what the runtime was given.
func changed(c *corev1.Container, got *Container, name corev1.ResourceName) bool {
	if got.Resources == nil {
		return true
	}
	switch name {
	case corev1.ResourceMemory:
		return c.Resources.Limits.Memory().Value() != got.Resources.MemoryLimitInBytes
	case corev1.ResourceCPU:
		return !MatchCPU(c, got)
	}
	return false
}

// MatchCPU answers whether the runtime's CPU shares and quota of a container are those of its spec.
func MatchCPU(c *corev1.Container, got *Container) bool {
	r := got.Resources
	if r == nil {
		return false
	}
	request := c.Resources.Requests.Cpu().MilliValue()
	if _, set := c.Resources.Requests[corev1.ResourceCPU]; !set {
		request = c.Resources.Limits.Cpu().MilliValue()
	}
	return r.CpuShares == Shares(request) && max(r.CpuQuota, 0) == Quota(c.Resources.Limits.Cpu().MilliValue())
}

// QuotaPeriod is the CPU scheduling period in microseconds, the kernel's and the kubelet's default.
const QuotaPeriod = 100_000

// Shares converts thousandths of a CPU to cgroup CPU shares (1024 for one CPU, 2 at least, 262144 at most).
func Shares(milli int64) int64 { return min(max(milli*1024/1000, 2), 262144) }

// Quota converts thousandths of a CPU to microseconds in each QuotaPeriod, 1000 at least; zero is no limit.
func Quota(milli int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*QuotaPeriod/1000, 1000)
}
