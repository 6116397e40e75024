package core

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePodTemplate checks a defaulted template by the rules of Kubernetes 1.36. It does not check what only a Pod knows: names of claims
// that ephemeral volumes make, white space around image names.
func ValidatePodTemplate(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var p problems
	p.add(metavalidation.ValidateLabels(template.Labels, path.Child("labels"))...)
	p.add(validateAnnotations(template.Annotations, path.Child("annotations"))...)
	p.add(validatePodAnnotations(template.Annotations, &template.Spec, path.Child("annotations"))...)
	p.add(ValidatePodSpec(&template.Spec, path.Child("spec"))...)
	p.add(validateProfileAnnotations(template.Annotations, &template.Spec, path.Child("spec"))...)
	if len(template.Spec.EphemeralContainers) > 0 {
		p.forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
	return p.list
}

// ValidatePodSpec checks the defaulted spec of a template by the rules of Kubernetes 1.36.
func ValidatePodSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return checkPodSpec(spec, nil, path)
}

// podCheck is what the rules of a spec's parts need to know of the whole.
type podCheck struct {
	problems
	spec *corev1.PodSpec
	// meta is nil for a template.
	meta      *metav1.ObjectMeta
	volumes   map[string]*corev1.VolumeSource
	claims    sets.Set[string]
	hostUsers bool
}

func checkPodSpec(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	c := &podCheck{spec: spec, meta: meta, claims: sets.New[string](), hostUsers: spec.HostUsers == nil || *spec.HostUsers}
	if spec.TerminationGracePeriodSeconds == nil {
		c.required(path.Child("terminationGracePeriodSeconds"), "")
	}
	c.checkVolumes(path.Child("volumes"))
	c.checkResourceClaims(path.Child("resourceClaims"))
	c.checkContainers(path.Child("containers"))
	c.checkInitContainers(path.Child("initContainers"))
	c.checkEphemeralContainers(path.Child("ephemeralContainers"))
	c.checkPodResources(path)
	c.checkHostNetworkPorts(path.Child("containers"))
	neededInOrder(&c.problems, path.Child("restartPolicy"), spec.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	c.checkDNS(path)
	c.add(metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	c.checkPodSecurity(spec.SecurityContext, path.Child("securityContext"))
	c.checkScheduling(path)
	c.checkHostProcess(path)
	c.checkHostUsers(path)
	c.checkNames(path)
	c.checkOS(path)
	c.checkFileKeyVolumes(path)
	return c.list
}

// checkNames checks the simple fields: names of other objects, the pod's own names, numbers.
func (c *podCheck) checkNames(path *field.Path) {
	s := c.spec
	c.checkHostname(path)
	if s.ServiceAccountName != "" {
		c.subdomain(path.Child("serviceAccountName"), s.ServiceAccountName)
	}
	if s.NodeName != "" {
		c.subdomain(path.Child("nodeName"), s.NodeName)
	}
	if s.ActiveDeadlineSeconds != nil {
		c.between(path.Child("activeDeadlineSeconds"), *s.ActiveDeadlineSeconds, 1, math.MaxInt32)
	}
	for i, alias := range s.HostAliases {
		at := path.Child("hostAliases").Index(i)
		c.ip(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			c.subdomain(at.Child("hostnames").Index(j), name)
		}
	}
	if s.PriorityClassName != "" {
		c.subdomain(path.Child("priorityClassName"), s.PriorityClassName)
	}
	if s.RuntimeClassName != nil {
		c.subdomain(path.Child("runtimeClassName"), *s.RuntimeClassName)
	}
	if s.PreemptionPolicy != nil {
		neededInOrder(&c.problems, path.Child("preemptionPolicy"), *s.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if s.Overhead != nil {
		c.checkResources(&corev1.ResourceRequirements{Limits: s.Overhead}, checkContainerResourceName, path.Child("overhead"))
	}
	if g := s.SchedulingGroup; g != nil {
		at := path.Child("schedulingGroup", "podGroupName")
		if g.PodGroupName == nil {
			c.invalid(at, g.PodGroupName, "must specify one of: `podGroupName`")
		} else {
			c.subdomain(at, *g.PodGroupName)
		}
	}
}

func (c *podCheck) checkHostname(path *field.Path) {
	s := c.spec
	if s.Hostname != "" {
		c.label(path.Child("hostname"), s.Hostname)
	}
	if s.Subdomain != "" {
		c.label(path.Child("subdomain"), s.Subdomain)
	}
	if s.HostnameOverride == nil {
		return
	}
	at := path.Child("hostnameOverride")
	if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
		c.forbidden(at, "may not be specified when setHostnameAsFQDN is true")
	}
	if s.HostNetwork {
		c.forbidden(at, "may not be specified when hostNetwork is true")
	}
	if len(*s.HostnameOverride) > 64 {
		c.add(field.TooLong(at, "", 64))
	}
	c.subdomain(at, *s.HostnameOverride)
}

func (c *podCheck) checkHostNetworkPorts(path *field.Path) {
	if !c.spec.HostNetwork {
		return
	}
	for i, container := range c.spec.Containers {
		for j, port := range container.Ports {
			// A template may leave the host port out: the Pod's defaults fill it.
			if port.HostPort == port.ContainerPort || port.HostPort == 0 && c.meta == nil {
				continue
			}
			c.invalid(path.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort, "must match `containerPort` when `hostNetwork` is true")
		}
	}
}

func (c *podCheck) checkResourceClaims(path *field.Path) {
	for i, claim := range c.spec.ResourceClaims {
		at := path.Index(i)
		if c.meta != nil && isMirror(c.meta) {
			c.forbidden(field.NewPath(""), "static pods do not support resource claims")
			continue
		}
		switch {
		case claim.Name == "":
			c.required(at.Child("name"), "")
		case c.claims.Has(claim.Name):
			c.add(field.Duplicate(at.Child("name"), claim.Name))
		default:
			c.label(at.Child("name"), claim.Name)
			c.claims.Insert(claim.Name)
		}
		if claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil {
			c.invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		}
		if claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil {
			c.invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if claim.ResourceClaimName != nil {
			c.subdomain(at.Child("resourceClaimName"), *claim.ResourceClaimName)
		}
		if claim.ResourceClaimTemplateName != nil {
			c.subdomain(at.Child("resourceClaimTemplateName"), *claim.ResourceClaimTemplateName)
		}
	}
}

// visitContainers calls f for every container of a spec with its path, ephemeral ones included.
func visitContainers(spec *corev1.PodSpec, path *field.Path, f func(*corev1.Container, *field.Path)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		f(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		f((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
}

func isMirror(meta *metav1.ObjectMeta) bool {
	_, mirror := meta.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func containerNamed(containers []corev1.Container, name string) *corev1.Container {
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}
