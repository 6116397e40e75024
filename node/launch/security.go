package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/machine"
)

// masked and readOnly are what a container may not see or change of /proc and /sys, unless its procMount is Unmasked. Source: the API
// documentation of SecurityContext.procMount and the defaults of container runtimes.
var (
	masked = []string{"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
	readOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

func uid(s string) types.UID { return types.UID(s) }

// effective merges the security context of a container over its pod's.
func effective(pod *corev1.Pod, c *corev1.Container) *corev1.SecurityContext {
	out := &corev1.SecurityContext{}
	if c.SecurityContext != nil {
		out = c.SecurityContext.DeepCopy()
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return out
	}
	if out.SELinuxOptions == nil {
		out.SELinuxOptions = p.SELinuxOptions
	}
	if out.RunAsUser == nil {
		out.RunAsUser = p.RunAsUser
	}
	if out.RunAsGroup == nil {
		out.RunAsGroup = p.RunAsGroup
	}
	if out.RunAsNonRoot == nil {
		out.RunAsNonRoot = p.RunAsNonRoot
	}
	if out.SeccompProfile == nil {
		out.SeccompProfile = p.SeccompProfile
	}
	if out.AppArmorProfile == nil {
		out.AppArmorProfile = p.AppArmorProfile
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }

func (b *Builder) security(in Container) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := effective(in.Pod, in.Spec)
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:       isTrue(sc.Privileged),
		ReadonlyRootfs:   isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		NamespaceOptions: namespaces(in.Pod),
		SelinuxOptions:   selinux(sc.SELinuxOptions),
		Capabilities:     capabilities(sc.Capabilities),
		MaskedPaths:      masked,
		ReadonlyPaths:    readOnly,
	}
	if sc.ProcMount != nil && *sc.ProcMount == corev1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = []string{}, []string{}
	}
	if in.Target != "" && out.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		out.NamespaceOptions.Pid, out.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, in.Target
	}
	user(out, sc, in.Image)
	if p := in.Pod.Spec.SecurityContext; p != nil {
		out.SupplementalGroups, out.SupplementalGroupsPolicy = podGroups(p)
	}
	var err error
	if out.Seccomp, err = b.seccomp(sc); err != nil {
		return nil, err
	}
	out.Apparmor, err = b.appArmor(in.Pod, in.Spec, sc)
	return out, err
}

// user sets who the container runs as: the spec's user, else the image's.
func user(out *runtimeapi.LinuxContainerSecurityContext, sc *corev1.SecurityContext, image Image) {
	switch {
	case sc.RunAsUser != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *sc.RunAsUser}
	case image.UID != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *image.UID}
	default:
		out.RunAsUsername = image.User
	}
	if sc.RunAsGroup != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *sc.RunAsGroup}
	}
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, add := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(add))
	}
	for _, drop := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(drop))
	}
	return out
}

func (b *Builder) seccomp(sc *corev1.SecurityContext) (*runtimeapi.SecurityProfile, error) {
	p := sc.SeccompProfile
	switch {
	case p == nil && (b.SeccompUnconfined || isTrue(sc.Privileged)):
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p == nil || p.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p.Type == corev1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
	if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
		return nil, fmt.Errorf("seccompProfile: localhostProfile must be set if type is Localhost")
	}
	root := b.SeccompRoot
	if root == "" {
		root = filepath.Join(b.Root, "seccomp")
	}
	path := filepath.Join(root, filepath.Clean("/"+*p.LocalhostProfile))
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("seccompProfile: %w", err)
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: path}, nil
}

// appArmor answers a container's profile, by its fields or by the annotation that came before them.
func (b *Builder) appArmor(pod *corev1.Pod, c *corev1.Container, sc *corev1.SecurityContext) (*runtimeapi.SecurityProfile, error) {
	p := sc.AppArmorProfile
	if p == nil {
		p = annotatedAppArmor(pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name])
	}
	if p == nil || isTrue(sc.Privileged) && p.Type != corev1.AppArmorProfileTypeLocalhost {
		return nil, nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
	if p.LocalhostProfile == nil {
		return nil, fmt.Errorf("missing localhost apparmor profile name")
	}
	if !b.AppArmor {
		return nil, fmt.Errorf("Cannot enforce AppArmor: AppArmor is not enabled on the host, and container %s asks for profile %q", c.Name, *p.LocalhostProfile) //nolint:staticcheck // the words users know
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}, nil
}

func annotatedAppArmor(value string) *corev1.AppArmorProfile {
	switch {
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case strings.HasPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		name := strings.TrimPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}

// checkNonRoot refuses a container that must not run as root and would, or might.
func checkNonRoot(pod *corev1.Pod, c *corev1.Container, image Image) error {
	sc := effective(pod, c)
	if !isTrue(sc.RunAsNonRoot) {
		return nil
	}
	name := machine.FullName(pod)
	switch {
	case sc.RunAsUser != nil && *sc.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", name, c.Name)
	case sc.RunAsUser != nil:
		return nil
	case image.UID == nil && image.User != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)", image.User, name, c.Name)
	case image.UID == nil, *image.UID == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", name, c.Name)
	}
	return nil
}

func stopSignal(c *corev1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT
	}
	name := strings.Replace(strings.Replace(string(*c.Lifecycle.StopSignal), "RTMIN+", "RTMINPLUS", 1), "RTMAX-", "RTMAXMINUS", 1)
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
}
