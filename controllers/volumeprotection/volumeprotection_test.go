package volumeprotection_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/volumeprotection"
)

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name, Finalizers: []string{"kubernetes.io/pvc-protection"}}}
}

func user(name, node, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
}

func names[T client.Object](s *controllertest.Stage, namespace string) func() []string {
	return func() (out []string) {
		for _, o := range controllertest.AllIn[T](s, namespace) {
			out = append(out, o.GetName())
		}
		return out
	}
}

func TestAClaimGoesWhenItsLastPodIsGone(t *testing.T) {
	s := controllertest.New(t, volumeprotection.Descriptor()).Go()
	used := s.Put(claim("used"), claim("free"), claim("only-waited-for"), claim("made")).(*corev1.PersistentVolumeClaim)
	finished := user("finished", "n", "used")
	finished.Status.Phase = corev1.PodSucceeded
	p := s.Put(finished, user("unplaced", "", "only-waited-for")).(*corev1.Pod)
	// A pod's volume of this name is not this claim: it was not made for it.
	s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "m"}, Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{Name: "ade",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}}})
	for _, c := range controllertest.All[*corev1.PersistentVolumeClaim](s) {
		controllertest.Delete(s, c, metav1.DeleteOptions{})
	}
	left := names[*corev1.PersistentVolumeClaim](s, controllertest.Namespace)
	controllertest.UntilEqual(s, "claims that are used", []string{"used"}, left)
	s.Settled()
	if diff := cmp.Diff([]string{used.Name}, left()); diff != "" {
		t.Fatalf("a finished pod still uses its claim (-want +got)\n%s", diff)
	}
	controllertest.Delete(s, p, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	controllertest.UntilEqual(s, "claims", nil, left)
}

func TestAVolumeGoesWhenItIsNoLongerBound(t *testing.T) {
	s := controllertest.New(t, volumeprotection.Descriptor()).Go()
	v := s.Put(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "bound"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "free"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}).(*corev1.PersistentVolume)
	// They were made before admission protected them.
	controllertest.UntilEqual(s, "protected volumes", 2, func() (n int) {
		for _, v := range controllertest.AllIn[*corev1.PersistentVolume](s, "") {
			n += len(v.Finalizers)
		}
		return n
	})
	for _, v := range controllertest.AllIn[*corev1.PersistentVolume](s, "") {
		controllertest.Delete(s, v, metav1.DeleteOptions{})
	}
	left := names[*corev1.PersistentVolume](s, "")
	controllertest.UntilEqual(s, "volumes that are bound", []string{"bound"}, left)
	now, err := client.Of[*corev1.PersistentVolume](s.Server).Get(t.Context(), "", v.Name)
	if err != nil {
		t.Fatal(err)
	}
	now = now.DeepCopy()
	now.Status.Phase = corev1.VolumeReleased
	if _, err := client.Of[*corev1.PersistentVolume](s.Server).UpdateStatus(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	controllertest.UntilEqual(s, "volumes", nil, left)
}

func TestAnAttributesClassGoesWhenNoClaimNamesIt(t *testing.T) {
	s := controllertest.New(t, volumeprotection.Descriptor()).Go()
	c := claim("c")
	c.Finalizers, c.Spec.VolumeAttributesClassName = nil, ptr.To("fast")
	s.Put(c)
	class := s.Put(&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Finalizers: []string{"kubernetes.io/vac-protection"}}}).(*storagev1.VolumeAttributesClass)
	s.Settled()
	controllertest.Delete(s, class, metav1.DeleteOptions{})
	s.Settled()
	left := names[*storagev1.VolumeAttributesClass](s, "")
	if diff := cmp.Diff([]string{"fast"}, left()); diff != "" {
		t.Fatalf("a class that a claim names (-want +got)\n%s", diff)
	}
	controllertest.Delete(s, controllertest.Get[*corev1.PersistentVolumeClaim](s, "c"), metav1.DeleteOptions{})
	controllertest.UntilEqual(s, "classes", nil, left)
}
