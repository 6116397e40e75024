package core

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *podCheck) checkMounts(container *corev1.Container, path *field.Path) {
	points := sets.New[string]()
	for i := range container.VolumeMounts {
		mount, at := &container.VolumeMounts[i], path.Index(i)
		c.needs(at.Child("name"), mount.Name)
		if c.volumes[mount.Name] == nil {
			c.add(field.NotFound(at.Child("name"), mount.Name))
		}
		c.needs(at.Child("mountPath"), mount.MountPath)
		if points.Has(mount.MountPath) {
			c.invalid(at.Child("mountPath"), mount.MountPath, "must be unique")
		}
		points.Insert(mount.MountPath)
		if slices.ContainsFunc(container.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == mount.Name }) {
			c.invalid(at.Child("name"), mount.Name, "must not already exist in volumeDevices")
		}
		if slices.ContainsFunc(container.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.DevicePath == mount.MountPath }) {
			c.invalid(at.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices")
		}
		if mount.SubPath != "" && mount.SubPathExpr != "" {
			c.invalid(at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		}
		c.checkMountOptions(mount, container, path) // the causes name the list, not the mount
	}
}

func (c *podCheck) checkMountOptions(mount *corev1.VolumeMount, container *corev1.Container, at *field.Path) {
	if mount.SubPath != "" {
		descendingPath(&c.problems, mount.SubPath, at.Child("subPath"))
	}
	if mount.SubPathExpr != "" {
		descendingPath(&c.problems, mount.SubPathExpr, at.Child("subPathExpr"))
	}
	optionalOneOf(&c.problems, at.Child("mountPropagation"), mount.MountPropagation,
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	if mount.MountPropagation != nil && *mount.MountPropagation == corev1.MountPropagationBidirectional && !privileged(container) {
		c.forbidden(at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")
	}
	if mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return
	}
	recursive := at.Child("recursiveReadOnly")
	switch *mount.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		if !mount.ReadOnly {
			c.forbidden(recursive, "may only be specified when readOnly is true")
		}
		if mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone {
			c.forbidden(recursive, "may only be specified when mountPropagation is None or not specified")
		}
	default:
		oneOf(&c.problems, recursive, *mount.RecursiveReadOnly, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
	}
}

func privileged(container *corev1.Container) bool {
	return container.SecurityContext != nil && container.SecurityContext.Privileged != nil && *container.SecurityContext.Privileged
}

// checkDevices checks raw block devices.
func (c *podCheck) checkDevices(container *corev1.Container, path *field.Path) {
	names, paths := sets.New[string](), sets.New[string]()
	for i, device := range container.VolumeDevices {
		at := path.Index(i)
		c.needs(at.Child("name"), device.Name)
		if device.Name != "" && names.Has(device.Name) {
			c.invalid(at.Child("name"), device.Name, "must be unique")
		}
		names.Insert(device.Name)
		switch volume := c.volumes[device.Name]; {
		case volume == nil:
			c.add(field.NotFound(at.Child("name"), device.Name))
		case volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil:
			c.invalid(at.Child("name"), device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		c.needs(at.Child("devicePath"), device.DevicePath)
		if paths.Has(device.DevicePath) {
			c.invalid(at.Child("devicePath"), device.DevicePath, "must be unique")
		}
		if hasBackstep(device.DevicePath) {
			c.invalid(at.Child("devicePath"), device.DevicePath, "can not contain backsteps ('..')")
		} else {
			paths.Insert(device.DevicePath)
		}
		if slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == device.Name }) {
			c.invalid(at.Child("name"), device.Name, "must not already exist in volumeMounts")
		}
		if slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == device.DevicePath }) {
			c.invalid(at.Child("devicePath"), device.DevicePath, "must not already exist as a path in volumeMounts")
		}
	}
}

func hasBackstep(name string) bool {
	return slices.Contains(strings.Split(name, "/"), "..")
}

func noBacksteps(p *problems, name string, at *field.Path) {
	if hasBackstep(name) {
		p.invalid(at, name, "must not contain '..'")
	}
}

// descendingPath checks a path that stays below where it starts.
func descendingPath(p *problems, name string, at *field.Path) {
	if path.IsAbs(name) {
		p.invalid(at, name, "must be a relative path")
	}
	noBacksteps(p, name, at)
}

// unreservedPath is a descending path that does not start with "..", which the node keeps for its own links.
func unreservedPath(p *problems, name string, at *field.Path) {
	descendingPath(p, name, at)
	if strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../") {
		p.invalid(at, name, "must not start with '..'")
	}
}
