package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func hostVolume(t *testing.T, name, class, size string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{"storage": resource.MustParse(size)}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: policy, StorageClassName: class,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}}}}
}

func claimOf(name, class, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(size)}}}}
}

func (q *quick) volumePhase(name string, want corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	q.Helper()
	var v *corev1.PersistentVolume
	q.until(fmt.Sprintf("volume %s is %s", name, want), func(ctx context.Context) (err error) {
		v, err = q.api.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && v.Status.Phase != want {
			err = fmt.Errorf("it is %s", v.Status.Phase)
		}
		return err
	})
	return v
}

func (q *quick) claimPhase(name string, want corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	q.Helper()
	var c *corev1.PersistentVolumeClaim
	q.until(fmt.Sprintf("claim %s is %s", name, want), func(ctx context.Context) (err error) {
		c, err = q.api.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && c.Status.Phase != want {
			err = fmt.Errorf("it is %s", c.Status.Phase)
		}
		return err
	})
	return c
}

// A pod on a claim whose class waits for it: the scheduler reserves a volume, the binder finishes, the node mounts; nothing goes while it is used.
func TestAVolumesLife(t *testing.T) {
	q := startQuick(t)
	ctx := t.Context()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	if _, err := q.api.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, v := range []*corev1.PersistentVolume{hostVolume(t, "large", "disks", "9Gi", corev1.PersistentVolumeReclaimRetain),
		hostVolume(t, "fitting", "disks", "3Gi", corev1.PersistentVolumeReclaimDelete), hostVolume(t, "little", "disks", "1Gi", corev1.PersistentVolumeReclaimRetain)} {
		if _, err := q.api.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if v := q.volumePhase(v.Name, corev1.VolumeAvailable); v.Status.LastPhaseTransitionTime == nil {
			t.Errorf("volume %s does not say since when", v.Name)
		}
	}
	claims := q.api.CoreV1().PersistentVolumeClaims("default")
	if _, err := claims.Create(ctx, claimOf("data", "disks", "2Gi"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the claim says that it waits", func(ctx context.Context) error { return q.event(ctx, "data", "WaitForFirstConsumer") })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	if _, err := q.api.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := q.claimPhase("data", corev1.ClaimBound)
	if c.Spec.VolumeName != "fitting" || c.Status.Capacity.Storage().String() != "3Gi" {
		t.Errorf("bound to %s of %v, want fitting of 3Gi", c.Spec.VolumeName, c.Status.Capacity)
	}
	q.volumePhase("fitting", corev1.VolumeBound)
	q.until("the pod runs", func(ctx context.Context) error {
		p, err := q.api.CoreV1().Pods("default").Get(ctx, "user", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
	c.Spec.Resources.Requests["storage"] = resource.MustParse("5Gi")
	if _, err := claims.Update(ctx, c, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only dynamically provisioned pvc can be resized") {
		t.Errorf("growing where the class does not allow it: %v", err)
	}
	if err := claims.Delete(ctx, "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := q.api.CoreV1().PersistentVolumes().Delete(ctx, "large", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	q.gone("the free volume", func(ctx context.Context) error {
		_, err := q.api.CoreV1().PersistentVolumes().Get(ctx, "large", metav1.GetOptions{})
		return err
	})
	if c, err := claims.Get(ctx, "data", metav1.GetOptions{}); err != nil || c.DeletionTimestamp == nil {
		t.Errorf("a claim that a pod uses: %v, want it to be there, and marked deleted", err)
	}
	if err := q.api.CoreV1().Pods("default").Delete(ctx, "user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	q.gone("the claim", func(ctx context.Context) error {
		_, err := claims.Get(ctx, "data", metav1.GetOptions{})
		return err
	})
	// Its policy is Delete, but nobody made it.
	if v := q.volumePhase("fitting", corev1.VolumeFailed); !strings.Contains(v.Status.Message, "no provisioner made it") {
		t.Errorf("the volume does not say why it failed: %+v", v.Status)
	}
	q.until("an Event says so", func(ctx context.Context) error { return q.event(ctx, "fitting", "VolumeFailedDelete") })
}

func (q *quick) gone(what string, get func(context.Context) error) {
	q.Helper()
	q.until(what+" is gone", func(ctx context.Context) error {
		err := get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v", err)
	})
}

func (q *quick) event(ctx context.Context, about, reason string) error {
	list, err := q.api.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + about})
	if err != nil {
		return err
	}
	var reasons []string
	for _, e := range list.Items {
		if e.Reason == reason {
			return nil
		}
		reasons = append(reasons, e.Reason)
	}
	return fmt.Errorf("there are only %v", reasons)
}
