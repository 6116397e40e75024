package kubeletapi

import (
	"context"
	"net/http"
	"path/filepath"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	sum, err := s.collect(r.Context())
	if err != nil {
		s.fail(w, err)
		return
	}
	if only := r.URL.Query().Get("only_cpu_and_memory"); only == "true" {
		reduce(sum)
	}
	s.writeJSON(w, sum)
}

// collect asks the machine and the runtime once.
func (s *Server) collect(ctx context.Context) (*stats.Summary, error) {
	now := s.cfg.Clock.Now()
	host, err := readHost(s.cfg.Proc)
	if err != nil {
		return nil, err
	}
	host.nanoCores = s.cpu.update(now, host.cpuNanos)
	pods, err := s.cfg.Runtime.ListPodSandboxStats(ctx, &cri.PodSandboxStatsFilter{})
	if err != nil {
		return nil, err
	}
	out := &stats.Summary{Node: nodeStats(s.cfg.NodeName, now, host)}
	if disk, err := readDisk(s.cfg.DataDir); err == nil {
		out.Node.Fs = fsStats(now, disk)
	}
	out.Node.Runtime = s.runtimeStats(ctx, now)
	for _, p := range pods {
		out.Pods = append(out.Pods, s.podStats(ctx, p, out.Node.Fs))
	}
	sort.Slice(out.Pods, func(i, j int) bool {
		a, b := out.Pods[i].PodRef, out.Pods[j].PodRef
		return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
	})
	return out, nil
}

func nodeStats(name string, now time.Time, h hostUsage) stats.NodeStats {
	at := metav1.NewTime(now)
	return stats.NodeStats{
		NodeName: name, StartTime: metav1.NewTime(h.bootTime),
		CPU: &stats.CPUStats{Time: at, UsageCoreNanoSeconds: &h.cpuNanos, UsageNanoCores: h.nanoCores},
		Memory: &stats.MemoryStats{
			Time: at, AvailableBytes: &h.memFree, UsageBytes: &h.memUsed, WorkingSetBytes: &h.workingSet,
			RSSBytes: &h.rss, PageFaults: &h.faults, MajorPageFaults: &h.majorFault,
		},
		Swap:   &stats.SwapStats{Time: at, SwapAvailableBytes: &h.swapFree, SwapUsageBytes: &h.swapUsed},
		Rlimit: &stats.RlimitStats{Time: at, MaxPID: &h.maxPID, NumOfRunningProcesses: &h.threads},
	}
}

func fsStats(now time.Time, d diskUsage) *stats.FsStats {
	used := d.inodes - d.inodesFree
	return &stats.FsStats{
		Time: metav1.NewTime(now), CapacityBytes: &d.total, AvailableBytes: &d.free, UsedBytes: &d.used,
		Inodes: &d.inodes, InodesFree: &d.inodesFree, InodesUsed: &used,
	}
}

// runtimeStats describes where the runtime keeps images and containers' changes.
func (s *Server) runtimeStats(ctx context.Context, now time.Time) *stats.RuntimeStats {
	info, err := s.cfg.Images.ImageFsInfo(ctx)
	if err != nil {
		return nil
	}
	of := func(list []*cri.FilesystemUsage) *stats.FsStats {
		if len(list) == 0 {
			return nil
		}
		disk, err := readDisk(list[0].GetFsId().GetMountpoint())
		if err != nil {
			return nil
		}
		fs := fsStats(now, disk)
		fs.UsedBytes, fs.InodesUsed = value(list[0].UsedBytes), value(list[0].InodesUsed)
		return fs
	}
	out := &stats.RuntimeStats{ImageFs: of(info.ImageFilesystems), ContainerFs: of(info.ContainerFilesystems)}
	if out.ContainerFs == nil {
		out.ContainerFs = out.ImageFs
	}
	return out
}

func (s *Server) podStats(ctx context.Context, p *cri.PodSandboxStats, node *stats.FsStats) stats.PodStats {
	a := p.GetAttributes()
	out := stats.PodStats{PodRef: stats.PodReference{Name: a.GetMetadata().GetName(), Namespace: a.GetMetadata().GetNamespace(), UID: a.GetMetadata().GetUid()}}
	pod, known := s.cfg.View.Pod(out.PodRef.Namespace, out.PodRef.Name)
	if known && pod.Status.StartTime != nil {
		out.StartTime = *pod.Status.StartTime
	}
	l := p.GetLinux()
	out.CPU, out.Memory = cpuStats(l.GetCpu()), memoryStats(l.GetMemory())
	out.Network = networkStats(l.GetNetwork())
	if n := l.GetProcess().GetProcessCount(); n != nil {
		out.ProcessStats = &stats.ProcessStats{ProcessCount: &n.Value}
	}
	var ephemeral uint64
	for _, c := range l.GetContainers() {
		cs := s.containerStats(ctx, c, pod, node)
		for _, fs := range []*stats.FsStats{cs.Rootfs, cs.Logs} {
			if fs != nil && fs.UsedBytes != nil {
				ephemeral += *fs.UsedBytes
			}
		}
		out.Containers = append(out.Containers, cs)
	}
	out.EphemeralStorage = withUsage(node, ephemeral)
	return out
}

