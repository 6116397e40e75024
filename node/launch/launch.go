// Package launch turns a pod into what a container runtime is asked for: the config of its sandbox and of each container.
//
// A Builder is set up once per node. Its methods read no API and start nothing; they write only the pod's hosts file and termination files, under
// the pod's own folder. A field that this node can't honour gives an error that says so, never a container without it. Safe for
// concurrent use.
package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The labels and annotations by which containers are found again. They are the kubelet's, so that tools (crictl, cAdvisor, log
// collectors) recognise them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash              = "io.kubernetes.container.hash"
	AnnotationRestartCount      = "io.kubernetes.container.restartCount"
	AnnotationTerminationPath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationPolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop           = "io.kubernetes.container.preStopHandler"
	annotationPorts             = "io.kubernetes.container.ports"
	annotationPodGrace          = "io.kubernetes.pod.terminationGracePeriod"
	annotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
)

// Builder holds the node's facts.
type Builder struct {
	// Root is the node's data folder; a pod's own is <Root>/pods/<uid>. LogRoot is where container logs go, by convention /var/log/pods.
	Root, LogRoot string
	// ClusterDNS are the addresses of the cluster's DNS, and ClusterDomain its domain, such as cluster.local.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the file with the host's DNS settings; empty means none.
	ResolvConf string
	// SeccompRoot is where Localhost seccomp profiles are; empty means <Root>/seccomp.
	SeccompRoot string
	// SeccompUnconfined makes containers that name no seccomp profile run without one, instead of with the runtime's default.
	SeccompUnconfined bool
	// MemoryCapacity is the machine's memory in bytes, from which OOM scores follow.
	MemoryCapacity int64
	// OOMFloor is the lowest oom_score_adj that this process may give a container; -1000 where it has CAP_SYS_RESOURCE.
	OOMFloor int
	// HugePageSizes are those that the kernel offers, as in cgroup files: "2MB", "1GB".
	HugePageSizes []string
	// RecursiveReadOnly says that the runtime can make mounts read-only recursively.
	RecursiveReadOnly bool
	// AppArmor says that the kernel enforces AppArmor profiles; without it, a pod that asks for a Localhost one is refused.
	AppArmor bool
}

// PodDir is the folder of a pod.
func (b *Builder) PodDir(uid types.UID) string { return filepath.Join(b.Root, "pods", string(uid)) }

// LogDir is the folder of a pod's container logs.
func (b *Builder) LogDir(pod *corev1.Pod) string {
	return filepath.Join(b.LogRoot, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// LogPath is the path of one container's log, within LogDir.
func LogPath(container string, attempt int) string {
	return filepath.Join(container, fmt.Sprintf("%d.log", attempt))
}

// TerminationFile is the host's side of a container's termination message.
func (b *Builder) TerminationFile(uid types.UID, container string, attempt int) string {
	return filepath.Join(b.PodDir(uid), "containers", container, fmt.Sprintf("termination-%d", attempt))
}

// maxHostname is the kernel's limit.
const maxHostname = 63

// Hostname answers the host name of a pod and, if it has a subdomain, its domain.
func (b *Builder) Hostname(pod *corev1.Pod) (name, domain string) {
	if o := pod.Spec.HostnameOverride; o != nil {
		return truncate(*o), ""
	}
	name = pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, b.ClusterDomain)
	}
	return truncate(name), domain
}

func truncate(name string) string {
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-.")
	}
	return name
}

// sandboxHostname is what the kernel's host name is set to.
func (b *Builder) sandboxHostname(pod *corev1.Pod) (string, error) {
	name, domain := b.Hostname(pod)
	if pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN || domain == "" {
		return name, nil
	}
	fqdn := name + "." + domain
	if len(fqdn) > 64 {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (64 characters is the max, %d characters requested)", fqdn, len(fqdn))
	}
	return fqdn, nil
}

// writeFile writes a file that a container will see, making its folder.
func writeFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
