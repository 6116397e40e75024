package simulate_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/simulate"
)

// many is a cluster with pods on its nodes.
func many(nodes, pods int) *simulate.Cluster {
	rng := rand.New(rand.NewPCG(1, 1))
	c := &simulate.Cluster{Taken: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	has := corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("128Gi"), "pods": resource.MustParse("110")}
	for k := range nodes {
		name := fmt.Sprintf("node-%05d", k)
		c.Objects = append(c.Objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint("zone-", k%3)}},
			Status: corev1.NodeStatus{Allocatable: has, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	for k := range pods {
		name := fmt.Sprintf("pod-%06d", k)
		c.Objects = append(c.Objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": fmt.Sprint("app-", k%500)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "set", Controller: ptr.To(true)}}},
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%05d", rng.IntN(nodes)), SchedulerName: "default-scheduler", Priority: ptr.To[int32](0), Containers: []corev1.Container{{Name: "c", Image: "x",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	}
	return c
}

func deployment(t testing.TB, replicas int) simulate.Manifest {
	m, err := simulate.ParseManifest(strings.NewReader(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: %d, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: x, resources: {requests: {cpu: "1"}}}]}}}
`, replicas)), "default")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// BenchmarkRun places 1,000 pods in a cluster of 5,000 nodes and 50,000 pods, filling the copy included.
func BenchmarkRun(b *testing.B) {
	c := many(5000, 50000)
	for b.Loop() {
		r, err := simulate.Run(b.Context(), c, simulate.Options{Seed: 1, Manifest: deployment(b, 1000)})
		if err != nil || r.Unplaced() > 0 {
			b.Fatal(err, r.Unplaced())
		}
	}
}

// BenchmarkFit fills such a cluster.
func BenchmarkFit(b *testing.B) {
	c := many(5000, 50000)
	for b.Loop() {
		r, err := simulate.Run(b.Context(), c, simulate.Options{Seed: 1, Manifest: deployment(b, 1), Fit: 10000})
		if err != nil || r.Fit.More != 10000 {
			b.Fatal(err, r.Fit)
		}
	}
}

// BenchmarkLoad reads the snapshot of such a cluster.
func BenchmarkLoad(b *testing.B) {
	var file bytes.Buffer
	if err := many(5000, 50000).Save(&file); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(file.Len()))
	for b.Loop() {
		c, err := simulate.Load(bytes.NewReader(file.Bytes()))
		if err != nil || len(c.Objects) != 55000 {
			b.Fatal(err)
		}
	}
}
