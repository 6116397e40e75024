package deployment_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/deployment"
	"github.com/yare-project/yare/controllers/replicaset"
)

func deploy(replicas int32, surge, unavailable string) *appsv1.Deployment {
	l := map[string]string{"app": "web"}
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	limit, deadline := int32(10), int32(600)
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web", Annotations: map[string]string{"team": "a"}},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: l}, RevisionHistoryLimit: &limit, ProgressDeadlineSeconds: &deadline,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}}}}
}

type scene struct {
	*ct.Stage
	d *appsv1.Deployment
}

func play(t *testing.T, d *appsv1.Deployment) *scene {
	s := ct.New(t, deployment.Descriptor(), replicaset.Descriptor()).Go()
	return &scene{Stage: s, d: s.Put(d).(*appsv1.Deployment)}
}

func (s *scene) change(f func(*appsv1.Deployment)) { ct.Change(s.Stage, s.d, f) }
func (s *scene) image(v string) {
	s.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = v })
}
func (s *scene) now() *appsv1.Deployment { return ct.Get[*appsv1.Deployment](s.Stage, "web") }

// pods counts the active pods by image.
func (s *scene) pods() map[string]int {
	out := map[string]int{}
	for _, p := range ct.All[*corev1.Pod](s.Stage) {
		if p.DeletionTimestamp == nil {
			out[p.Spec.Containers[0].Image]++
		}
	}
	return out
}

func (s *scene) sizes() map[string]int32 {
	out := map[string]int32{}
	for _, rs := range ct.All[*appsv1.ReplicaSet](s.Stage) {
		out[rs.Spec.Template.Spec.Containers[0].Image] = *rs.Spec.Replicas
	}
	return out
}

func (s *scene) expect(what string, want map[string]int) {
	s.Helper()
	ct.UntilEqual(s.Stage, what, want, s.pods)
	s.Settled()
	if got := s.pods(); !maps.Equal(want, got) {
		s.Fatalf("%s: settled at %v, want %v", what, got, want)
	}
}

// makeReady makes every pod that is not ready so, one at a time, and checks the bounds of the rollout after each.
func (s *scene) makeReady(check func()) {
	s.Helper()
	for range 1000 {
		s.Settled()
		check()
		i := slices.IndexFunc(ct.All[*corev1.Pod](s.Stage), func(p *corev1.Pod) bool { return len(p.Status.Conditions) == 0 })
		if i < 0 {
			return
		}
		ct.SetReady(s.Stage, true, ct.All[*corev1.Pod](s.Stage)[i])
	}
	s.Fatal("pods are replaced without end")
}

func (s *scene) condition(t appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	for _, c := range s.now().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return appsv1.DeploymentCondition{}
}

func TestRollingUpdateKeepsItsBounds(t *testing.T) {
	for _, c := range []struct {
		replicas           int32
		surge, unavailable string
		most, least        int // pods asked for, pods ready
	}{
		{4, "25%", "25%", 5, 3},
		{10, "25%", "25%", 13, 8}, // 2.5 rounds up for surge and down for unavailable
		{3, "1", "0", 4, 3},
		{3, "0", "1", 3, 2},
		{3, "0", "0%", 3, 2}, // both zero would never move
		{1, "100%", "100%", 2, 0},
	} {
		t.Run(fmt.Sprintf("%d +%s -%s", c.replicas, c.surge, c.unavailable), func(t *testing.T) {
			s := play(t, deploy(c.replicas, c.surge, c.unavailable))
			n := int(c.replicas)
			s.expect("first rollout", map[string]int{"v1": n})
			s.makeReady(func() {})
			s.image("v2")
			s.makeReady(func() {
				total, ready := 0, 0
				for _, p := range ct.All[*corev1.Pod](s.Stage) {
					total++
					if len(p.Status.Conditions) > 0 {
						ready++
					}
				}
				if total > c.most || ready < c.least {
					t.Fatalf("%d pods of which %d are ready during the rollout; want at most %d and at least %d", total, ready, c.most, c.least)
				}
			})
			s.expect("rollout", map[string]int{"v2": n})
			st := s.now().Status
			if st.UpdatedReplicas != c.replicas || st.AvailableReplicas != c.replicas || st.Replicas != c.replicas || st.UnavailableReplicas != 0 {
				t.Errorf("status after the rollout: %+v", st)
			}
			if p := s.condition(appsv1.DeploymentProgressing); p.Reason != "NewReplicaSetAvailable" || p.Status != corev1.ConditionTrue {
				t.Errorf("Progressing is %s for %s", p.Status, p.Reason)
			}
		})
	}
}

