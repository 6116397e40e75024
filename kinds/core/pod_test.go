package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1", ResourceVersion: "7"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx:1.29"}}}}
	for _, f := range change {
		f(pod)
	}
	DefaultPod(pod)
	return pod
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestPullPolicyFollowsTheTag(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]corev1.PullPolicy{
		"nginx": corev1.PullAlways, "nginx:latest": corev1.PullAlways, "nginx:1.29": corev1.PullIfNotPresent, "localhost:5000/nginx": corev1.PullAlways,
		"localhost:5000/nginx:v1": corev1.PullIfNotPresent, "nginx" + digest: corev1.PullIfNotPresent, "nginx:latest" + digest: corev1.PullAlways,
		"NOT A NAME": corev1.PullIfNotPresent,
	} {
		pod := newPod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
		if got := pod.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestDefaultsThatOnlyPodsGet(t *testing.T) {
	spec := corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "a", Image: "a:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
		Resources: corev1.ResourceRequirements{Limits: amounts("cpu", "1", "memory", "1Gi"), Requests: amounts("cpu", "500m")}}}}
	pod, template := &corev1.Pod{Spec: *spec.DeepCopy()}, &corev1.PodTemplateSpec{Spec: *spec.DeepCopy()}
	DefaultPod(pod)
	DefaultPodTemplate(template)
	if d := cmp.Diff(amounts("cpu", "500m", "memory", "1Gi"), pod.Spec.Containers[0].Resources.Requests); d != "" {
		t.Error("a pod's requests come from its limits where they are missing:", d)
	}
	if d := cmp.Diff(amounts("cpu", "500m"), template.Spec.Containers[0].Resources.Requests); d != "" {
		t.Error("a template's don't:", d)
	}
	if pod.Spec.Containers[0].Ports[0].HostPort != 80 || template.Spec.Containers[0].Ports[0].HostPort != 0 {
		t.Error("host ports are filled in for a pod on the host's network, not for a template")
	}
	once := pod.DeepCopy()
	if DefaultPod(pod); cmp.Diff(once, pod) != "" {
		t.Error("defaults changed a defaulted pod:", cmp.Diff(once, pod))
	}
}

func TestQOSClass(t *testing.T) {
	all := amounts("cpu", "1", "memory", "1Gi")
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   corev1.PodQOSClass
	}{
		"nothing": {func(p *corev1.Pod) {}, corev1.PodQOSBestEffort},
		"limits":  {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = all }, corev1.PodQOSGuaranteed},
		"request below": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: all, Requests: amounts("cpu", "1m")}
		}, corev1.PodQOSBurstable},
		"one limit":  {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts("cpu", "1") }, corev1.PodQOSBurstable},
		"only disk":  {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts("ephemeral-storage", "1Gi") }, corev1.PodQOSBestEffort},
		"of the pod": {func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Limits: all} }, corev1.PodQOSGuaranteed},
		"init without it": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = all
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i:1"}}
		}, corev1.PodQOSBurstable},
	} {
		pod := newPod(c.change)
		preparePod(pod, nil)
		if pod.Status.QOSClass != c.want || pod.Status.Phase != corev1.PodPending {
			t.Errorf("%s: %s %s, want %s Pending", name, pod.Status.QOSClass, pod.Status.Phase, c.want)
		}
	}
}

func TestNewGatedPodSaysSo(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}} })
	preparePod(pod, nil)
	if len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Reason != "SchedulingGated" {
		t.Errorf("conditions %v", pod.Status.Conditions)
	}
	if got := summarize(pod).status; got != "SchedulingGated" {
		t.Errorf("status column %q", got)
	}
}

