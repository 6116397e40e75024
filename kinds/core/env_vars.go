package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	envFieldPaths = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	volumeFieldPaths = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
	// podFieldPaths are all paths that the downward API knows, whether a place offers them or not.
	podFieldPaths = append([]string{"metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"}, envFieldPaths...)
	resourcePaths = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}
	cpuDivisors   = []string{"1m", "1"}
	byteDivisors  = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

func (c *podCheck) checkEnv(vars []corev1.EnvVar, path *field.Path) {
	for i := range vars {
		at := path.Index(i)
		if c.needs(at.Child("name"), vars[i].Name) {
			c.each(at.Child("name"), vars[i].Name, validation.IsRelaxedEnvVarName(vars[i].Name))
		}
		if vars[i].ValueFrom != nil {
			c.checkEnvSource(&vars[i], at.Child("valueFrom"))
		}
	}
}

func (c *podCheck) checkEnvSource(v *corev1.EnvVar, path *field.Path) {
	from, sources := v.ValueFrom, 0
	if from.FieldRef != nil {
		sources++
		checkFieldRef(&c.problems, from.FieldRef, envFieldPaths, path.Child("fieldRef"))
	}
	if from.ResourceFieldRef != nil {
		sources++
		checkResourceRef(&c.problems, from.ResourceFieldRef, false, path.Child("resourceFieldRef"))
	}
	if from.ConfigMapKeyRef != nil {
		sources++
		c.checkKeyRef(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, path.Child("configMapKeyRef"))
	}
	if from.SecretKeyRef != nil {
		sources++
		c.checkKeyRef(from.SecretKeyRef.Name, from.SecretKeyRef.Key, path.Child("secretKeyRef"))
	}
	if from.FileKeyRef != nil {
		sources++
		c.checkFileKeyRef(from.FileKeyRef, path.Child("fileKeyRef"))
	}
	switch {
	case sources == 0:
		c.invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case v.Value != "":
		c.invalid(path, "", "may not be specified when `value` is not empty")
	case sources > 1:
		c.invalid(path, "", "may not have more than one field specified at a time")
	}
}

func (c *podCheck) checkKeyRef(name, key string, path *field.Path) {
	c.subdomain(path.Child("name"), name)
	if c.needs(path.Child("key"), key) {
		c.each(path.Child("key"), key, validation.IsConfigMapKey(key))
	}
}

func (c *podCheck) checkFileKeyRef(ref *corev1.FileKeySelector, path *field.Path) {
	if c.needs(path.Child("key"), ref.Key) {
		c.each(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key))
	}
	c.neededLabel(path.Child("volumeName"), ref.VolumeName)
	if c.needs(path.Child("path"), ref.Path) {
		noBacksteps(&c.problems, ref.Path, path.Child("path"))
	}
}

// checkFileKeyVolumes: files that hold environment variables live in emptyDir volumes.
func (c *podCheck) checkFileKeyVolumes(path *field.Path) {
	visitContainers(c.spec, path, func(container *corev1.Container, at *field.Path) {
		for i, v := range container.Env {
			if v.ValueFrom == nil || v.ValueFrom.FileKeyRef == nil {
				continue
			}
			name, at := v.ValueFrom.FileKeyRef.VolumeName, at.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			n := slices.IndexFunc(c.spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
			if n < 0 {
				c.add(field.NotFound(at, name))
			} else if c.spec.Volumes[n].EmptyDir == nil {
				c.invalid(at, name, "referenced volume must be of type emptyDir")
			}
		}
	})
}

func (c *podCheck) checkEnvFrom(list []corev1.EnvFromSource, path *field.Path) {
	for i, from := range list {
		at, sources := path.Index(i), 0
		if from.Prefix != "" {
			c.each(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix))
		}
		if from.ConfigMapRef != nil {
			sources++
			c.neededSubdomain(at.Child("configMapRef", "name"), from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			sources++
			c.neededSubdomain(at.Child("secretRef", "name"), from.SecretRef.Name)
		}
		if sources == 0 {
			c.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
		} else if sources > 1 {
			c.invalid(path, "", "may not have more than one field specified at a time")
		}
	}
}

// checkFieldRef checks a reference of the downward API to one of the paths that the place offers.
func checkFieldRef(p *problems, ref *corev1.ObjectFieldSelector, offered []string, path *field.Path) {
	if !p.needs(path.Child("apiVersion"), ref.APIVersion) || !p.needs(path.Child("fieldPath"), ref.FieldPath) {
		return
	}
	if ref.APIVersion != "v1" {
		p.invalid(path.Child("fieldPath"), ref.FieldPath, "error converting fieldPath: unsupported pod version: "+ref.APIVersion)
		return
	}
	name, key, keyed := splitKeyedPath(ref.FieldPath)
	switch {
	case keyed && name == "metadata.annotations":
		p.qualified(path, strings.ToLower(key))
	case keyed && name == "metadata.labels":
		p.qualified(path, key)
	case keyed:
		p.invalid(path.Child("fieldPath"), ref.FieldPath, "error converting fieldPath: field label does not support subscript: "+ref.FieldPath)
	case !slices.Contains(podFieldPaths, name):
		p.invalid(path.Child("fieldPath"), ref.FieldPath, "error converting fieldPath: field label not supported: "+ref.FieldPath)
	default:
		oneOf(p, path.Child("fieldPath"), name, offered...)
	}
}

// splitKeyedPath takes metadata.labels['key'] apart.
func splitKeyedPath(path string) (name, key string, keyed bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	name, key, ok = strings.Cut(inner, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, key, true
}

// checkResourceRef checks a reference to a container's requests or limits. A volume must say whose; a variable means its own container's.
func checkResourceRef(p *problems, ref *corev1.ResourceFieldSelector, volume bool, path *field.Path) {
	huge := strings.HasPrefix(ref.Resource, "limits.hugepages-") || strings.HasPrefix(ref.Resource, "requests.hugepages-")
	switch {
	case volume && ref.ContainerName == "":
		p.required(path.Child("containerName"), "")
	case ref.Resource == "":
		p.required(path.Child("resource"), "")
	case !huge:
		oneOf(p, path.Child("resource"), ref.Resource, resourcePaths...)
	}
	if ref.Divisor.Cmp(resource.Quantity{}) == 0 {
		return
	}
	divisor := ref.Divisor.String()
	bad := func(allowed []string, what string) {
		if !slices.Contains(allowed, divisor) {
			p.invalid(path.Child("divisor"), ref.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", listed(allowed), what))
		}
	}
	switch _, name, _ := strings.Cut(ref.Resource, "."); {
	case huge:
		bad(byteDivisors, "hugepages")
	case name == "cpu":
		bad(cpuDivisors, "cpu")
	case name == "memory":
		bad(byteDivisors, "memory")
	case name == "ephemeral-storage":
		bad(byteDivisors, "local ephemeral storage")
	}
}

func listed(values []string) string {
	if len(values) == 2 {
		return values[0] + " and " + values[1]
	}
	return strings.Join(values, ", ")
}