func TestRollbackFindsTheOldSetAndRevises(t *testing.T) {
	s := play(t, deploy(2, "1", "0"))
	s.makeReady(func() {})
	s.image("v2")
	s.makeReady(func() {})
	s.expect("v2", map[string]int{"v2": 2})
	if r := s.now().Annotations["deployment.kubernetes.io/revision"]; r != "2" {
		t.Errorf("revision %q after the second template, want 2", r)
	}
	s.image("v1")
	s.makeReady(func() {})
	s.expect("v1 again", map[string]int{"v1": 2})
	sets := ct.All[*appsv1.ReplicaSet](s.Stage)
	if len(sets) != 2 {
		t.Fatalf("%d sets, want the two of before", len(sets))
	}
	for _, rs := range sets {
		if rs.Spec.Template.Spec.Containers[0].Image == "v1" {
			if a := rs.Annotations; a["deployment.kubernetes.io/revision"] != "3" || a["deployment.kubernetes.io/revision-history"] != "1" || a["team"] != "a" {
				t.Errorf("annotations of the set that was rolled back to: %v", a)
			}
			if rs.Labels["pod-template-hash"] == "" || !strings.HasSuffix(rs.Name, rs.Labels["pod-template-hash"]) || rs.Spec.Selector.MatchLabels["pod-template-hash"] == "" {
				t.Errorf("set %s has labels %v and selector %v", rs.Name, rs.Labels, rs.Spec.Selector)
			}
		}
	}
}

func TestRecreateStopsOldPodsFirst(t *testing.T) {
	d := deploy(2, "1", "0")
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	s := play(t, d)
	s.expect("v1", map[string]int{"v1": 2})
	for _, p := range ct.All[*corev1.Pod](s.Stage) { // bound pods go gracefully
		ct.Change(s.Stage, p, func(p *corev1.Pod) { p.Spec.NodeName = "node" })
	}
	s.image("v2")
	s.expect("v1 stopping", map[string]int{})
	if got := ct.All[*corev1.Pod](s.Stage); len(got) != 2 {
		t.Fatalf("%d pods while old ones terminate, want just them", len(got))
	}
	now := int64(0)
	for _, p := range ct.All[*corev1.Pod](s.Stage) {
		ct.Delete(s.Stage, p, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	s.expect("v2", map[string]int{"v2": 2})
}

func TestPauseHoldsTheRolloutButNotScaling(t *testing.T) {
	s := play(t, deploy(2, "1", "0"))
	s.makeReady(func() {})
	s.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	s.image("v2")
	four := int32(4)
	s.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &four })
	s.expect("scaled while paused", map[string]int{"v1": 4})
	if c := s.condition(appsv1.DeploymentProgressing); c.Reason != "DeploymentPaused" {
		t.Errorf("Progressing is for %q, want DeploymentPaused", c.Reason)
	}
	s.change(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	s.makeReady(func() {})
	s.expect("resumed", map[string]int{"v2": 4})
}

func TestScalingDuringARolloutIsProportional(t *testing.T) {
	s := play(t, deploy(10, "3", "2"))
	s.makeReady(func() {})
	s.image("v2")
	s.expect("stuck rollout", map[string]int{"v1": 8, "v2": 5})
	n := int32(15)
	s.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
	// The documented example: 5 more are spread as 3 for the bigger set and 2 for the smaller.
	ct.UntilEqual(s.Stage, "proportional sizes", map[string]int32{"v1": 11, "v2": 7}, s.sizes)
}

func TestProgressDeadline(t *testing.T) {
	d := deploy(1, "1", "0")
	*d.Spec.ProgressDeadlineSeconds = 60
	s := play(t, d)
	s.makeReady(func() {})
	s.image("broken")
	s.expect("both", map[string]int{"v1": 1, "broken": 1})
	s.Clock.Step(59 * time.Second)
	s.Settled()
	if c := s.condition(appsv1.DeploymentProgressing); c.Status != corev1.ConditionTrue {
		t.Fatalf("Progressing is %s for %s before the deadline", c.Status, c.Reason)
	}
	s.Clock.Step(3 * time.Second)
	ct.UntilEqual(s.Stage, "timed out", "ProgressDeadlineExceeded", func() string { return s.condition(appsv1.DeploymentProgressing).Reason })
	if c := s.condition(appsv1.DeploymentAvailable); c.Status != corev1.ConditionTrue {
		t.Errorf("Available is %s though the old pod serves", c.Status)
	}
}

func TestHistoryIsLimited(t *testing.T) {
	d := deploy(1, "1", "0")
	*d.Spec.RevisionHistoryLimit = 2
	s := play(t, d)
	for _, v := range []string{"v2", "v3", "v4", "v5"} {
		s.makeReady(func() {})
		s.image(v)
	}
	s.makeReady(func() {})
	s.expect("last", map[string]int{"v5": 1})
	// The newest revisions stay: the current one and two to roll back to.
	ct.UntilEqual(s.Stage, "sets", map[string]int32{"v3": 0, "v4": 0, "v5": 1}, s.sizes)
}

func TestNameCollisionTakesAnotherHash(t *testing.T) {
	s := play(t, deploy(1, "1", "0"))
	s.expect("first", map[string]int{"v1": 1})
	taken := ct.All[*appsv1.ReplicaSet](s.Stage)[0]
	ct.Change(s.Stage, taken, func(rs *appsv1.ReplicaSet) { // the same name with another template, as a hash collision would leave it
		rs.Spec.Template.Spec.Containers[0].Image = "other"
	})
	ct.UntilEqual(s.Stage, "collision count", true, func() bool {
		c := s.now().Status.CollisionCount
		return c != nil && *c == 1
	})
	s.makeReady(func() {})
	s.expect("another set", map[string]int{"v1": 1})
}
