package server_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A pod with a generic ephemeral volume (KEP-1698): its claim is made, bound to a volume where the pod is placed, mounted, and goes with the pod.
func TestAnEphemeralVolumeLivesWithItsPod(t *testing.T) {
	q := startQuick(t)
	ctx := t.Context()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	if _, err := q.api.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.api.CoreV1().PersistentVolumes().Create(ctx, hostVolume(t, "disk", "disks", "3Gi", corev1.PersistentVolumeReclaimRetain), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.volumePhase("disk", corev1.VolumeAvailable)
	q.mount("user", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimOf("", "disks", "2Gi").Spec}}})
	c := q.claimPhase("user-v", corev1.ClaimBound)
	if c.Spec.VolumeName != "disk" {
		t.Errorf("the claim is bound to %q", c.Spec.VolumeName)
	}
	q.until("the pod runs", func(ctx context.Context) error {
		p, err := q.api.CoreV1().Pods("default").Get(ctx, "user", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
	if err := q.api.CoreV1().Pods("default").Delete(ctx, "user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	q.gone("the claim", func(ctx context.Context) error {
		_, err := q.api.CoreV1().PersistentVolumeClaims("default").Get(ctx, "user-v", metav1.GetOptions{})
		return err
	})
	q.volumePhase("disk", corev1.VolumeReleased)
	// A pod that was given its node by its author is not let into a claim by its name.
	if _, err := q.api.CoreV1().PersistentVolumeClaims("default").Create(ctx, claimOf("thief-v", "disks", "1Gi"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "thief"}, Spec: corev1.PodSpec{NodeName: "dinghy", TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: claimOf("", "disks", "2Gi").Spec}}}}}}}
	if _, err := q.api.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the node refuses", func(ctx context.Context) error {
		return q.told(ctx, "thief", `PVC default/thief-v was not created for pod default/thief (pod is not owner)`)
	})
	q.until("its user is told why there is no claim", func(ctx context.Context) error { return q.event(ctx, "thief", "FailedBinding") })
}
