package core

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.Pod]{
	Names:          kind.Names{Plural: "pods", Short: []string{"po"}, Categories: []string{"all"}},
	ReturnDeleted:  true,
	Default:        DefaultPod,
	Prepare:        preparePod,
	PrepareStatus:  preparePodStatus,
	Validate:       validatePod,
	ValidateStatus: validatePodStatus,
	Warn:           warnPod,
	Template:       &kind.Template[corev1.Pod]{Key: podTemplateKey, Share: sharePod},
	Columns:        podColumns,
	Fields:         podFields,
	Grace:          podGrace,
	SpecWithout:    []string{"NodeName"}, // being assigned to a node is not a change that the pod's author made
	Subs: []kind.Sub[corev1.Pod]{
		{Name: "binding", Body: corev1.SchemeGroupVersion.WithKind("Binding"), New: func() runtime.Object { return &corev1.Binding{} }, Create: createBinding, BodyNamed: true},
		{Name: "eviction", Body: evictionKind, Older: olderEvictions, New: newEviction, Create: evict, BodyNamed: true},
		{Name: "ephemeralcontainers", Replace: replaceEphemeralContainers, Validate: validateEphemeralContainersUpdate},
		{Name: "resize", Replace: replaceResources, Validate: validatePodResize},
		{Name: "log", New: func() runtime.Object { return &corev1.PodLogOptions{} }, Connect: podLog, Methods: []string{"GET"}, Verb: "get"},
		// Opening a shell is a change, whatever method the protocol begins with: it takes the right to create.
		{Name: "exec", Body: corev1.SchemeGroupVersion.WithKind("PodExecOptions"), New: func() runtime.Object { return &corev1.PodExecOptions{} }, Connect: podExec, Methods: upgradeMethods, Also: "create"},
		{Name: "attach", Body: corev1.SchemeGroupVersion.WithKind("PodAttachOptions"), New: func() runtime.Object { return &corev1.PodAttachOptions{} }, Connect: podAttach, Methods: upgradeMethods, Also: "create"},
		{Name: "portforward", Body: corev1.SchemeGroupVersion.WithKind("PodPortForwardOptions"), New: func() runtime.Object { return &corev1.PodPortForwardOptions{} }, Connect: podPortForward, Methods: upgradeMethods, Also: "create"},
		{Name: "proxy", Body: corev1.SchemeGroupVersion.WithKind("PodProxyOptions"), New: func() runtime.Object { return &corev1.PodProxyOptions{} }, Connect: podProxy, Methods: proxyMethods, Named: true},
	},
})

var podFields = map[string]func(*corev1.Pod) string{
	"spec.nodeName":            func(p *corev1.Pod) string { return p.Spec.NodeName },
	"spec.host":                func(p *corev1.Pod) string { return p.Spec.NodeName }, // its name of old
	"spec.restartPolicy":       func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) },
	"spec.schedulerName":       func(p *corev1.Pod) string { return p.Spec.SchedulerName },
	"spec.serviceAccountName":  func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
	"spec.hostNetwork":         func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) },
	"status.phase":             func(p *corev1.Pod) string { return string(p.Status.Phase) },
	"status.podIP":             podIP,
	"status.podIPs":            podIP,
	"status.nominatedNodeName": func(p *corev1.Pod) string { return p.Status.NominatedNodeName },
}

func podIP(p *corev1.Pod) string {
	if len(p.Status.PodIPs) > 0 {
		return p.Status.PodIPs[0].IP
	}
	return p.Status.PodIP
}

// preparePod drops what is disabled and sets what only the server decides about a new pod.
func preparePod(pod, old *corev1.Pod) {
	if old != nil {
		dropDisabled(&pod.Spec, usesDisabled(&old.Spec))
		return
	}
	dropDisabled(&pod.Spec, disabled{})
	// The class depends on requests that defaults derive from limits.
	DefaultPod(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: QOSClass(&pod.Spec)}
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: pod.CreationTimestamp,
		}}
	}
	mergeLabelKeys(pod)
	armorFromAnnotations(pod)
}

// mergeLabelKeys turns keys that stand for the pod's own label values into requirements of the selector.
func mergeLabelKeys(pod *corev1.Pod) {
	merge := func(selector *metav1.LabelSelector, keys []string, op metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, there := pod.Labels[key]; there && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
			}
		}
	}
	terms := func(hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm) {
		each := func(t *corev1.PodAffinityTerm) {
			merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
			merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
		for i := range soft {
			each(&soft[i].PodAffinityTerm)
		}
		for i := range hard {
			each(&hard[i])
		}
	}
	if a := pod.Spec.Affinity; a != nil {
		if p := a.PodAffinity; p != nil {
			terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if p := a.PodAntiAffinity; p != nil {
			terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		s := &pod.Spec.TopologySpreadConstraints[i]
		merge(s.LabelSelector, s.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// podGrace is how long a pod's node has to end it: 0 when there is nothing to end.
func podGrace(pod *corev1.Pod, options *metav1.DeleteOptions) int64 {
	if pod.Spec.NodeName == "" || isTerminal(pod) {
		return 0
	}
	seconds := int64(0)
	switch {
	case options != nil && options.GracePeriodSeconds != nil:
		seconds = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if seconds < 0 {
		return 1
	}
	return seconds
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// setPodCondition adds or replaces a condition; its transition time moves only with its status.
func setPodCondition(status *corev1.PodStatus, c corev1.PodCondition, now metav1.Time) {
	c.LastTransitionTime = now
	for i := range status.Conditions {
		if old := &status.Conditions[i]; old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}
