package disruption_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/disruption"
)

// play makes a Deployment of n with its ReplicaSet and as many pods, of which ready are so.
func play(t *testing.T, n int32, ready int, spec policyv1.PodDisruptionBudgetSpec) *ct.Stage {
	s := ct.New(t, disruption.Descriptor()).Go()
	l := map[string]string{"app": "web"}
	d := s.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &n, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}}}})
	rs := s.Put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web-1",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}}, Spec: appsv1.ReplicaSetSpec{Replicas: &n}})
	for i := range int(n) {
		status := corev1.ConditionFalse
		if i < ready {
			status = corev1.ConditionTrue
		}
		s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: fmt.Sprintf("p%d", i), Labels: l,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}})
	}
	spec.Selector = &metav1.LabelSelector{MatchLabels: l}
	s.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "b"}, Spec: spec})
	return s
}

// numbers are expected, desired, healthy and allowed.
func numbers(s *ct.Stage) func() [4]int32 {
	return func() [4]int32 {
		st := ct.Get[*policyv1.PodDisruptionBudget](s, "b").Status
		return [4]int32{st.ExpectedPods, st.DesiredHealthy, st.CurrentHealthy, st.DisruptionsAllowed}
	}
}

func value(s string) *intstr.IntOrString {
	v := intstr.Parse(s)
	return &v
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		what  string
		n     int32
		ready int
		spec  policyv1.PodDisruptionBudgetSpec
		want  [4]int32
	}{
		{"minAvailable", 3, 3, policyv1.PodDisruptionBudgetSpec{MinAvailable: value("2")}, [4]int32{3, 2, 3, 1}},
		{"minAvailable, too few ready", 3, 1, policyv1.PodDisruptionBudgetSpec{MinAvailable: value("2")}, [4]int32{3, 2, 1, 0}},
		{"minAvailable rounds up", 7, 7, policyv1.PodDisruptionBudgetSpec{MinAvailable: value("50%")}, [4]int32{7, 4, 7, 3}},
		{"maxUnavailable", 3, 3, policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("1")}, [4]int32{3, 2, 3, 1}},
		{"maxUnavailable rounds up", 7, 7, policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("30%")}, [4]int32{7, 4, 7, 3}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := play(t, c.n, c.ready, c.spec)
			ct.UntilEqual(s, c.what, c.want, numbers(s))
		})
	}
}

func TestFollowsPodsAndScale(t *testing.T) {
	s := play(t, 3, 3, policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("1")})
	ct.UntilEqual(s, "all well", [4]int32{3, 2, 3, 1}, numbers(s))
	ct.SetReady(s, false, ct.Get[*corev1.Pod](s, "p0"))
	ct.UntilEqual(s, "one in trouble", [4]int32{3, 2, 2, 0}, numbers(s))
	four := int32(4)
	ct.Change(s, ct.Get[*appsv1.Deployment](s, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = &four })
	ct.UntilEqual(s, "scaled up, and not there yet", [4]int32{4, 3, 2, 0}, numbers(s))
}

func TestEvictedPodCountsAsGoneForAWhile(t *testing.T) {
	s := play(t, 3, 3, policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("1")})
	ct.UntilEqual(s, "all well", [4]int32{3, 2, 3, 1}, numbers(s))
	s.Settled()
	ct.Change(s, ct.Get[*policyv1.PodDisruptionBudget](s, "b"), func(b *policyv1.PodDisruptionBudget) { // as the eviction subresource does
		b.Status.DisruptedPods = map[string]metav1.Time{"p1": metav1.NewTime(s.Clock.Now()), "unknown": metav1.NewTime(s.Clock.Now())}
		b.Status.DisruptionsAllowed = 0
	})
	ct.UntilEqual(s, "no second eviction", [4]int32{3, 2, 2, 0}, numbers(s))
	s.Settled()
	s.Clock.Step(2 * time.Minute)
	ct.UntilEqual(s, "it did not go after all", [4]int32{3, 2, 3, 1}, numbers(s))
}