func (s *Server) containerStats(ctx context.Context, c *cri.ContainerStats, pod *corev1.Pod, node *stats.FsStats) stats.ContainerStats {
	name := c.GetAttributes().GetMetadata().GetName()
	out := stats.ContainerStats{Name: name, CPU: cpuStats(c.Cpu), Memory: memoryStats(c.Memory)}
	if pod != nil {
		if st, ok := containerStatus(pod, name); ok && st.State.Running != nil {
			out.StartTime = st.State.Running.StartedAt
		}
	}
	if l := c.GetWritableLayer(); l != nil {
		used := l.GetUsedBytes().GetValue()
		out.Rootfs = withUsage(node, used)
		out.Rootfs.InodesUsed = value(l.InodesUsed)
	}
	if resp, err := s.cfg.Runtime.ContainerStatus(ctx, c.GetAttributes().GetId(), false); err == nil && resp.GetStatus().GetLogPath() != "" {
		// A container's folder holds its current log and those that were rotated.
		used, files := treeSize(filepath.Dir(resp.Status.LogPath))
		out.Logs = withUsage(node, used)
		out.Logs.InodesUsed = &files
	}
	if swap := c.GetSwap(); swap != nil {
		out.Swap = &stats.SwapStats{Time: stamp(swap.Timestamp), SwapUsageBytes: value(swap.SwapUsageBytes), SwapAvailableBytes: value(swap.SwapAvailableBytes)}
	}
	return out
}

// withUsage is the node's file system with somebody's share of it.
func withUsage(node *stats.FsStats, used uint64) *stats.FsStats {
	out := &stats.FsStats{UsedBytes: &used}
	if node != nil {
		out.Time, out.CapacityBytes, out.AvailableBytes, out.Inodes, out.InodesFree = node.Time, node.CapacityBytes, node.AvailableBytes, node.Inodes, node.InodesFree
	}
	return out
}

func cpuStats(c *cri.CpuUsage) *stats.CPUStats {
	if c == nil {
		return nil
	}
	return &stats.CPUStats{Time: stamp(c.Timestamp), UsageNanoCores: value(c.UsageNanoCores), UsageCoreNanoSeconds: value(c.UsageCoreNanoSeconds)}
}

func memoryStats(m *cri.MemoryUsage) *stats.MemoryStats {
	if m == nil {
		return nil
	}
	return &stats.MemoryStats{
		Time: stamp(m.Timestamp), AvailableBytes: value(m.AvailableBytes), UsageBytes: value(m.UsageBytes), WorkingSetBytes: value(m.WorkingSetBytes),
		RSSBytes: value(m.RssBytes), PageFaults: value(m.PageFaults), MajorPageFaults: value(m.MajorPageFaults),
	}
}

func networkStats(n *cri.NetworkUsage) *stats.NetworkStats {
	if n == nil {
		return nil
	}
	of := func(i *cri.NetworkInterfaceUsage) stats.InterfaceStats {
		return stats.InterfaceStats{Name: i.GetName(), RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()), TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors())}
	}
	out := &stats.NetworkStats{Time: stamp(n.Timestamp), InterfaceStats: of(n.DefaultInterface)}
	out.Interfaces = append(out.Interfaces, out.InterfaceStats)
	for _, i := range n.Interfaces {
		if i.GetName() != out.Name {
			out.Interfaces = append(out.Interfaces, of(i))
		}
	}
	return out
}

func value(v *cri.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	n := v.Value
	return &n
}

func stamp(nanos int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanos)) }

// reduce leaves what ?only_cpu_and_memory=true asks for.
func reduce(s *stats.Summary) {
	s.Node = stats.NodeStats{NodeName: s.Node.NodeName, StartTime: s.Node.StartTime, CPU: s.Node.CPU, Memory: s.Node.Memory}
	for i, p := range s.Pods {
		only := stats.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory}
		for _, c := range p.Containers {
			only.Containers = append(only.Containers, stats.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory})
		}
		s.Pods[i] = only
	}
}
