package volumeexpansion_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/volumeexpansion"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{"storage": resource.MustParse(size)}
}

// pair is a claim of one gibibyte and its volume.
func pair(s *controllertest.Stage, name string, source corev1.PersistentVolumeSource) *corev1.PersistentVolumeClaim {
	c := s.Put(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "v-" + name, Resources: corev1.VolumeResourceRequirements{Requests: storage("1Gi")}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("1Gi")}}).(*corev1.PersistentVolumeClaim)
	s.Put(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v-" + name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source, Capacity: storage("1Gi"),
		ClaimRef: &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}}})
	return c
}

func TestWhoGrowsAVolume(t *testing.T) {
	for name, c := range map[string]struct {
		source        corev1.PersistentVolumeSource
		resizer, told string
		kind          string
	}{
		"in-tree": {corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}, "ebs.csi.aws.com",
			"CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to expand the pvc", "Normal"},
		"csi":  {corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "h"}}, "", "waiting for an external controller to expand this PVC", "Normal"},
		"host": {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/d"}}, "", "no CSI driver that could", "Warning"},
	} {
		t.Run(name, func(t *testing.T) {
			s := controllertest.New(t, volumeexpansion.Descriptor()).Go()
			claim := pair(s, name, c.source)
			s.Settled()
			if n := len(controllertest.AllIn[*corev1.Event](s, "")); n > 0 {
				t.Fatalf("%d events about a claim that has what it asks for", n)
			}
			controllertest.Change(s, claim, func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage("2Gi") })
			s.Until("its user is told", func() bool {
				for _, e := range controllertest.AllIn[*corev1.Event](s, "") {
					if e.InvolvedObject.Name == name && e.Reason == "ExternalExpanding" && e.Type == c.kind && strings.Contains(e.Message, c.told) {
						return true
					}
				}
				return false
			}, func() any { return controllertest.AllIn[*corev1.Event](s, "") })
			s.Settled()
			if got := controllertest.Get[*corev1.PersistentVolumeClaim](s, name).Annotations["volume.kubernetes.io/storage-resizer"]; got != c.resizer {
				t.Errorf("the resizer is %q, want %q", got, c.resizer)
			}
		})
	}
}
