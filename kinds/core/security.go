package core

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"
)

func (c *podCheck) checkPodSecurity(sc *corev1.PodSecurityContext, path *field.Path) {
	if share := c.spec.ShareProcessNamespace; share != nil && *share && c.spec.HostPID {
		c.invalid(path.Child("shareProcessNamespace"), *share, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	if sc == nil {
		return
	}
	c.checkIDs(sc.RunAsUser, sc.RunAsGroup, path)
	if sc.FSGroup != nil {
		c.each(path.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup))
	}
	for i, id := range sc.SupplementalGroups {
		c.each(path.Child("supplementalGroups").Index(i), id, validation.IsValidGroupID(id))
	}
	c.checkSysctls(sc.Sysctls, path.Child("sysctls"))
	optionalOneOf(&c.problems, path.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy, corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways)
	optionalOneOf(&c.problems, path.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	optionalOneOf(&c.problems, path.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive)
	c.checkSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))
	c.checkAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))
	c.checkWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))
}

func (c *podCheck) checkIDs(user, group *int64, path *field.Path) {
	if user != nil {
		c.each(path.Child("runAsUser"), *user, validation.IsValidUserID(*user))
	}
	if group != nil {
		c.each(path.Child("runAsGroup"), *group, validation.IsValidGroupID(*group))
	}
}

func (c *podCheck) checkSecurity(sc *corev1.SecurityContext, path *field.Path) {
	if sc == nil {
		return
	}
	c.checkIDs(sc.RunAsUser, sc.RunAsGroup, path)
	optionalOneOf(&c.problems, path.Child("procMount"), sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
	if sc.ProcMount != nil && *sc.ProcMount == corev1.UnmaskedProcMount && c.hostUsers {
		c.invalid(path.Child("procMount"), sc.ProcMount, "`hostUsers` must be false to use `Unmasked`")
	}
	c.checkSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			c.invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
			c.invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
		}
	}
	c.checkWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))
	c.checkAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))
}

const sysctlSegment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"

var sysctlName = regexp.MustCompile("^(" + sysctlSegment + `[\./])*` + sysctlSegment + "$")

func (c *podCheck) checkSysctls(list []corev1.Sysctl, path *field.Path) {
	names := sets.New[string]()
	for i, s := range list {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			c.required(at, "")
		case len(s.Name) > 253 || !sysctlName.MatchString(s.Name):
			c.invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", 253, sysctlName))
		case names.Has(s.Name):
			c.add(field.Duplicate(at, s.Name))
		}
		names.Insert(s.Name)
		switch namespace, _, _ := sysctl.GetNamespace(s.Name); {
		case c.spec.HostNetwork && namespace == sysctl.NetNamespace:
			c.invalid(at, s.Name, "may not be specified when 'hostNetwork' is true")
		case c.spec.HostIPC && namespace == sysctl.IPCNamespace:
			c.invalid(at, s.Name, "may not be specified when 'hostIPC' is true")
		}
	}
}

func (c *podCheck) checkSeccomp(profile *corev1.SeccompProfile, path *field.Path) {
	if profile == nil {
		return
	}
	if profile.Type == "" {
		c.required(path.Child("type"), "type is required when seccompProfile is set")
	} else {
		oneOf(&c.problems, path.Child("type"), profile.Type, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at := path.Child("localhostProfile")
	switch local := profile.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && profile.LocalhostProfile == nil:
		c.required(at, "must be set when seccomp type is Localhost")
	case local:
		descendingPath(&c.problems, *profile.LocalhostProfile, at)
	case profile.LocalhostProfile != nil:
		c.invalid(at, *profile.LocalhostProfile, "can only be set when seccomp type is Localhost")
	}
}

func (c *podCheck) checkAppArmor(profile *corev1.AppArmorProfile, path *field.Path) {
	if profile == nil {
		return
	}
	at := path.Child("localhostProfile")
	switch profile.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch name := profile.LocalhostProfile; {
		case name == nil || *name == "":
			c.required(at, "must be set when AppArmor type is Localhost")
		case strings.TrimSpace(*name) != *name:
			c.invalid(at, *name, "must not be padded with whitespace")
		case len(*name) > 4095:
			c.add(field.TooLong(at, "", 4095))
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if profile.LocalhostProfile != nil {
			c.invalid(at, *profile.LocalhostProfile, "can only be set when AppArmor type is Localhost")
		}
	case "":
		c.required(path.Child("type"), "type is required when appArmorProfile is set")
	default:
		oneOf(&c.problems, path.Child("type"), profile.Type, corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
}

// checkHostUsers: a user namespace of its own does not go with the host's other namespaces, nor with raw block devices, which can't be mapped.
func (c *podCheck) checkHostUsers(path *field.Path) {
	if c.hostUsers {
		return
	}
	const why = "when `hostUsers` is false"
	if c.spec.HostNetwork {
		c.forbidden(path.Child("hostNetwork"), why)
	}
	if c.spec.HostPID {
		c.forbidden(path.Child("hostPID"), why)
	}
	if c.spec.HostIPC {
		c.forbidden(path.Child("hostIPC"), why)
	}
	visitContainers(c.spec, path, func(container *corev1.Container, at *field.Path) {
		if len(container.VolumeDevices) > 0 {
			c.forbidden(at.Child("volumeDevices"), why)
		}
	})
}
