package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func templatePod(name, node string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = name, "ns"
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}}
	DefaultPod(pod)
	return pod
}

// TestPodsOfATemplateAreJudgedOnce: whenever sharing says that there is nothing to say about a pod, the rules have nothing to say about it.
func TestPodsOfATemplateAreJudgedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		judged bool
	}{
		"another name":       {func(p *corev1.Pod) { p.Name = "b" }, true},
		"another node":       {func(p *corev1.Pod) { p.Spec.NodeName = "n2.example" }, true},
		"another label":      {func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }, true},
		"no name for a host": {func(p *corev1.Pod) { p.Name = "a.b" }, false},
		"no name for a node": {func(p *corev1.Pod) { p.Spec.NodeName = "N_2" }, false},
		"no node":            {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		"another annotation": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{"scheduler.alpha.kubernetes.io/critical-pod": ""}
		}, false},
		"another image":       {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "j " }, false},
		"impossible requests": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			like, pod := templatePod("a", "n1"), templatePod("a", "n1")
			c.change(pod)
			judged := sharePod(pod, like)
			if judged != c.judged {
				t.Errorf("judged with the other: %v, want %v", judged, c.judged)
			}
			if errs, warnings := validatePod(pod, nil), warnPod(pod, nil); judged && len(errs)+len(warnings) > 0 {
				t.Errorf("judged with the other, though there is something to say: %v %v", errs, warnings)
			}
		})
	}
}
