package core

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	tolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerations"
	appArmorPrefix        = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
)

// validatePodAnnotations checks annotations that have a meaning for a pod.
func validatePodAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var p problems
	if value, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		p.invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if text := annotations[tolerationsAnnotation]; text != "" {
		var tolerations []corev1.Toleration
		if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
			p.invalid(path, tolerationsAnnotation, err.Error())
		} else {
			checkTolerations(&p, tolerations, path.Child(tolerationsAnnotation))
		}
	}
	if cost, set := annotations[corev1.PodDeletionCost]; set && !isDeletionCost(cost) {
		p.invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer")
	}
	for key, value := range annotations {
		if name, ok := strings.CutPrefix(key, appArmorPrefix); ok {
			checkAppArmorAnnotation(&p, spec, name, value, path.Key(key))
		}
		if key == corev1.SeccompPodAnnotationKey || strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) {
			checkSeccompAnnotation(&p, value, path.Child(key))
		}
	}
	return p.list
}

var canonicalInteger = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// isDeletionCost: an integer written the one canonical way (no plus sign, no leading zero).
func isDeletionCost(text string) bool {
	_, err := strconv.ParseInt(text, 10, 32)
	return err == nil && canonicalInteger.MatchString(text)
}

func checkAppArmorAnnotation(p *problems, spec *corev1.PodSpec, container, profile string, at *field.Path) {
	found := false
	visitContainers(spec, nil, func(c *corev1.Container, _ *field.Path) { found = found || c.Name == container })
	if !found {
		p.invalid(at, container, "container not found")
	}
	switch {
	case profile == "", profile == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, profile == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		p.invalid(at, profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
	}
}

func checkSeccompAnnotation(p *problems, profile string, at *field.Path) {
	switch profile {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return
	}
	local, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix)
	if !ok {
		p.invalid(at, profile, "must be a valid seccomp profile")
		return
	}
	descendingPath(p, local, at)
}

// validateProfileAnnotations checks that old annotations and the fields that replaced them agree.
func validateProfileAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var p problems
	var podArmor *corev1.AppArmorProfile
	if sc := spec.SecurityContext; sc != nil {
		podArmor = sc.AppArmorProfile
		if text, set := annotations[corev1.SeccompPodAnnotationKey]; set && sc.SeccompProfile != nil {
			matchSeccomp(&p, text, sc.SeccompProfile, path.Child("securityContext", "seccompProfile"))
		}
	}
	windows := spec.OS != nil && spec.OS.Name == corev1.Windows
	visitContainers(spec, path, func(c *corev1.Container, at *field.Path) {
		at, armor := at.Child("securityContext"), podArmor
		if sc := c.SecurityContext; sc != nil {
			if sc.AppArmorProfile != nil {
				armor = sc.AppArmorProfile
			}
			if text, set := annotations[corev1.SeccompContainerAnnotationKeyPrefix+c.Name]; set && sc.SeccompProfile != nil {
				matchSeccomp(&p, text, sc.SeccompProfile, at.Child("seccompProfile"))
			}
		}
		if text, set := annotations[appArmorPrefix+c.Name]; set && armor != nil && !windows {
			matchAppArmor(&p, text, armor, at.Child("appArmorProfile"))
		}
	})
	return p.list
}

func matchSeccomp(p *problems, text string, profile *corev1.SeccompProfile, at *field.Path) {
	same := true
	switch profile.Type {
	case corev1.SeccompProfileTypeUnconfined:
		same = text == corev1.SeccompProfileNameUnconfined
	case corev1.SeccompProfileTypeRuntimeDefault:
		same = text == corev1.SeccompProfileRuntimeDefault || text == corev1.DeprecatedSeccompProfileDockerDefault
	case corev1.SeccompProfileTypeLocalhost:
		var local string
		if local, same = strings.CutPrefix(text, corev1.SeccompLocalhostProfileNamePrefix); same && (profile.LocalhostProfile == nil || local != *profile.LocalhostProfile) {
			p.forbidden(at.Child("localhostProfile"), "seccomp profile in annotation and field must match")
		}
	}
	if !same {
		p.forbidden(at.Child("type"), "seccomp type in annotation and field must match")
	}
}

func matchAppArmor(p *problems, text string, profile *corev1.AppArmorProfile, at *field.Path) {
	same := true
	switch profile.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		same = text == corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeRuntimeDefault:
		same = text == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeLocalhost:
		var local string
		if local, same = strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix); same && (profile.LocalhostProfile == nil || local != *profile.LocalhostProfile) {
			p.forbidden(at.Child("localhostProfile"), "apparmor profile in annotation and field must match")
		}
	}
	if !same {
		p.forbidden(at.Child("type"), "apparmor type in annotation and field must match")
	}
}

// armorFromAnnotations copies AppArmor profiles that older clients give as annotations into the fields, unless the pod's own profile says the
// same already.
func armorFromAnnotations(pod *corev1.Pod) {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return
	}
	visitContainers(&pod.Spec, nil, func(c *corev1.Container, _ *field.Path) {
		text, set := pod.Annotations[appArmorPrefix+c.Name]
		if !set || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return
		}
		profile := armorProfile(text)
		if profile == nil || reflect.DeepEqual(profile, pod.Spec.SecurityContext.AppArmorProfile) {
			return
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	})
}

func armorProfile(text string) *corev1.AppArmorProfile {
	switch text {
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	if local, ok := strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix); ok && strings.TrimSpace(local) == local && local != "" {
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
	}
	return nil
}
