package core

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *podCheck) checkOS(path *field.Path) {
	os := c.spec.OS
	switch {
	case os == nil:
	case os.Name == "":
		c.required(path.Child("os", "name"), "")
	case os.Name == corev1.Linux:
		c.checkLinux(path)
	case os.Name == corev1.Windows:
		c.checkWindows(path)
	default:
		oneOf(&c.problems, path.Child("os"), os.Name, corev1.Linux, corev1.Windows)
	}
}

func (c *podCheck) checkLinux(path *field.Path) {
	const why = "windows options cannot be set for a linux pod"
	if sc := c.spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		c.forbidden(path.Child("securityContext", "windowsOptions"), why)
	}
	visitContainers(c.spec, path, func(container *corev1.Container, at *field.Path) {
		if sc := container.SecurityContext; sc != nil && sc.WindowsOptions != nil {
			c.forbidden(at.Child("securityContext", "windowsOptions"), why)
		}
	})
}

// checkWindows refuses what only Linux has.
func (c *podCheck) checkWindows(path *field.Path) {
	refuse := func(set bool, at *field.Path) {
		if set {
			c.forbidden(at, "cannot be set for a windows pod")
		}
	}
	refuse(c.spec.HostUsers != nil, path.Child("hostUsers"))
	refuse(c.spec.HostPID, path.Child("hostPID"))
	refuse(c.spec.HostIPC, path.Child("hostIPC"))
	refuse(c.spec.ShareProcessNamespace != nil, path.Child("shareProcessNamespace"))
	if sc, at := c.spec.SecurityContext, path.Child("securityContext"); sc != nil {
		refuse(sc.AppArmorProfile != nil, at.Child("appArmorProfile"))
		refuse(sc.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		refuse(sc.SeccompProfile != nil, at.Child("seccompProfile"))
		refuse(sc.FSGroup != nil, at.Child("fsGroup"))
		refuse(sc.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		refuse(len(sc.Sysctls) > 0, at.Child("sysctls"))
		refuse(sc.RunAsUser != nil, at.Child("runAsUser"))
		refuse(sc.RunAsGroup != nil, at.Child("runAsGroup"))
		refuse(sc.SupplementalGroups != nil, at.Child("supplementalGroups"))
		refuse(sc.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
		refuse(sc.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
	}
	visitContainers(c.spec, path, func(container *corev1.Container, at *field.Path) {
		sc, at := container.SecurityContext, at.Child("securityContext")
		if sc == nil {
			return
		}
		refuse(sc.AppArmorProfile != nil, at.Child("appArmorProfile"))
		refuse(sc.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		refuse(sc.SeccompProfile != nil, at.Child("seccompProfile"))
		refuse(sc.Capabilities != nil, at.Child("capabilities"))
		refuse(sc.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
		refuse(sc.Privileged != nil, at.Child("privileged"))
		refuse(sc.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
		refuse(sc.ProcMount != nil, at.Child("procMount"))
		refuse(sc.RunAsUser != nil, at.Child("runAsUser"))
		refuse(sc.RunAsGroup != nil, at.Child("runAsGroup"))
	})
}

// checkHostProcess: a Windows pod with one HostProcess container has only such, on the host's network.
func (c *podCheck) checkHostProcess(path *field.Path) {
	var ofPod *bool
	if sc := c.spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		ofPod = sc.WindowsOptions.HostProcess
	}
	all, host := 0, 0
	visitContainers(c.spec, path, func(container *corev1.Container, at *field.Path) {
		all++
		own := ofPod
		if sc := container.SecurityContext; sc != nil && sc.WindowsOptions != nil && sc.WindowsOptions.HostProcess != nil {
			own = sc.WindowsOptions.HostProcess
			if ofPod != nil && *ofPod != *own {
				c.invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod))
			}
		}
		if own != nil && *own {
			host++
		}
	})
	if host == 0 {
		return
	}
	if host != all {
		c.invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !c.spec.HostNetwork {
		c.invalid(path.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}

const maxCredentialSpecKiB = 64

func (c *podCheck) checkWindowsOptions(o *corev1.WindowsSecurityContextOptions, path *field.Path) {
	if o == nil {
		return
	}
	if o.GMSACredentialSpecName != nil {
		c.subdomain(path.Child("gmsaCredentialSpecName"), *o.GMSACredentialSpecName)
	}
	if spec, at := o.GMSACredentialSpec, path.Child("gmsaCredentialSpec"); spec != nil {
		if *spec == "" {
			c.invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string")
		} else if len(*spec) > maxCredentialSpecKiB<<10 {
			c.invalid(at, "<omitted>", fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpecKiB))
		}
	}
	if o.RunAsUserName != nil {
		for _, why := range wrongWindowsUser(*o.RunAsUserName) {
			c.invalid(path.Child("runAsUserName"), *o.RunAsUserName, "runAsUserName"+why)
		}
	}
}

var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]`)
	netBIOSDomain     = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDNSDomain  = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	onlyDotsAndSpaces = regexp.MustCompile(`^[\. ]+$`)
)

// wrongWindowsUser says what is wrong with DOMAIN\user or user. Limits are Microsoft's naming conventions.
func wrongWindowsUser(name string) (why []string) {
	if name == "" {
		return []string{" cannot be an empty string"}
	}
	if controlCharacters.MatchString(name) {
		return []string{" cannot contain control characters"}
	}
	if strings.Count(name, `\`) > 1 {
		return []string{" cannot contain more than one backslash"}
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		user = name
	} else {
		if len(domain) >= 256 {
			why = append(why, "'s Domain length must be under 256 characters")
		}
		if !netBIOSDomain.MatchString(domain) && !windowsDNSDomain.MatchString(domain) {
			why = append(why, "'s Domain doesn't match the NetBios nor the DNS format")
		}
	}
	if user == "" {
		why = append(why, "'s User cannot be empty")
	} else if len(user) > 104 {
		why = append(why, "'s User length must not be longer than 104 characters")
	}
	if onlyDotsAndSpaces.MatchString(user) {
		why = append(why, "'s User cannot contain only periods or spaces")
	}
	if strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`) {
		why = append(why, `'s User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return why
}
