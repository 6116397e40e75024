package replicaset_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/replicaset"
	"github.com/yare-project/yare/internal/resource"
)

func set(name string, replicas int32) *appsv1.ReplicaSet {
	l := map[string]string{"app": name}
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: l},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l, Annotations: map[string]string{"a": "b"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}

func scale(s *controllertest.Stage, rs *appsv1.ReplicaSet, n int32) {
	controllertest.Change(s, rs, func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
}

func pods(s *controllertest.Stage) []*corev1.Pod { return controllertest.All[*corev1.Pod](s) }

func count(s *controllertest.Stage, want int) {
	s.Helper()
	controllertest.UntilEqual(s, "number of pods", want, func() int { return len(pods(s)) })
	s.Settled()
	if got := len(pods(s)); got != want {
		s.Fatalf("settled at %d pods, want %d", got, want)
	}
}

func TestMakesAndReplacesPods(t *testing.T) {
	s := controllertest.New(t, replicaset.Descriptor()).Go()
	rs := s.Put(set("web", 40)).(*appsv1.ReplicaSet)
	count(s, 40)
	created := 0
	for _, a := range s.Server.Actions(false) {
		if a.Verb == "create" && a.Ref.Resource == "pods" {
			created++
		}
	}
	if created != 40 {
		t.Errorf("%d pods were created in all, want 40", created)
	}
	p := pods(s)[0]
	if !metav1.IsControlledBy(p, rs) || p.Labels["app"] != "web" || p.Annotations["a"] != "b" || !strings.HasPrefix(p.Name, "web-") {
		t.Errorf("pod is not as the template and the owner say: %+v", p.ObjectMeta)
	}
	controllertest.Delete(s, p, metav1.DeleteOptions{})
	controllertest.UntilEqual(s, "a replacement", 41, func() int { return 1 + len(pods(s)) })
	s.Settled()
	count(s, 40)
	controllertest.Change(s, pods(s)[1], func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	count(s, 41) // the failed one is no replica, and stays for its owner's user to look at
	scale(s, rs, 0)
	count(s, 1)
}

func TestStatusFollowsPods(t *testing.T) {
	s := controllertest.New(t, replicaset.Descriptor()).Go()
	rs := set("web", 3)
	rs.Spec.MinReadySeconds = 10
	s.Put(rs)
	count(s, 3)
	controllertest.SetReady(s, true, pods(s)[:2]...)
	status := func() [3]int32 {
		st := controllertest.Get[*appsv1.ReplicaSet](s, "web").Status
		return [3]int32{st.Replicas, st.ReadyReplicas, st.AvailableReplicas}
	}
	controllertest.UntilEqual(s, "two ready, none available yet", [3]int32{3, 2, 0}, status)
	s.Settled()
	s.Clock.Step(10 * time.Second)
	controllertest.UntilEqual(s, "available after minReadySeconds", [3]int32{3, 2, 2}, status)
	if rs := controllertest.Get[*appsv1.ReplicaSet](s, "web"); rs.Status.ObservedGeneration != rs.Generation {
		t.Errorf("observed generation %d of %d", rs.Status.ObservedGeneration, rs.Generation)
	}
}

func TestAdoptsAndReleases(t *testing.T) {
	s := controllertest.New(t, replicaset.Descriptor()).Go()
	orphan := s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "orphan", Labels: map[string]string{"app": "web"}}}).(*corev1.Pod)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "Other", Name: "x", UID: "x", Controller: new(true)}
	s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "foreign", Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{other}}})
	rs := s.Put(set("web", 2)).(*appsv1.ReplicaSet)
	count(s, 3) // adopted, foreign, one made
	if !metav1.IsControlledBy(controllertest.Get[*corev1.Pod](s, "orphan"), rs) {
		t.Fatal("a matching orphan was not adopted")
	}
	if metav1.IsControlledBy(controllertest.Get[*corev1.Pod](s, "foreign"), rs) {
		t.Fatal("another controller's pod was adopted")
	}
	controllertest.Change(s, orphan, func(p *corev1.Pod) { p.Labels["app"] = "debug" })
	count(s, 4)
	if p := controllertest.Get[*corev1.Pod](s, "orphan"); len(p.OwnerReferences) != 0 {
		t.Errorf("a pod that no longer matches keeps the owner %v", p.OwnerReferences)
	}
}

func TestFailureShowsInConditionAndEvent(t *testing.T) {
	s := controllertest.New(t, replicaset.Descriptor()).Go()
	s.Server.FailWith(func(verb string, ref resource.Ref, _ runtime.Object) error {
		if verb == "create" && ref.Resource == "pods" {
			return errors.New("quota is full")
		}
		return nil
	})
	s.Put(set("web", 100))
	failing := func() bool {
		c := controllertest.Get[*appsv1.ReplicaSet](s, "web").Status.Conditions
		return len(c) == 1 && c[0].Type == appsv1.ReplicaSetReplicaFailure && c[0].Reason == "FailedCreate" && strings.Contains(c[0].Message, "quota is full")
	}
	s.Until("ReplicaFailure", failing, func() any { return controllertest.Get[*appsv1.ReplicaSet](s, "web").Status })
	tried := 0
	for _, a := range s.Server.Actions(false) {
		if a.Verb == "create" && a.Ref.Resource == "pods" {
			tried++
		}
	}
	if tried > 40 {
		t.Errorf("%d pods were tried for a set of 100 whose every create fails, want few", tried)
	}
	s.Until("a warning event", func() bool {
		return slices.ContainsFunc(controllertest.All[*corev1.Event](s), func(e *corev1.Event) bool { return e.Reason == "FailedCreate" && e.Type == "Warning" })
	}, func() any { return controllertest.All[*corev1.Event](s) })
	s.Server.FailWith(nil)
	s.Settled()
	s.Clock.Step(time.Second)
	count(s, 100)
	controllertest.UntilEqual(s, "no condition any more", 0, func() int { return len(controllertest.Get[*appsv1.ReplicaSet](s, "web").Status.Conditions) })
}

func TestReplicationController(t *testing.T) {
	s := controllertest.New(t, replicaset.ReplicationDescriptor()).Go()
	n := int32(2)
	template := set("web", 0).Spec.Template
	s.Put(&corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "web"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &n, Selector: template.Labels, Template: &template}})
	count(s, 2)
	controllertest.SetReady(s, true, pods(s)...)
	controllertest.UntilEqual(s, "available", 2, func() int32 {
		return controllertest.Get[*corev1.ReplicationController](s, "web").Status.AvailableReplicas
	})
}
