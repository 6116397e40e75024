package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/internal/plain"
)

func warnPod(pod, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	var out []string
	if !plain.Label(pod.Name) {
		out = append(out, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v",
			validation.IsDNS1123Label(pod.Name)))
	}
	return append(out, WarnPodTemplate(&corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, nil)...)
}

// warnings collects hints for the author of a template.
type warnings struct{ list []string }

func (w *warnings) at(path *field.Path, format string, args ...any) {
	w.list = append(w.list, path.String()+": "+fmt.Sprintf(format, args...))
}

// WarnPodTemplate says what of a template is accepted but probably not meant, or no longer works.
func WarnPodTemplate(t *corev1.PodTemplateSpec, path *field.Path) []string {
	w := &warnings{}
	spec, annotations := path.Child("spec"), path.Child("metadata", "annotations")
	for key, what := range map[string]string{
		"scheduler.alpha.kubernetes.io/critical-pod":  `non-functional in v1.16+; use the "priorityClassName" field instead`,
		"security.alpha.kubernetes.io/sysctls":        `non-functional in v1.11+; use the "sysctls" field instead`,
		"security.alpha.kubernetes.io/unsafe-sysctls": `non-functional in v1.11+; use the "sysctls" field instead`,
	} {
		if _, set := t.Annotations[key]; set {
			w.at(annotations.Key(key), "%s", what)
		}
	}
	w.nodeLabels(&t.Spec, spec)
	w.podTerms(t.Spec.Affinity, spec.Child("affinity"))
	w.volumes(t.Spec.Volumes, spec.Child("volumes"))
	w.lists(&t.Spec, spec)
	w.ports(&t.Spec, spec)
	visitContainers(&t.Spec, spec, func(c *corev1.Container, at *field.Path) {
		w.env(c.Env, at.Child("env"))
		w.fractions(c.Resources.Limits, at.Child("resources", "limits"))
		w.fractions(c.Resources.Requests, at.Child("resources", "requests"))
		_, seccomp := t.Annotations[corev1.SeccompContainerAnnotationKeyPrefix+c.Name]
		if seccomp && (c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil) {
			w.at(annotations.Key(corev1.SeccompContainerAnnotationKeyPrefix+c.Name), `non-functional in v1.27+; use the "seccompProfile" field instead`)
		}
	})
	w.fractions(t.Spec.Overhead, spec.Child("overhead"))
	if _, set := t.Annotations[corev1.SeccompPodAnnotationKey]; set && (t.Spec.SecurityContext == nil || t.Spec.SecurityContext.SeccompProfile == nil) {
		w.at(annotations.Key(corev1.SeccompPodAnnotationKey), `non-functional in v1.27+; use the "seccompProfile" field instead`)
	}
	if s := t.Spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		w.at(spec.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	return w.list
}

// deprecatedNodeLabels are the beta names of node labels and what replaced them.
var deprecatedNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                  `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                    `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region": `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":   `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":         `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
}

// nodeTerm warns of labels that nodes will not have for ever.
func (w *warnings) nodeTerm(t *corev1.NodeSelectorTerm, at *field.Path) {
	for i, r := range t.MatchExpressions {
		if what, old := deprecatedNodeLabels[r.Key]; old {
			w.at(at.Child("matchExpressions").Index(i).Child("key"), "%s is %s", r.Key, what)
		}
	}
}