func TestMatchLabelKeysBecomeRequirements(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) {
		p.Labels = map[string]string{"pod-template-hash": "abc"}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MatchLabelKeys: []string{"pod-template-hash"}}}
	})
	preparePod(pod, nil)
	want := []metav1.LabelSelectorRequirement{{Key: "pod-template-hash", Operator: "In", Values: []string{"abc"}}}
	if d := cmp.Diff(want, pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions); d != "" {
		t.Error(d)
	}
	if errs := validatePod(pod, nil); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestGrace(t *testing.T) {
	running := func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning }
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		options *metav1.DeleteOptions
		want    int64
	}{
		"running":        {running, nil, 30},
		"asked":          {running, &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](5)}, 5},
		"asked for none": {running, &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, 0},
		"negative":       {func(p *corev1.Pod) { running(p); p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](-7) }, nil, 1},
		"no node":        {func(p *corev1.Pod) {}, nil, 0},
		"ended":          {func(p *corev1.Pod) { running(p); p.Status.Phase = corev1.PodSucceeded }, nil, 0},
	} {
		if got := podGrace(newPod(c.change), c.options); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestGenerationCountsNotTheNode(t *testing.T) {
	a, b := newPod(), newPod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	pods := Group.Kinds[slices.IndexFunc(Group.Kinds, func(k *kind.Kind) bool { return k.Hub.Kind == "Pod" })]
	if !pods.SameSpec(a, b) {
		t.Error("binding would count as a change of the spec")
	}
	if b.Spec.Priority = ptr.To[int32](5); pods.SameSpec(a, b) {
		t.Error("a change of the spec would not count")
	}
}

func TestPodUpdate(t *testing.T) {
	old := newPod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}} })
	for name, c := range map[string]struct {
		old    *corev1.Pod
		change func(*corev1.Pod)
		want   string // a part of the refusal; empty when it must pass
	}{
		"image":    {old, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" }, ""},
		"labels":   {old, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, ""},
		"deadline": {old, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](9) }, ""},
		"added toleration": {old, func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "b", Operator: "Exists"})
		}, ""},
		"lost toleration": {old, func(p *corev1.Pod) { p.Spec.Tolerations = nil }, "existing toleration can not be modified"},
		"command":         {old, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh"} }, "pod updates may not change fields other than `spec.containers[*].image`"},
		"container":       {old, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) }, "pod updates may not add or remove containers"},
		"node":            {old, func(p *corev1.Pod) { p.Spec.NodeName = "n" }, "pod updates may not change fields"},
		"mirror":          {old, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, "may not add mirror pod annotation"},
		"new gate":        {old, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x.com/y"}} }, "only deletion is allowed"},
		"narrower when gated": {newPod(gate), func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Exists"}}}}}}}
		}, ""},
		"wider when gated": {newPod(gate, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
			func(p *corev1.Pod) { p.Spec.NodeSelector = nil }, "only additions to spec.nodeSelector are allowed"},
	} {
		now := c.old.DeepCopy()
		c.change(now)
		DefaultPod(now)
		wantRefusal(t, name, validatePod(now, c.old), c.want)
	}
}

func gate(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/q"}}
}

func wantRefusal(t *testing.T, name string, errs field.ErrorList, want string) {
	t.Helper()
	err := errs.ToAggregate()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: refused: %v", name, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: refusal does not say %q: %v", name, want, err)
	}
}

func TestResize(t *testing.T) {
	old := newPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: amounts("cpu", "1", "memory", "1Gi"), Requests: amounts("cpu", "500m", "memory", "1Gi")}
	})
	preparePod(old, nil)
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"more cpu":     {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts("cpu", "2", "memory", "1Gi") }, ""},
		"other fields": {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other:1" }, ""}, // not the subresource's: dropped
		"no limit":     {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts("memory", "1Gi") }, "resource limits cannot be removed"},
		"class":        {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts("cpu", "1", "memory", "1Gi") }, "Pod QOS Class may not change"},
		"storage": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits["ephemeral-storage"] = resource.MustParse("1Gi")
		}, "only cpu and memory resources are mutable"},
		"rename": {func(p *corev1.Pod) { p.Spec.Containers[0].Name = "x" }, "containers may not be renamed"},
	} {
		from, now := old.DeepCopy(), old.DeepCopy()
		c.change(from)
		replaceResources(now, from)
		wantRefusal(t, name, validatePodResize(now, old), c.want)
		if name == "other fields" && now.Spec.Containers[0].Image != "nginx:1.29" {
			t.Error("resize changed the image")
		}
	}
}

func TestStatusUpdate(t *testing.T) {
	old := newPod(func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Status.QOSClass = corev1.PodQOSBestEffort
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, ObservedGeneration: 3}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	})
	now := old.DeepCopy()
	now.Status.QOSClass, now.Status.Conditions[0].ObservedGeneration, now.Status.PodIP = "", 0, "10.0.0.9"
	preparePodStatus(now, old)
	if now.Status.QOSClass != corev1.PodQOSBestEffort || now.Status.Conditions[0].ObservedGeneration != 3 {
		t.Errorf("lost what the writer left out: %+v", now.Status)
	}
	if d := cmp.Diff([]corev1.PodIP{{IP: "10.0.0.9"}}, now.Status.PodIPs); d != "" {
		t.Error("podIPs must follow podIP:", d)
	}
	wantRefusal(t, "plain", validatePodStatus(now, old), "")
	now.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	wantRefusal(t, "back to life", validatePodStatus(now, old), "may not be transitioned to non-terminated state")
	now.Status.ContainerStatuses = nil
	now.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.9"}, {IP: "10.0.0.10"}}
	wantRefusal(t, "two of a family", validatePodStatus(now, old), "may specify no more than one IP for each IP family")
}

