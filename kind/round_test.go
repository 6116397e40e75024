package kind_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/kind"
)

func TestRoundCutsTimesInPlace(t *testing.T) {
	k := kind.Add(group(), kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)},
		Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{LastUpdateTime: metav1.NewTime(at)}}}}
	k.Round(d)
	want := at.Truncate(time.Second)
	if !d.CreationTimestamp.Time.Equal(want) || !d.Status.Conditions[0].LastUpdateTime.Time.Equal(want) || !d.Status.Conditions[0].LastTransitionTime.IsZero() {
		t.Fatalf("rounded to %+v", d)
	}
	if n := testing.AllocsPerRun(100, func() { k.Round(d) }); n > 0 {
		t.Errorf("rounding what is round allocates %v times", n)
	}
}

func BenchmarkRound(b *testing.B) {
	k := kind.Add(group(), kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}})
	d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: make([]appsv1.DeploymentCondition, 3)}}
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{}}, {Time: &metav1.Time{}}}
	for b.Loop() {
		k.Round(d)
	}
}
