package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *podCheck) checkContainers(path *field.Path) {
	if len(c.spec.Containers) == 0 {
		c.required(path, "")
		return
	}
	names := sets.New[string]()
	for i := range c.spec.Containers {
		container, at := &c.spec.Containers[i], path.Index(i)
		c.checkContainer(container, at)
		if names.Has(container.Name) {
			c.add(field.Duplicate(at.Child("name"), container.Name))
		}
		names.Insert(container.Name)
		c.checkLongRunning(container, at)
		c.checkRestartRules(container, at)
	}
	c.checkHostPorts(c.spec.Containers, path)
}

func (c *podCheck) checkInitContainers(path *field.Path) {
	names := sets.New[string]()
	for _, container := range c.spec.Containers {
		names.Insert(container.Name)
	}
	for i := range c.spec.InitContainers {
		container, at := &c.spec.InitContainers[i], path.Index(i)
		c.checkContainer(container, at)
		if container.RestartPolicy == nil && len(container.RestartPolicyRules) > 0 {
			c.required(at.Child("restartPolicy"), needsRestartPolicy)
		} else {
			c.checkRestartRules(container, at)
		}
		if names.Has(container.Name) {
			c.add(field.Duplicate(at.Child("name"), container.Name))
		} else if container.Name != "" {
			names.Insert(container.Name)
		}
		// Init containers run one after the other, so only ports of the same one can conflict.
		c.checkHostPorts(c.spec.InitContainers[i:i+1], path)
		if isSidecar(container) {
			c.checkLongRunning(container, at)
		} else {
			c.checkRunsToCompletion(container, at)
		}
	}
}

// checkRunsToCompletion refuses what makes sense only for a container that keeps running.
func (c *podCheck) checkRunsToCompletion(container *corev1.Container, path *field.Path) {
	const why = "may not be set for init containers without restartPolicy=Always"
	for name, set := range map[string]bool{
		"lifecycle":      container.Lifecycle != nil,
		"livenessProbe":  container.LivenessProbe != nil,
		"readinessProbe": container.ReadinessProbe != nil,
		"startupProbe":   container.StartupProbe != nil,
	} {
		if set {
			c.forbidden(path.Child(name), why)
		}
	}
	for i, policy := range container.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer {
			c.invalid(path.Child("resizePolicy").Index(i).Child("restartPolicy"), policy.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers")
		}
	}
}

