package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/yare-project/yare/controllers/owned"
)

// generationLabel is kept for clients that still read it.
const generationLabel = "pod-template-generation"

// newPod is a DaemonSet's pod for one node: the node is named by a required affinity to its name, in place of the template's own.
func newPod(ds *appsv1.DaemonSet, node, hash string) *corev1.Pod {
	p := owned.NewPod(&ds.Spec.Template, ds.Namespace, ds.Name, owned.Owner(ds, kind))
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = hash
	if g := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; g != "" {
		p.Labels[generationLabel] = g
	}
	tolerate(&p.Spec)
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}
	return p
}

// tolerate lets daemons stay on nodes in trouble: they are often what is needed to get them out of it.
func tolerate(spec *corev1.PodSpec) {
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		for i := range spec.Tolerations {
			if spec.Tolerations[i].MatchToleration(&t) {
				spec.Tolerations[i] = t
				return
			}
		}
		spec.Tolerations = append(spec.Tolerations, t)
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
}

// nodeOf is the node that a pod runs on or is meant for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return p.Spec.NodeName
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// belongs tells whether a node should have a pod, and whether a pod that it has may stay: a NoSchedule taint that came later does not remove it.
// model is a pod of the template without its own node.
func belongs(model *corev1.Pod, n *corev1.Node) (run, stay bool) {
	if model.Spec.NodeName != "" && model.Spec.NodeName != n.Name {
		return false, false
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(model).Match(n); err != nil || !match {
		return false, false
	}
	untolerated := func(effects ...corev1.TaintEffect) bool {
		_, found := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, model.Spec.Tolerations, func(t *corev1.Taint) bool {
			for _, e := range effects {
				if t.Effect == e {
					return true
				}
			}
			return false
		}, false)
		return found
	}
	stay = !untolerated(corev1.TaintEffectNoExecute)
	return stay && !untolerated(corev1.TaintEffectNoSchedule), stay
}

// modelOf is the pod by which nodes are judged: the template with the daemons' tolerations.
func modelOf(ds *appsv1.DaemonSet) *corev1.Pod {
	p := &corev1.Pod{Spec: *ds.Spec.Template.Spec.DeepCopy()}
	tolerate(&p.Spec)
	return p
}
