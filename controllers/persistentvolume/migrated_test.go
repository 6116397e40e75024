package persistentvolume_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/controllers/controllertest"
)

func ebs(v *corev1.PersistentVolume) {
	v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}
}

func madeBy(plugin string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": plugin}
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
}

func (s stage) volume(name string) *corev1.PersistentVolume {
	all := controllertest.AllIn[*corev1.PersistentVolume](s.Stage, "")
	if i := slices.IndexFunc(all, func(v *corev1.PersistentVolume) bool { return v.Name == name }); i >= 0 {
		return all[i]
	}
	return &corev1.PersistentVolume{}
}

// TestTheDriverThatTookOverAPluginIsAsked follows KEP-625: classes of in-tree plugins are served by the drivers' provisioners.
func TestTheDriverThatTookOverAPluginIsAsked(t *testing.T) {
	s := begin(t)
	class := func(name, provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)}
	}
	old := func(c *corev1.PersistentVolumeClaim) { // as a cluster from before left it
		c.Annotations = map[string]string{"volume.beta.kubernetes.io/storage-provisioner": "kubernetes.io/aws-ebs", "volume.kubernetes.io/storage-provisioner": "kubernetes.io/aws-ebs"}
	}
	s.Put(class("gp2", "kubernetes.io/aws-ebs"), class("brick", "kubernetes.io/glusterfs"), claim("c", "1Gi", ofClass("gp2")), claim("old", "1Gi", ofClass("gp2"), old), claim("g", "1Gi", ofClass("brick")))
	want := map[string]string{"volume.beta.kubernetes.io/storage-provisioner": "ebs.csi.aws.com", "volume.kubernetes.io/storage-provisioner": "ebs.csi.aws.com"}
	for _, name := range []string{"c", "old"} {
		s.says(name, "ExternalProvisioning", "'ebs.csi.aws.com'")
		s.Settled()
		if diff := cmp.Diff(want, controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, name).Annotations); diff != "" {
			t.Errorf("annotations of claim %s differ (-want +got): %s", name, diff)
		}
	}
	s.says("g", "ProvisioningFailed", "no volume plugin matched name kubernetes.io/glusterfs")
}

func TestVolumesOfAPluginAreItsDriversToDelete(t *testing.T) {
	const finalizer = "kubernetes.io/pv-controller"
	s := begin(t)
	s.Put(pv("v", "1Gi", ebs, madeBy("kubernetes.io/aws-ebs"), func(v *corev1.PersistentVolume) {
		v.Finalizers = []string{finalizer, "external-provisioner.volume.kubernetes.io/finalizer"}
	}), claim("c", "1Gi"))
	s.becomes("claim c Bound v; volume v Bound c")
	v := s.volume("v")
	if v.Annotations["pv.kubernetes.io/migrated-to"] != "ebs.csi.aws.com" || slices.Contains(v.Finalizers, finalizer) || len(v.Finalizers) != 1 {
		t.Errorf("annotations %v, finalizers %v", v.Annotations, v.Finalizers)
	}
	controllertest.Delete(s.Stage, controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, "c"), metav1.DeleteOptions{})
	s.becomes("volume v Released c")
}

func TestBoundClaimsOfAPluginAreMarked(t *testing.T) {
	s := begin(t)
	s.Put(pv("v", "1Gi", ebs, madeBy("kubernetes.io/aws-ebs")), claim("c", "1Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{"volume.beta.kubernetes.io/storage-provisioner": "kubernetes.io/aws-ebs"}
	}))
	s.becomes("claim c Bound v; volume v Bound c")
	marked := func() string {
		return controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, "c").Annotations["pv.kubernetes.io/migrated-to"]
	}
	controllertest.UntilEqual(s.Stage, "the claim's driver", "ebs.csi.aws.com", marked)
	controllertest.Change(s.Stage, controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, "c"), func(c *corev1.PersistentVolumeClaim) {
		c.Annotations["volume.beta.kubernetes.io/storage-provisioner"] = "csi.example.com"
	})
	controllertest.UntilEqual(s.Stage, "the driver of a claim that another provisioner serves", "", marked)
}

// TestWhoDeletesAVolume: made by hand, one is left to its CSI driver, and one of a plugin fails, as nobody is to delete it.
func TestWhoDeletesAVolume(t *testing.T) {
	s := begin(t)
	s.Put(pv("driver", "1Gi", reserved("a"), func(v *corev1.PersistentVolume) {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "h"}
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}), pv("plugin", "1Gi", reserved("b"), ebs, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}), claim("a", "1Gi"), claim("b", "1Gi"))
	s.becomes("claim a Bound driver; claim b Bound plugin; volume driver Bound a; volume plugin Bound b")
	for _, name := range []string{"a", "b"} {
		controllertest.Delete(s.Stage, controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, name), metav1.DeleteOptions{})
	}
	s.becomes("volume driver Released a; volume plugin Failed b")
	s.says("plugin", "VolumeFailedDelete", "no provisioner made it")
}
