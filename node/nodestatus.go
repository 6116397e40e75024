package node

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/node/host"
)

// build answers the Node's status as it should be now; what the API has and others own is kept.
func (r *registration) build(ctx context.Context, have *corev1.Node) corev1.NodeStatus {
	s := *have.Status.DeepCopy()
	s.Capacity = r.capacity()
	s.Allocatable = r.allocatable()
	s.Addresses = nil
	for _, ip := range r.cfg.IPs {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: r.cfg.Name})
	s.DaemonEndpoints.KubeletEndpoint.Port = r.cfg.KubeletPort
	s.NodeInfo = r.info()
	if images, err := r.images(ctx); err == nil {
		s.Images = images
	}
	s.RuntimeHandlers, s.Features = r.abilities()
	s.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"} // what pods that need it are placed by
	r.conditions(ctx, &s)
	return s
}

func (r *registration) info() corev1.NodeSystemInfo {
	h, os := r.cfg.Host, "linux"
	info := corev1.NodeSystemInfo{MachineID: h.MachineID, SystemUUID: h.SystemUUID, BootID: h.BootID, KernelVersion: h.Kernel, OSImage: h.OSImage,
		ContainerRuntimeVersion: r.runtimeVersion, KubeletVersion: r.cfg.KubeletVersion, OperatingSystem: os, Architecture: h.Arch}
	if h.Swap > 0 {
		info.Swap = &corev1.NodeSwapStatus{Capacity: &h.Swap}
	}
	return info
}

func (r *registration) abilities() ([]corev1.NodeRuntimeHandler, *corev1.NodeFeatures) {
	var out []corev1.NodeRuntimeHandler
	for _, h := range r.handlers {
		f := &corev1.NodeRuntimeHandlerFeatures{}
		rro, userns := h.GetFeatures().GetRecursiveReadOnlyMounts(), false // pods with user namespaces are refused by this agent
		f.RecursiveReadOnlyMounts, f.UserNamespaces = &rro, &userns
		out = append(out, corev1.NodeRuntimeHandler{Name: h.Name, Features: f})
	}
	strict := r.features.GetSupplementalGroupsPolicy()
	return out, &corev1.NodeFeatures{SupplementalGroupsPolicy: &strict}
}

func (r *registration) capacity() corev1.ResourceList {
	h := r.cfg.Host
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(h.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(h.Memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(r.cfg.MaxPods), resource.DecimalSI),
	}
	if d, err := r.cfg.Disk(r.cfg.Root); err == nil {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(d.Total, resource.BinarySI)
	}
	for size, bytes := range h.HugePages {
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
		list[name] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return list
}

// allocatable is what pods may have: the capacity less what is reserved and what huge pages occupy of the memory.
func (r *registration) allocatable() corev1.ResourceList {
	list := r.capacity()
	for _, bytes := range r.cfg.Host.HugePages {
		q := list[corev1.ResourceMemory]
		q.Sub(*resource.NewQuantity(bytes, resource.BinarySI))
		list[corev1.ResourceMemory] = q
	}
	for name, q := range r.cfg.Reserved {
		left, ok := list[name]
		if !ok {
			continue
		}
		left.Sub(q)
		if left.Sign() < 0 {
			left = resource.Quantity{}
		}
		list[name] = left
	}
	return list
}

// maxImages and maxNames bound the list of images in the status, as the kubelet does.
const (
	maxImages = 50
	maxNames  = 5
)

func (r *registration) images(ctx context.Context) ([]corev1.ContainerImage, error) {
	list, err := r.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, err
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Size != list[j].Size {
			return list[i].Size > list[j].Size
		}
		return list[i].Id < list[j].Id
	})
	var out []corev1.ContainerImage
	for _, img := range list[:min(len(list), maxImages)] {
		names := append(append([]string{}, img.RepoDigests...), img.RepoTags...)
		if len(names) > 0 {
			out = append(out, corev1.ContainerImage{Names: names[:min(len(names), maxNames)], SizeBytes: int64(img.Size)})
		}
	}
	return out, nil
}

// conditions sets the conditions that a node has: pressure on memory, disk and process ids, and whether it is ready.
func (r *registration) conditions(ctx context.Context, s *corev1.NodeStatus) {
	now := metav1.NewTime(r.cfg.Clock.Now().Truncate(time.Second))
	pressure := func(t corev1.NodeConditionType, bad bool, badReason, badText, goodReason, goodText string) {
		c := corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: goodReason, Message: goodText}
		if bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, badText
		}
		putCondition(s, c, now)
	}
	pressure(corev1.NodeMemoryPressure, lowMemory(), "KubeletHasInsufficientMemory", "kubelet has insufficient memory available",
		"KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	pressure(corev1.NodeDiskPressure, r.lowDisk(), "KubeletHasDiskPressure", "kubelet has disk pressure",
		"KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	pressure(corev1.NodePIDPressure, lowPIDs(), "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
		"KubeletHasSufficientPID", "kubelet has sufficient PID available")
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if problems := r.problems(ctx); len(problems) > 0 {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", strings.Join(problems, ", ")
		if len(problems) > 1 {
			ready.Message = "[" + ready.Message + "]"
		}
	}
	putCondition(s, ready, now)
}

func putCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now metav1.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	for i := range s.Conditions {
		if s.Conditions[i].Type != c.Type {
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

// problems lists why the node can't run pods.
func (r *registration) problems(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, checkEvery)
	defer cancel()
	st, err := r.cfg.Runtime.Status(ctx, false)
	if err != nil {
		return []string{"container runtime is down: " + message(err)}
	}
	var out []string
	names := map[string]string{"RuntimeReady": "container runtime not ready", "NetworkReady": "container runtime network not ready"}
	for _, c := range st.GetStatus().GetConditions() {
		if what := names[c.Type]; what != "" && !c.Status {
			out = append(out, fmt.Sprintf("%s: %s=false reason:%s message:%s", what, c.Type, c.Reason, c.Message))
		}
	}
	return out
}

// Pressure begins where this little is left. Memory is the kubelet's default; for disks it is less than the kubelet's (10%), as this agent evicts
// nobody for it, and a nearly full disk of a laptop should still run pods.
const (
	leastMemory = 100 << 20
	leastDisk   = 0.05
	leastPIDs   = 0.02
)

func lowMemory() bool {
	m, err := host.MemInfo()
	return err == nil && m["MemAvailable"] > 0 && m["MemAvailable"] < leastMemory
}

func (r *registration) lowDisk() bool {
	d, err := r.cfg.Disk(r.cfg.Root)
	if err != nil || d.Total == 0 {
		return false
	}
	return float64(d.Free)/float64(d.Total) < leastDisk || d.Inodes > 0 && float64(d.InodesFree)/float64(d.Inodes) < leastDisk
}

func lowPIDs() bool {
	used, limit := host.PIDs()
	return limit > 0 && float64(limit-used)/float64(limit) < leastPIDs
}
