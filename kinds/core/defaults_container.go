package core

import (
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

func defaultContainer(c *corev1.Container) {
	defaultTo(&c.ImagePullPolicy, pullPolicy(c.Image))
	defaultTo(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	defaultTo(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		defaultTo(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				defaultPtr(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		defaultLifecycle(c.Lifecycle.PostStart)
		defaultLifecycle(c.Lifecycle.PreStop)
	}
}

// pullPolicy is Always for the tag latest, written or implied, and IfNotPresent for everything else, a name that can't be parsed included.
func pullPolicy(image string) corev1.PullPolicy {
	last := image[strings.LastIndexByte(image, '/')+1:]
	if name, _, _ := strings.Cut(last, "@"); strings.Contains(name, ":") && !strings.HasSuffix(name, ":latest") {
		return corev1.PullIfNotPresent // the usual case, without parsing it all
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := named.(reference.Tagged); ok && tagged.Tag() == "latest" || reference.IsNameOnly(named) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	defaultTo(&p.TimeoutSeconds, 1)
	defaultTo(&p.PeriodSeconds, 10)
	defaultTo(&p.SuccessThreshold, 1)
	defaultTo(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		defaultPtr(&p.GRPC.Service, "")
	}
}

func defaultLifecycle(h *corev1.LifecycleHandler) {
	if h != nil {
		defaultHTTPGet(h.HTTPGet)
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get == nil {
		return
	}
	defaultTo(&get.Path, "/")
	defaultTo(&get.Scheme, corev1.URISchemeHTTP)
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		defaultTo(&ref.APIVersion, "v1")
	}
}