func TestPodColumns(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(now.Add(-5 * time.Minute))}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	status := func(phase corev1.PodPhase, init, main []corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase, p.Status.InitContainerStatuses, p.Status.ContainerStatuses = phase, init, main
			for _, s := range init {
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: s.Name, Image: "i:1"})
			}
		}
	}
	one := func(s ...corev1.ContainerStatus) []corev1.ContainerStatus { return s }
	for name, c := range map[string]struct {
		change                   func(*corev1.Pod)
		ready, status2, restarts string
	}{
		"new":       {status("Pending", nil, nil), "0/1", "Pending", "0"},
		"creating":  {status("Pending", nil, one(corev1.ContainerStatus{Name: "main", State: waiting("ContainerCreating")})), "0/1", "ContainerCreating", "0"},
		"running":   {status("Running", nil, one(corev1.ContainerStatus{Name: "main", Ready: true, State: running})), "1/1", "Running", "0"},
		"crashing":  {status("Running", nil, one(corev1.ContainerStatus{Name: "main", RestartCount: 3, State: waiting("CrashLoopBackOff"), LastTerminationState: ended(1, "Error")})), "0/1", "CrashLoopBackOff", "3 (5m ago)"},
		"done":      {status("Succeeded", nil, one(corev1.ContainerStatus{Name: "main", State: ended(0, "Completed")})), "0/1", "Completed", "0"},
		"failed":    {status("Failed", nil, one(corev1.ContainerStatus{Name: "main", State: ended(137, "OOMKilled")})), "0/1", "OOMKilled", "0"},
		"exit":      {status("Failed", nil, one(corev1.ContainerStatus{Name: "main", State: ended(7, "")})), "0/1", "ExitCode:7", "0"},
		"init":      {status("Pending", one(corev1.ContainerStatus{Name: "i", State: running}), one(corev1.ContainerStatus{Name: "main", State: waiting("PodInitializing")})), "0/1", "Init:0/1", "0"},
		"init bad":  {status("Pending", one(corev1.ContainerStatus{Name: "i", State: ended(1, "Error")}), nil), "0/1", "Init:Error", "0"},
		"init pull": {status("Pending", one(corev1.ContainerStatus{Name: "i", State: waiting("ErrImagePull")}), nil), "0/1", "Init:ErrImagePull", "0"},
		"going": {func(p *corev1.Pod) {
			status("Running", nil, one(corev1.ContainerStatus{Name: "main", Ready: true, State: running}))(p)
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}, "1/1", "Terminating", "0"},
		"evicted": {func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = "Failed", "Evicted" }, "0/1", "Evicted", "0"},
		"sidecar": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "s", Image: "s:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			p.Status.Phase = "Running"
			p.Status.InitContainerStatuses = one(corev1.ContainerStatus{Name: "s", Ready: true, Started: ptr.To(true), RestartCount: 2, State: running})
			p.Status.ContainerStatuses = one(corev1.ContainerStatus{Name: "main", Ready: true, State: running})
		}, "2/2", "Running", "2"},
	} {
		pod := newPod(c.change)
		var got []string
		for _, col := range podColumns[:3] {
			got = append(got, col.Value(pod, now).(string))
		}
		if d := cmp.Diff([]string{c.ready, c.status2, c.restarts}, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestPodWarnings(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) {
		p.Name = "web.1"
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}, {Name: "B", Value: "x"}, {Name: "B", Value: "$(B)y"}}
		p.Spec.NodeSelector = map[string]string{"beta.kubernetes.io/os": "linux"}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "none", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}}}}})
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1}}}}
	})
	got := strings.Join(warnPod(pod, nil), "\n")
	for _, want := range []string{
		"metadata.name: this is used in the Pod's hostname",
		`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`,
		`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`,
		`volume "none" (Projected) has no sources provided`,
		"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no warning %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "env[3]") {
		t.Errorf("warned of a variable that uses its earlier value:\n%s", got)
	}
}

// The pods of clients that ask for what no pod can have.
func TestPodPrepared(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.NewTime(testTime)
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](-5)
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a.b/c"}}
	})
	DefaultPod(pod)
	preparePod(pod, nil)
	if got := *pod.Spec.TerminationGracePeriodSeconds; got != 1 {
		t.Errorf("a negative grace became %d s, want 1", got)
	}
	if c := pod.Status.Conditions; len(c) != 1 || !c[0].LastTransitionTime.Time.Equal(testTime) {
		t.Errorf("a gated pod's conditions say not since when: %+v", c)
	}
}
