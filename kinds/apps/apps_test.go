package apps

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

var (
	webLabels = map[string]string{"app": "web"}
	template  = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: webLabels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}}
	selector  = &metav1.LabelSelector{MatchLabels: webLabels}
)

func deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: selector.DeepCopy(), Template: *template.DeepCopy()}}
	DefaultDeployment(d)
	return d
}

func wantRefusal(t *testing.T, name string, errs field.ErrorList, want string) {
	t.Helper()
	err := errs.ToAggregate()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: want %q, got %v", name, want, err)
	}
}

func TestDeploymentDefaults(t *testing.T) {
	d := deployment()
	want := appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), RevisionHistoryLimit: ptr.To[int32](10), ProgressDeadlineSeconds: ptr.To[int32](600),
		Strategy: appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromString("25%"))}}}
	want.Selector, want.Template = d.Spec.Selector, d.Spec.Template
	if diff := cmp.Diff(want, d.Spec); diff != "" {
		t.Error(diff)
	}
	if d.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways || d.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Error("the template was not defaulted")
	}
}

func TestUpdates(t *testing.T) {
	old := deployment()
	now := old.DeepCopy()
	now.Spec.Template.Spec.Containers[0].Image = "i:2"
	wantRefusal(t, "image", validateDeployment(now, old), "")
	now.Spec.Selector.MatchLabels = map[string]string{"app": "other"}
	now.Spec.Template.Labels = map[string]string{"app": "other"}
	wantRefusal(t, "selector", validateDeployment(now, old), "spec.selector: Invalid value")

	was := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{ServiceName: "a", Selector: selector, Template: template}}
	DefaultStatefulSet(was)
	set := was.DeepCopy()
	set.Spec.Replicas, set.Spec.Template.Spec.Containers[0].Image = ptr.To[int32](5), "i:2"
	wantRefusal(t, "scale", validateStatefulSet(set, was), "")
	set.Spec.ServiceName = "b"
	wantRefusal(t, "service", validateStatefulSet(set, was), "updates to statefulset spec for fields other than 'replicas'")

	rev := &appsv1.ControllerRevision{Revision: 1}
	rev.Data.Raw = []byte(`{"a":1}`)
	next := rev.DeepCopy()
	next.Revision = 2
	wantRefusal(t, "renumber", validateRevision(next, rev), "")
	next.Data.Raw = []byte(`{"a":2}`)
	wantRefusal(t, "rewrite", validateRevision(next, rev), "data: Invalid value: \"\": field is immutable")
}

func TestStatus(t *testing.T) {
	old := deployment()
	old.Status.CollisionCount = ptr.To[int32](2)
	now := old.DeepCopy()
	now.Status.Replicas, now.Status.ReadyReplicas, now.Status.AvailableReplicas = 2, 1, 2
	wantRefusal(t, "counts", validateDeploymentStatus(now, old), "cannot be greater than readyReplicas")
	now.Status.CollisionCount = nil
	wantRefusal(t, "collisions", validateDeploymentStatus(now, old), "cannot be decremented")
}

func TestDeploymentGenerationCountsAnnotations(t *testing.T) {
	for _, k := range Group.Kinds {
		if k.Names.Kind != "Deployment" {
			continue
		}
		a, b := deployment(), deployment()
		b.Annotations = map[string]string{"x": "y"}
		if cmp.Equal(k.Spec(a), k.Spec(b)) {
			t.Error("a changed annotation, which goes to the ReplicaSets, would not count")
		}
	}
}

func TestDaemonSetTemplateGeneration(t *testing.T) {
	d := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	DefaultDaemonSet(d)
	prepareDaemonSet(d, nil)
	changed := d.DeepCopy()
	changed.Annotations = nil
	changed.Spec.Template.Spec.Containers[0].Image = "i:2"
	prepareDaemonSet(changed, d)
	same := changed.DeepCopy()
	prepareDaemonSet(same, changed)
	got := []string{d.Annotations[appsv1.DeprecatedTemplateGeneration], changed.Annotations[appsv1.DeprecatedTemplateGeneration], same.Annotations[appsv1.DeprecatedTemplateGeneration]}
	if diff := cmp.Diff([]string{"1", "2", "2"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestScale(t *testing.T) {
	for _, k := range Group.Kinds {
		switch k.Names.Kind {
		case "Deployment", "ReplicaSet", "StatefulSet":
		default:
			continue
		}
		obj := k.New()
		k.Default(obj)
		k.Scale.SetReplicas(obj, 7)
		if k.Scale.Replicas(obj) != 7 {
			t.Errorf("%s: %d replicas", k.Names.Kind, k.Scale.Replicas(obj))
		}
	}
	d := deployment()
	for _, k := range Group.Kinds {
		if k.Names.Kind == "Deployment" && k.Scale.Selector(d) != "app=web" {
			t.Errorf("selector %q", k.Scale.Selector(d))
		}
	}
}

func TestColumns(t *testing.T) {
	d := deployment()
	d.Spec.Replicas = ptr.To[int32](3)
	d.Status = appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 3, AvailableReplicas: 1}
	for _, k := range Group.Kinds {
		if k.Names.Kind != "Deployment" {
			continue
		}
		got := map[string]any{}
		for _, c := range k.Versions[0].Columns {
			got[c.Name] = c.Value(d, metav1.Now().Time)
		}
		want := map[string]any{"Ready": "2/3", "Up-to-date": int64(3), "Available": int64(1), "Containers": "c", "Images": "i:1", "Selector": "app=web"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
