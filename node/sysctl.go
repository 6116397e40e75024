package node

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/machine"
)

// safeSysctls may be set by any pod: they are the pod's own, and touch no other. Source: Kubernetes documentation, "Using sysctls in a cluster".
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// judgeSysctls refuses a pod that sets kernel parameters which are neither safe nor allowed, or which the pod shares with the host. A pattern
// in allowed may end with *.
func judgeSysctls(pod *corev1.Pod, allowed []string) *machine.Verdict {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		why := ""
		switch {
		case strings.HasPrefix(name, "net.") && pod.Spec.HostNetwork:
			why = fmt.Sprintf("%q not allowed with host net enabled", name)
		case ipcSysctl(name) && pod.Spec.HostIPC:
			why = fmt.Sprintf("%q not allowed with host ipc enabled", name)
		case slices.Contains(safeSysctls, name):
		case !slices.ContainsFunc(allowed, func(p string) bool { return matchesSysctl(p, name) }):
			why = fmt.Sprintf("%q not allowlisted", name)
		}
		if why != "" {
			return &machine.Verdict{Reason: "SysctlForbidden", Message: "forbidden sysctl: " + why}
		}
	}
	return nil
}

func ipcSysctl(name string) bool {
	return name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || strings.HasPrefix(name, "fs.mqueue.")
}

func matchesSysctl(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