// podTerms warns of terms about other pods that no pod can meet.
func (w *warnings) podTerms(a *corev1.Affinity, path *field.Path) {
	if a == nil {
		return
	}
	terms := func(at *field.Path, hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm) {
		missing := func(s *metav1.LabelSelector, at *field.Path) {
			if s == nil {
				w.at(at.Child("labelSelector"), selectsNothing)
			}
		}
		for i := range hard {
			missing(hard[i].LabelSelector, at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
		}
		for i := range soft {
			missing(soft[i].PodAffinityTerm.LabelSelector, at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"))
		}
	}
	if p := a.PodAffinity; p != nil {
		terms(path.Child("podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms(path.Child("podAntiAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

const selectsNothing = "a null labelSelector results in matching no pod"

func (w *warnings) nodeLabels(s *corev1.PodSpec, path *field.Path) {
	for key := range s.NodeSelector {
		if what, old := deprecatedNodeLabels[key]; old {
			w.at(path.Child("nodeSelector").Key(key), "%s", what)
		}
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		n, at := s.Affinity.NodeAffinity, path.Child("affinity", "nodeAffinity")
		for i := range requiredTerms(n) {
			w.nodeTerm(&requiredTerms(n)[i], at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i))
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			w.nodeTerm(&n.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference, at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))
		}
	}
	for i, c := range s.TopologySpreadConstraints {
		at := path.Child("topologySpreadConstraints").Index(i)
		if what, old := deprecatedNodeLabels[c.TopologyKey]; old {
			w.at(at.Child("topologyKey"), "%s is %s", c.TopologyKey, what)
		}
		if c.LabelSelector == nil {
			w.at(at.Child("labelSelector"), selectsNothing)
		}
	}
}

func (w *warnings) volumes(list []corev1.Volume, path *field.Path) {
	for i := range list {
		v, at := &list[i], path.Index(i)
		for _, gone := range []struct {
			used       bool
			name, what string
		}{
			{v.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
			{v.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
			{v.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
			{v.Flocker != nil, "flocker", "deprecated in v1.22, non-functional in v1.25+"},
			{v.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Quobyte != nil, "quobyte", "deprecated in v1.22, non-functional in v1.25+"},
			{v.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
			{v.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
			{v.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
		} {
			if gone.used {
				w.at(at.Child(gone.name), "%s", gone.what)
			}
		}
		if v.Projected != nil && slices.Contains(v.Projected.Sources, corev1.VolumeProjection{}) {
			w.list = append(w.list, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			w.list = append(w.list, WarnClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec, at.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
		}
	}
}

func (w *warnings) lists(s *corev1.PodSpec, path *field.Path) {
	ips, names := sets.New[string](), sets.New[string]()
	for i, a := range s.HostAliases {
		if ips.Has(a.IP) {
			w.at(path.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", a.IP)
		}
		ips.Insert(a.IP)
	}
	for i, secret := range s.ImagePullSecrets {
		at := path.Child("imagePullSecrets").Index(i).Child("name")
		if names.Has(secret.Name) {
			w.at(at, "duplicate name %q", secret.Name)
		}
		names.Insert(secret.Name)
		if secret.Name == "" {
			w.at(at, "invalid empty name %q", secret.Name)
		}
	}
}

func (w *warnings) env(list []corev1.EnvVar, path *field.Path) {
	seen := sets.New[string]()
	for i, v := range list {
		ref := "$(" + v.Name + ")"
		// Using the earlier value inside the new one is fine.
		if seen.Has(v.Name) && (v.ValueFrom != nil || v.Value == ref || !strings.Contains(v.Value, ref)) {
			w.at(path.Index(i), "hides previous definition of %q, which may be dropped when using apply", v.Name)
		}
		seen.Insert(v.Name)
	}
}

func (w *warnings) fractions(list corev1.ResourceList, path *field.Path) {
	w.fractionsOf(list, path, corev1.ResourceMemory, corev1.ResourceEphemeralStorage)
}

func (w *warnings) fractionsOf(list corev1.ResourceList, path *field.Path, bytes ...corev1.ResourceName) {
	for _, name := range bytes {
		if amount, there := list[name]; there && amount.MilliValue()%1000 != 0 {
			w.at(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", amount.String())
		}
	}
}

func (w *warnings) ports(s *corev1.PodSpec, path *field.Path) {
	type declared struct {
		at   *field.Path
		port corev1.ContainerPort
	}
	byNumber, byName := map[string][]declared{}, map[string]*field.Path{}
	visitContainers(s, path, func(c *corev1.Container, at *field.Path) {
		for i, port := range c.Ports {
			at := at.Child("ports").Index(i)
			if port.HostIP != "" && port.HostPort == 0 {
				w.at(at, "hostIP set without hostPort: %+v", port)
			}
			key := fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol)
			for _, o := range byNumber[key] {
				switch {
				case port.HostIP == o.port.HostIP && port.HostPort == o.port.HostPort:
					w.at(at, "duplicate port definition with %s", o.at)
				case port.HostPort == 0 || o.port.HostPort == 0:
					w.at(at, "overlapping port definition with %s", o.at)
				case port.HostPort == o.port.HostPort && (port.HostIP == "") != (o.port.HostIP == ""):
					w.at(at, "dangerously ambiguous port definition with %s", o.at)
				}
			}
			byNumber[key] = append(byNumber[key], declared{at, port})
			if port.Name == "" {
				continue
			}
			if other := byName[port.Name]; other != nil {
				w.at(at, "duplicate port name %q with %s, services and probes that select ports by name will use %s", port.Name, other, other)
			} else {
				byName[port.Name] = at
			}
		}
	})
}
