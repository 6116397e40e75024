package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/yare-project/yare/node/machine"
)

type limits struct {
	shares, quota, memory int64 // quota and memory: zero is no limit
}

// podLimits answers a pod's limits: CPU quota and memory limit only where every container has one, as otherwise there is no sum.
func podLimits(pod *corev1.Pod, class corev1.PodQOSClass) limits {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	all := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	if class == corev1.PodQOSBestEffort {
		return limits{shares: machine.Shares(0)}
	}
	l := limits{shares: machine.Shares(requests.Cpu().MilliValue())}
	if limited(pod, corev1.ResourceCPU) {
		l.quota = machine.Quota(all.Cpu().MilliValue())
	}
	if limited(pod, corev1.ResourceMemory) {
		l.memory = all.Memory().Value()
	}
	return l
}

func limited(pod *corev1.Pod, r corev1.ResourceName) bool {
	if pod.Spec.Resources != nil {
		if q, ok := pod.Spec.Resources.Limits[r]; ok && !q.IsZero() {
			return true
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q := list[i].Resources.Limits[r]; q.IsZero() {
				return false
			}
		}
	}
	return true
}

func (t *Tree) limit(path string, l limits) error {
	if t.unified {
		return t.limitUnified(filepath.Join(t.roots[0], path), l)
	}
	cpu, memory := filepath.Join(t.controller("cpu"), path), filepath.Join(t.controller("memory"), path)
	quota, bytes := int64(-1), int64(-1)
	if l.quota > 0 {
		quota = l.quota
	}
	if l.memory > 0 {
		bytes = l.memory
	}
	return errors.Join(
		set(cpu, "cpu.shares", strconv.FormatInt(l.shares, 10)),
		set(cpu, "cpu.cfs_period_us", strconv.Itoa(machine.QuotaPeriod)),
		set(cpu, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)),
		set(memory, "memory.limit_in_bytes", strconv.FormatInt(bytes, 10)))
}

func (t *Tree) limitUnified(dir string, l limits) error {
	quota, bytes := "max", "max"
	if l.quota > 0 {
		quota = strconv.FormatInt(l.quota, 10)
	}
	if l.memory > 0 {
		bytes = strconv.FormatInt(l.memory, 10)
	}
	return errors.Join(
		set(dir, "cpu.weight", strconv.FormatInt(Weight(l.shares), 10)),
		set(dir, "cpu.max", quota+" "+strconv.Itoa(machine.QuotaPeriod)),
		set(dir, "memory.max", bytes))
}

func set(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("%s = %s: %w", file, value, err)
	}
	return nil
}

// Weight converts v1 CPU shares (2 to 262144, 1024 by default) to a v2 weight (1 to 10000, 100 by default), by the curve that runc
// 1.3.2 on uses, which maps the one default to the other.
func Weight(shares int64) int64 {
	switch {
	case shares == 0:
		return 0
	case shares <= 2:
		return 1
	case shares >= 262144:
		return 10000
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612.0-7.0/34.0)))
}
