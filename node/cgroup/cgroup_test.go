package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWeightsMeetAtTheDefaults(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 1024: 100, 262144: 10000} {
		if got := Weight(shares); got != want {
			t.Errorf("Weight(%d) = %d, want %d", shares, got, want)
		}
	}
	for s := int64(3); s < 262144; s += 997 {
		if Weight(s) < Weight(s-1) {
			t.Errorf("Weight(%d) < Weight(%d)", s, s-1)
		}
	}
}

func burstable(uid types.UID) *corev1.Pod {
	q := resource.MustParse
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": q("250m")}, Limits: corev1.ResourceList{"cpu": q("500m"), "memory": q("64Mi")}}}}}}
}

// TestRealGroups makes groups on this machine's cgroups, whichever version they are, and removes them.
func TestRealGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT TESTED: cgroups need root")
	}
	tree, err := New(Config{Parent: fmt.Sprintf("/yare-cgroup-test-%d", os.Getpid()), CPUs: 2})
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	pod := burstable("uid-x")
	path, err := tree.Pod(pod)
	if err != nil {
		t.Fatal(err)
	}
	if want := tree.cfg.Parent + "/burstable/poduid-x"; path != want {
		t.Errorf("path %s, want %s", path, want)
	}
	read := func(controller, v1, v2 string) string {
		file := v1
		if tree.unified {
			file = v2
		}
		b, err := os.ReadFile(filepath.Join(tree.controller(controller), path, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b))[0]
	}
	if got := read("cpu", "cpu.cfs_quota_us", "cpu.max"); got != "50000" {
		t.Errorf("CPU quota %s, want 50000", got)
	}
	if got := read("memory", "memory.limit_in_bytes", "memory.max"); got != fmt.Sprint(64<<20) {
		t.Errorf("memory limit %s, want 64 MiB", got)
	}
	if err := tree.Balance([]*corev1.Pod{pod}); err != nil {
		t.Error(err)
	}
	for range 2 { // removing what is gone is no error
		if err := tree.Remove(pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(tree.controller("cpu"), path)); !os.IsNotExist(err) {
		t.Errorf("the group is still there: %v", err)
	}
}