// checkContainer checks what holds for every container.
func (c *podCheck) checkContainer(container *corev1.Container, path *field.Path) {
	c.neededLabel(path.Child("name"), container.Name)
	c.needs(path.Child("image"), container.Image)
	if c.meta != nil && container.Image != strings.TrimSpace(container.Image) {
		c.invalid(path.Child("image"), container.Image, "must not have leading or trailing whitespace")
	}
	neededInOrder(&c.problems, path.Child("terminationMessagePolicy"), container.TerminationMessagePolicy, corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	c.checkPorts(container.Ports, path.Child("ports"))
	c.checkEnv(container.Env, path.Child("env"))
	c.checkEnvFrom(container.EnvFrom, path.Child("envFrom"))
	c.checkMounts(container, path.Child("volumeMounts"))
	c.checkDevices(container, path.Child("volumeDevices"))
	checkPullPolicy(&c.problems, container.ImagePullPolicy, path.Child("imagePullPolicy"))
	c.checkResources(&container.Resources, checkContainerResourceName, path.Child("resources"))
	c.checkResizePolicy(container.ResizePolicy, path.Child("resizePolicy"))
	c.checkSecurity(container.SecurityContext, path.Child("securityContext"))
}

func checkPullPolicy(p *problems, policy corev1.PullPolicy, path *field.Path) {
	neededOneOf(p, path, policy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func (c *podCheck) checkPorts(ports []corev1.ContainerPort, path *field.Path) {
	names := sets.New[string]()
	for i, port := range ports {
		at := path.Index(i)
		if port.Name != "" {
			switch messages := validation.IsValidPortName(port.Name); {
			case len(messages) > 0:
				c.each(at.Child("name"), port.Name, messages)
			case names.Has(port.Name):
				c.add(field.Duplicate(at.Child("name"), port.Name))
			default:
				names.Insert(port.Name)
			}
		}
		if port.ContainerPort == 0 {
			c.required(at.Child("containerPort"), "")
		} else {
			c.each(at.Child("containerPort"), port.ContainerPort, validation.IsValidPortNum(int(port.ContainerPort)))
		}
		if port.HostPort != 0 {
			c.each(at.Child("hostPort"), port.HostPort, validation.IsValidPortNum(int(port.HostPort)))
		}
		neededOneOf(&c.problems, at.Child("protocol"), port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
}

func (c *podCheck) checkHostPorts(containers []corev1.Container, path *field.Path) {
	taken := sets.New[string]()
	for i, container := range containers {
		for j, port := range container.Ports {
			if port.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if taken.Has(key) {
				c.add(field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			taken.Insert(key)
		}
	}
}

const needsRestartPolicy = "must specify restartPolicy when restart rules are used"

// checkRestartRules checks a container's own restart policy (KEP-5307 and sidecars).
func (c *podCheck) checkRestartRules(container *corev1.Container, path *field.Path) {
	rules := container.RestartPolicyRules
	if container.RestartPolicy == nil && len(rules) > 0 {
		c.required(path.Child("restartPolicy"), needsRestartPolicy)
	}
	optionalOneOf(&c.problems, path.Child("restartPolicy"), container.RestartPolicy,
		corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	if len(rules) > 20 {
		c.add(field.TooMany(path.Child("restartPolicyRules"), len(rules), 20))
	}
	for i, rule := range rules {
		at := path.Child("restartPolicyRules").Index(i)
		oneOf(&c.problems, at.Child("action"), rule.Action, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			c.required(at.Child("exitCodes"), "must be specified")
			continue
		}
		oneOf(&c.problems, at.Child("exitCodes", "operator"), rule.ExitCodes.Operator, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > 255 {
			c.add(field.TooMany(at.Child("exitCodes", "values"), n, 255))
		}
	}
}

func (c *podCheck) checkResizePolicy(policies []corev1.ContainerResizePolicy, path *field.Path) {
	seen := sets.New[corev1.ResourceName]()
	for i, policy := range policies {
		if seen.Has(policy.ResourceName) {
			c.add(field.Duplicate(path.Index(i), policy.ResourceName))
		}
		seen.Insert(policy.ResourceName)
		neededOneOf(&c.problems, path, policy.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		neededOneOf(&c.problems, path, policy.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.spec.RestartPolicy == corev1.RestartPolicyNever && policy.RestartPolicy != corev1.NotRequired {
			c.invalid(path, policy.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

// notForEphemeral are the fields of a container that a debugging container may not have.
var notForEphemeral = []string{"Ports", "Resources", "LivenessProbe", "ReadinessProbe", "StartupProbe", "Lifecycle", "ResizePolicy", "RestartPolicy", "RestartPolicyRules"}

func (c *podCheck) checkEphemeralContainers(path *field.Path) {
	others, all := sets.New[string](), sets.New[string]()
	for _, container := range slices.Concat(c.spec.Containers, c.spec.InitContainers) {
		others.Insert(container.Name)
		all.Insert(container.Name)
	}
	for i := range c.spec.EphemeralContainers {
		ephemeral, at := &c.spec.EphemeralContainers[i], path.Index(i)
		c.checkContainer((*corev1.Container)(&ephemeral.EphemeralContainerCommon), at)
		if all.Has(ephemeral.Name) {
			c.add(field.Duplicate(at.Child("name"), ephemeral.Name))
		}
		all.Insert(ephemeral.Name)
		if target := ephemeral.TargetContainerName; target != "" && !others.Has(target) {
			c.add(field.NotFound(at.Child("targetContainerName"), target))
		}
		value := reflect.ValueOf(ephemeral.EphemeralContainerCommon)
		for _, name := range notForEphemeral {
			if f := value.FieldByName(name); !f.IsZero() {
				c.forbidden(at.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set for an Ephemeral Container")
			}
		}
		for j, mount := range ephemeral.VolumeMounts {
			// A sub path is a bind mount that stays until the pod ends.
			if mount.SubPath != "" {
				c.forbidden(at.Child("volumeMounts").Index(j).Child("subPath"), "cannot be set for an Ephemeral Container")
			}
			if mount.SubPathExpr != "" {
				c.forbidden(at.Child("volumeMounts").Index(j).Child("subPathExpr"), "cannot be set for an Ephemeral Container")
			}
		}
	}
}
