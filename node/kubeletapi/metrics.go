package kubeletapi

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// textFormat is Prometheus' exposition format, version 0.0.4.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// resourceMetrics serves what metrics-server reads: CPU and memory of the node,
// its pods and containers.
func (s *Server) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", textFormat)
	sum, err := s.collect(r.Context())
	if err != nil {
		s.cfg.Log.Warn("node API: statistics failed", "err", err)
		sum = &stats.Summary{}
	}
	m := &exposition{}
	resourceFamilies(m, sum)
	failed := 0.0
	if err != nil {
		failed = 1
	}
	for _, name := range []string{"resource_scrape_error", "scrape_error"} {
		m.family(name, "gauge", "1 if there was an error while getting container metrics, 0 otherwise.")
		m.sample(name, failed, time.Time{})
	}
	m.writeTo(w)
}

func resourceFamilies(m *exposition, sum *stats.Summary) {
	containers := func(name, kind, help string, get func(stats.ContainerStats) (*uint64, float64, time.Time)) {
		m.family(name, kind, help)
		for _, p := range sum.Pods {
			for _, c := range p.Containers {
				if v, scale, at := get(c); v != nil {
					m.sample(name, float64(*v)*scale, at, "container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
				}
			}
		}
	}
	containers("container_cpu_usage_seconds_total", "counter", "Cumulative CPU time consumed by the container in core-seconds.", func(c stats.ContainerStats) (*uint64, float64, time.Time) {
		return cpuOf(c.CPU)
	})
	containers("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes.", func(c stats.ContainerStats) (*uint64, float64, time.Time) {
		return memoryOf(c.Memory)
	})
	m.family("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.")
	for _, p := range sum.Pods {
		for _, c := range p.Containers {
			if !c.StartTime.IsZero() {
				m.sample("container_start_time_seconds", float64(c.StartTime.UnixNano())/1e9, time.Time{}, "container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
			}
		}
	}
	one := func(name, kind, help string, v *uint64, scale float64, at time.Time, labels ...string) {
		m.family(name, kind, help)
		if v != nil {
			m.sample(name, float64(*v)*scale, at, labels...)
		}
	}
	v, scale, at := cpuOf(sum.Node.CPU)
	one("node_cpu_usage_seconds_total", "counter", "Cumulative CPU time consumed by the node in core-seconds.", v, scale, at)
	v, scale, at = memoryOf(sum.Node.Memory)
	one("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes.", v, scale, at)
	m.family("pod_cpu_usage_seconds_total", "counter", "Cumulative CPU time consumed by the pod in core-seconds.")
	for _, p := range sum.Pods {
		if v, scale, at := cpuOf(p.CPU); v != nil {
			m.sample("pod_cpu_usage_seconds_total", float64(*v)*scale, at, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		}
	}
	m.family("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes.")
	for _, p := range sum.Pods {
		if v, scale, at := memoryOf(p.Memory); v != nil {
			m.sample("pod_memory_working_set_bytes", float64(*v)*scale, at, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		}
	}
}

func cpuOf(c *stats.CPUStats) (*uint64, float64, time.Time) {
	if c == nil {
		return nil, 0, time.Time{}
	}
	return c.UsageCoreNanoSeconds, 1e-9, c.Time.Time
}

func memoryOf(m *stats.MemoryStats) (*uint64, float64, time.Time) {
	if m == nil {
		return nil, 0, time.Time{}
	}
	return m.WorkingSetBytes, 1, m.Time.Time
}

// containerMetrics serves the part of cAdvisor's metrics that the runtime's
// statistics hold, under cAdvisor's names and labels.
func (s *Server) containerMetrics(w http.ResponseWriter, r *http.Request) {
	sum, err := s.collect(r.Context())
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", textFormat)
	m := &exposition{}
	containerFamilies(m, sum)
	m.writeTo(w)
}

func containerFamilies(m *exposition, sum *stats.Summary) {
	each := func(name, kind, help string, get func(stats.ContainerStats) (*uint64, float64, time.Time)) {
		m.family(name, kind, help)
		for _, p := range sum.Pods {
			for _, c := range p.Containers {
				if v, scale, at := get(c); v != nil {
					m.sample(name, float64(*v)*scale, at, "container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
				}
			}
		}
	}
	memory := func(pick func(*stats.MemoryStats) *uint64) func(stats.ContainerStats) (*uint64, float64, time.Time) {
		return func(c stats.ContainerStats) (*uint64, float64, time.Time) {
			if c.Memory == nil {
				return nil, 0, time.Time{}
			}
			return pick(c.Memory), 1, c.Memory.Time.Time
		}
	}
	each("container_cpu_usage_seconds_total", "counter", "Cumulative CPU time consumed in seconds.", func(c stats.ContainerStats) (*uint64, float64, time.Time) { return cpuOf(c.CPU) })
	each("container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory regardless of when it was accessed.", memory(func(m *stats.MemoryStats) *uint64 { return m.UsageBytes }))
	each("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", memory(func(m *stats.MemoryStats) *uint64 { return m.WorkingSetBytes }))
	each("container_memory_rss", "gauge", "Size of RSS in bytes.", memory(func(m *stats.MemoryStats) *uint64 { return m.RSSBytes }))
	each("container_fs_usage_bytes", "gauge", "Number of bytes consumed by the container on its file system.", func(c stats.ContainerStats) (*uint64, float64, time.Time) {
		if c.Rootfs == nil {
			return nil, 0, time.Time{}
		}
		return c.Rootfs.UsedBytes, 1, c.Rootfs.Time.Time
	})
	network := func(name, help string, pick func(stats.InterfaceStats) *uint64) {
		m.family(name, "counter", help)
		for _, p := range sum.Pods {
			if p.Network == nil {
				continue
			}
			for _, i := range p.Network.Interfaces {
				if v := pick(i); v != nil {
					m.sample(name, float64(*v), p.Network.Time.Time, "container", "", "interface", i.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
				}
			}
		}
	}
	network("container_network_receive_bytes_total", "Cumulative count of bytes received.", func(i stats.InterfaceStats) *uint64 { return i.RxBytes })
	network("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted.", func(i stats.InterfaceStats) *uint64 { return i.TxBytes })
	network("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving.", func(i stats.InterfaceStats) *uint64 { return i.RxErrors })
	network("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting.", func(i stats.InterfaceStats) *uint64 { return i.TxErrors })
	if mem := sum.Node.Memory; mem != nil && mem.AvailableBytes != nil && mem.WorkingSetBytes != nil {
		m.family("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.")
		m.sample("machine_memory_bytes", float64(*mem.AvailableBytes+*mem.WorkingSetBytes), time.Time{})
	}
}

// exposition is text in Prometheus' format. Samples carry the time at which they
// were measured, which lies before the scrape.
type exposition struct{ b strings.Builder }

func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(&e.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample takes labels as name, value, name, value.
func (e *exposition) sample(name string, v float64, at time.Time, labels ...string) {
	e.b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		e.b.WriteByte(sep)
		fmt.Fprintf(&e.b, `%s="%s"`, labels[i], escape.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		e.b.WriteByte('}')
	}
	e.b.WriteByte(' ')
	e.b.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
	if !at.IsZero() {
		e.b.WriteByte(' ')
		e.b.WriteString(strconv.FormatInt(at.UnixMilli(), 10))
	}
	e.b.WriteByte('\n')
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (e *exposition) writeTo(w io.Writer) { _, _ = io.WriteString(w, e.b.String()) }
