package ephemeralvolume_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/ephemeralvolume"
)

var asked = corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}

func pod(name string, adjust ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "plain", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"note": "y"}}, Spec: asked}}}},
	}}}
	for _, f := range adjust {
		f(p)
	}
	return p
}

func claims(s *controllertest.Stage) string {
	var names []string
	for _, c := range controllertest.All[*corev1.PersistentVolumeClaim](s) {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestPodsGetTheClaimsOfTheirEphemeralVolumes(t *testing.T) {
	s := controllertest.New(t, ephemeralvolume.Descriptor()).Go()
	p := s.Put(pod("web")).(*corev1.Pod)
	controllertest.UntilEqual(s, "claims", "web-scratch", func() string { return claims(s) })
	c := controllertest.Get[*corev1.PersistentVolumeClaim](s, "web-scratch")
	if diff := cmp.Diff(asked, c.Spec); diff != "" {
		t.Errorf("spec differs (-want +got): %s", diff)
	}
	if !metav1.IsControlledBy(c, p) || !ptr.Deref(c.OwnerReferences[0].BlockOwnerDeletion, false) || c.Labels["app"] != "x" || c.Annotations["note"] != "y" {
		t.Errorf("metadata is %+v", c.ObjectMeta)
	}
	controllertest.Delete(s, c, metav1.DeleteOptions{})
	s.Until("it is made again", func() bool {
		all := controllertest.All[*corev1.PersistentVolumeClaim](s)
		return len(all) == 1 && all[0].UID != c.UID
	}, func() any { return claims(s) })
}

func TestPodsThatAreOverGetNone(t *testing.T) {
	s := controllertest.New(t, ephemeralvolume.Descriptor()).Go()
	s.Put(pod("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("going", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.Unix(1, 0)), []string{"example.com/stay"}
		}), pod("web"))
	controllertest.UntilEqual(s, "claims", "web-scratch", func() string { return claims(s) })
	s.Settled()
	if got := claims(s); got != "web-scratch" {
		t.Errorf("claims are %s", got)
	}
}

func TestSomebodyElsesClaimIsLeftAlone(t *testing.T) {
	s := controllertest.New(t, ephemeralvolume.Descriptor()).Go()
	other := s.Put(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "web-scratch",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: types.UID("of-before"), Controller: ptr.To(true)}}}, Spec: asked}).(*corev1.PersistentVolumeClaim)
	s.Settled()
	p := s.Put(pod("web")).(*corev1.Pod)
	s.Until("its user is told", func() bool {
		for _, e := range controllertest.AllIn[*corev1.Event](s, "") {
			if e.InvolvedObject.Name == "web" && e.Reason == "FailedBinding" && strings.Contains(e.Message, fmt.Sprintf("ephemeral volume scratch: PVC %s/web-scratch was not created for pod %s/web (pod is not owner)", p.Namespace, p.Namespace)) {
				return true
			}
		}
		return false
	}, func() any { return controllertest.AllIn[*corev1.Event](s, "") })
	controllertest.Delete(s, other, metav1.DeleteOptions{})
	s.Until("it gets its own once that is gone", func() bool {
		all := controllertest.All[*corev1.PersistentVolumeClaim](s)
		return len(all) == 1 && metav1.IsControlledBy(all[0], p)
	}, func() any { return claims(s) })
}
