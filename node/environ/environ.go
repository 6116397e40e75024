// Package environ makes the environment of a container: from values with $(NAME) references, config maps, secrets, the pod's own fields,
// files, and the services of the namespace.
//
// It reads objects through Sources and starts nothing. Errors name the object and key that is missing, in the words that users of Kubernetes
// know. Safe for concurrent use.
package environ

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/node/downward"
)

// Sources is where values come from.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services lists the services of a namespace.
	Services(namespace string) []*corev1.Service
	// File answers the content of a file in one of the pod's volumes.
	File(pod *corev1.Pod, volume, path string) ([]byte, error)
}

// Var is one variable.
type Var struct{ Name, Value string }

// Make answers the environment of a container: what it declares, in order of declaration, then the service variables it does not override.
func Make(ctx context.Context, pod *corev1.Pod, c *corev1.Container, src Sources, facts downward.Facts) ([]Var, error) {
	m := &maker{ctx: ctx, pod: pod, c: c, src: src, facts: facts, values: map[string]string{}, services: serviceVars(pod, src)}
	for i := range c.EnvFrom {
		if err := m.from(&c.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range c.Env {
		if err := m.one(&c.Env[i]); err != nil {
			return nil, err
		}
	}
	out := make([]Var, 0, len(m.order)+len(m.services))
	for _, name := range m.order {
		out = append(out, Var{name, m.values[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(m.services)) {
		if _, own := m.values[name]; !own {
			out = append(out, Var{name, m.services[name]})
		}
	}
	return out, nil
}

type maker struct {
	ctx      context.Context
	pod      *corev1.Pod
	c        *corev1.Container
	src      Sources
	facts    downward.Facts
	values   map[string]string
	services map[string]string
	order    []string
}

func (m *maker) set(name, value string) {
	if _, again := m.values[name]; !again {
		m.order = append(m.order, name)
	}
	m.values[name] = value
}

func (m *maker) lookup(name string) (string, bool) {
	if v, ok := m.values[name]; ok {
		return v, true
	}
	v, ok := m.services[name]
	return v, ok
}

func (m *maker) from(e *corev1.EnvFromSource) error {
	switch {
	case e.ConfigMapRef != nil:
		cm, err := m.src.ConfigMap(m.ctx, m.pod.Namespace, e.ConfigMapRef.Name)
		if err != nil {
			return ignoreMissing(err, e.ConfigMapRef.Optional)
		}
		for _, k := range slices.Sorted(maps.Keys(cm.Data)) {
			m.set(e.Prefix+k, cm.Data[k])
		}
	case e.SecretRef != nil:
		s, err := m.src.Secret(m.ctx, m.pod.Namespace, e.SecretRef.Name)
		if err != nil {
			return ignoreMissing(err, e.SecretRef.Optional)
		}
		for _, k := range slices.Sorted(maps.Keys(s.Data)) {
			m.set(e.Prefix+k, string(s.Data[k]))
		}
	}
	return nil
}

func ignoreMissing(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (m *maker) one(e *corev1.EnvVar) error {
	if e.Value != "" || e.ValueFrom == nil {
		m.set(e.Name, Expand(e.Value, m.lookup))
		return nil
	}
	value, found, err := m.value(e.ValueFrom)
	if err != nil || !found {
		return err
	}
	m.set(e.Name, value)
	return nil
}

// value answers the value of a source; found is false where an optional one is missing.
func (m *maker) value(s *corev1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case s.FieldRef != nil:
		value, err = downward.Field(m.pod, s.FieldRef.FieldPath, m.facts)
		return value, true, err
	case s.ResourceFieldRef != nil:
		value, err = downward.Resource(m.pod, m.c, s.ResourceFieldRef, m.facts)
		return value, true, err
	case s.ConfigMapKeyRef != nil:
		return m.configKey(s.ConfigMapKeyRef)
	case s.SecretKeyRef != nil:
		return m.secretKey(s.SecretKeyRef)
	case s.FileKeyRef != nil:
		return m.fileKey(s.FileKeyRef)
	}
	return "", true, nil
}

func (m *maker) configKey(r *corev1.ConfigMapKeySelector) (string, bool, error) {
	optional := r.Optional != nil && *r.Optional
	cm, err := m.src.ConfigMap(m.ctx, m.pod.Namespace, r.Name)
	if err != nil {
		return "", false, ignoreMissing(err, r.Optional)
	}
	v, ok := cm.Data[r.Key]
	if !ok && !optional {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", r.Key, m.pod.Namespace, r.Name)
	}
	return v, ok, nil
}

func (m *maker) secretKey(r *corev1.SecretKeySelector) (string, bool, error) {
	optional := r.Optional != nil && *r.Optional
	s, err := m.src.Secret(m.ctx, m.pod.Namespace, r.Name)
	if err != nil {
		return "", false, ignoreMissing(err, r.Optional)
	}
	v, ok := s.Data[r.Key]
	if !ok && !optional {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", r.Key, m.pod.Namespace, r.Name)
	}
	return string(v), ok, nil
}

func (m *maker) fileKey(r *corev1.FileKeySelector) (string, bool, error) {
	optional := r.Optional != nil && *r.Optional
	content, err := m.src.File(m.pod, r.VolumeName, r.Path)
	if err != nil {
		if optional {
			return "", false, nil
		}
		return "", false, fmt.Errorf("couldn't read file %q of volume %q: %w", r.Path, r.VolumeName, err)
	}
	v, ok, err := parseFile(string(content), r.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse file %q of volume %q: %w", r.Path, r.VolumeName, err)
	}
	if !ok && !optional {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", r.Key, r.Path)
	}
	return v, ok, nil
}
