package persistentvolume_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/persistentvolume"
)

type stage struct{ *controllertest.Stage }

func begin(t *testing.T) stage {
	return stage{controllertest.New(t, persistentvolume.Descriptor()).Go()}
}

func pv(name, size string, adjust ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{"storage": resource.MustParse(size)},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}}
	for _, f := range adjust {
		f(v)
	}
	return v
}

func claim(name, size string, adjust ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(size)}},
	}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	for _, f := range adjust {
		f(c)
	}
	return c
}

func ofClass(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
}

func named(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume }
}

func reserved(claim string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: controllertest.Namespace, Name: claim}
	}
}

// state is every claim and volume in one text, such as "claim a Bound v; volume v Bound a".
func (s stage) state() string {
	var out []string
	for _, c := range controllertest.All[*corev1.PersistentVolumeClaim](s.Stage) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("claim %s %s %s", c.Name, c.Status.Phase, c.Spec.VolumeName)))
	}
	for _, v := range controllertest.AllIn[*corev1.PersistentVolume](s.Stage, "") {
		by := ""
		if v.Spec.ClaimRef != nil {
			by = v.Spec.ClaimRef.Name
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("volume %s %s %s", v.Name, v.Status.Phase, by)))
	}
	return strings.Join(out, "; ")
}

func (s stage) becomes(want string) {
	s.Helper()
	controllertest.UntilEqual(s.Stage, "claims and volumes", want, s.state)
	s.Settled()
	if got := s.state(); got != want {
		s.Fatalf("it did not stay so: %s", got)
	}
}

func (s stage) says(about, reason, words string) {
	s.Helper()
	texts := func() (out []string) {
		for _, e := range controllertest.AllIn[*corev1.Event](s.Stage, "") {
			if e.InvolvedObject.Name == about {
				out = append(out, e.Reason+": "+e.Message)
			}
		}
		return out
	}
	s.Until(fmt.Sprintf("an Event %s about %s", reason, about), func() bool {
		return slices.ContainsFunc(texts(), func(t string) bool { return strings.HasPrefix(t, reason+": ") && strings.Contains(t, words) })
	}, func() any { return texts() })
}

func TestTheBestVolumeIsTaken(t *testing.T) {
	s := begin(t)
	s.Put(
		pv("big", "9Gi"), pv("small", "1Gi"), pv("fit", "3Gi"),
		pv("both-modes", "2Gi", func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadWriteMany)
		}),
		pv("block", "2Gi", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }),
		pv("classy", "2Gi", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "gold" }),
	)
	s.Settled()
	s.Put(claim("c", "2Gi"))
	s.becomes("claim c Bound fit; volume big Available; volume block Available; volume both-modes Available; volume classy Available; volume fit Bound c; volume small Available")
	c := controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, "c")
	if got := c.Status.Capacity.Storage().String(); got != "3Gi" || c.Annotations["pv.kubernetes.io/bind-completed"] != "yes" || c.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("capacity %s, annotations %v", got, c.Annotations)
	}
	s.Put(claim("many", "2Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}))
	s.Put(claim("raw", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }))
	s.becomes("claim c Bound fit; claim many Bound both-modes; claim raw Bound block; volume big Available; volume block Bound raw; volume both-modes Bound many; volume classy Available; volume fit Bound c; volume small Available")
}

func TestASelectorPicks(t *testing.T) {
	s := begin(t)
	s.Put(pv("a", "1Gi"), pv("b", "5Gi", func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"disk": "b"} }))
	s.Settled()
	s.Put(claim("c", "1Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "b"}}
	}))
	s.becomes("claim c Bound b; volume a Available; volume b Bound c")
}

func TestReservations(t *testing.T) {
	t.Run("by the volume", func(t *testing.T) {
		s := begin(t)
		s.Put(pv("a", "1Gi"), pv("mine", "5Gi", reserved("c")))
		s.Settled()
		s.Put(claim("c", "1Gi"))
		s.becomes("claim c Bound mine; volume a Available; volume mine Bound c")
	})
	t.Run("by the claim", func(t *testing.T) {
		s := begin(t)
		s.Put(pv("a", "1Gi"), claim("c", "1Gi", named("wanted")))
		s.becomes("claim c Pending wanted; volume a Available")
		s.Put(pv("wanted", "2Gi"))
		s.becomes("claim c Bound wanted; volume a Available; volume wanted Bound c")
	})
	t.Run("by the claim, too small", func(t *testing.T) {
		s := begin(t)
		s.Put(pv("wanted", "1Gi"), claim("c", "2Gi", named("wanted")))
		s.becomes("claim c Pending wanted; volume wanted Available")
		s.says("c", "VolumeMismatch", `Cannot bind to requested volume "wanted": requested PV is too small`)
	})
	t.Run("by two claims", func(t *testing.T) {
		s := begin(t)
		s.Put(pv("wanted", "1Gi"), claim("c", "1Gi", named("wanted")))
		s.becomes("claim c Bound wanted; volume wanted Bound c")
		s.Put(claim("d", "1Gi", named("wanted")))
		s.becomes("claim c Bound wanted; claim d Pending wanted; volume wanted Bound c")
		s.says("d", "FailedBinding", "already bound to a different claim")
	})
}

func TestManyClaimsShareFewVolumes(t *testing.T) {
	s := begin(t)
	for i := range 5 {
		s.Put(pv(fmt.Sprintf("v%d", i), "1Gi"))
	}
	for i := range 12 {
		s.Put(claim(fmt.Sprintf("c%02d", i), "1Gi"))
	}
	bound := func() (pairs int) {
		holders := map[string]string{}
		for _, v := range controllertest.AllIn[*corev1.PersistentVolume](s.Stage, "") {
			if v.Spec.ClaimRef != nil && v.Status.Phase == corev1.VolumeBound {
				holders[v.Name] = v.Spec.ClaimRef.Name
			}
		}
		for _, c := range controllertest.All[*corev1.PersistentVolumeClaim](s.Stage) {
			if c.Status.Phase == corev1.ClaimBound && holders[c.Spec.VolumeName] == c.Name {
				pairs++
			}
		}
		return pairs
	}
	controllertest.UntilEqual(s.Stage, "bound pairs", 5, bound)
	s.Put(pv("late", "1Gi"))
	controllertest.UntilEqual(s.Stage, "bound pairs after one more volume", 6, bound)
}

func TestLoss(t *testing.T) {
	s := begin(t)
	v := s.Put(pv("v", "1Gi"), claim("c", "1Gi")).(*corev1.PersistentVolume)
	s.becomes("claim c Bound v; volume v Bound c")
	controllertest.Delete(s.Stage, v, metav1.DeleteOptions{})
	s.becomes("claim c Lost v")
	s.says("c", "ClaimLost", "Data on the volume is lost!")
}

func TestARetainedVolumeIsNotGivenAway(t *testing.T) {
	s := begin(t)
	s.Put(pv("v", "1Gi"))
	c := s.Put(claim("c", "1Gi")).(*corev1.PersistentVolumeClaim)
	s.becomes("claim c Bound v; volume v Bound c")
	released := s.Clock.Now().Add(time.Hour)
	s.Clock.SetTime(released)
	controllertest.Delete(s.Stage, c, metav1.DeleteOptions{})
	s.becomes("volume v Released c")
	s.Put(claim("c", "1Gi"))
	s.becomes("claim c Pending; volume v Released c")
	v := controllertest.AllIn[*corev1.PersistentVolume](s.Stage, "")[0]
	if at := v.Status.LastPhaseTransitionTime; at == nil || !at.Time.Equal(released) {
		t.Errorf("released since %v, want %v", at, released)
	}
	s.says("c", "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	// The administrator frees it.
	controllertest.Change(s.Stage, v, func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil })
	s.becomes("claim c Bound v; volume v Bound c")
}

func TestAReservationForAClaimThatIsBoundElsewhereIsTakenBack(t *testing.T) {
	s := begin(t)
	s.Put(pv("v", "1Gi"))
	c := s.Put(claim("c", "1Gi")).(*corev1.PersistentVolumeClaim)
	s.becomes("claim c Bound v; volume v Bound c")
	s.Put(pv("lost-race", "1Gi", func(v *corev1.PersistentVolume) {
		v.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	}))
	s.becomes("claim c Bound v; volume lost-race Available; volume v Bound c")
}

func TestProvisioners(t *testing.T) {
	class := func(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	}
	s := begin(t)
	s.Put(class("csi", "csi.example.com", storagev1.VolumeBindingImmediate), class("later", "csi.example.com", storagev1.VolumeBindingWaitForFirstConsumer),
		class("none", "kubernetes.io/no-provisioner", storagev1.VolumeBindingImmediate))
	c := s.Put(claim("now", "1Gi", ofClass("csi")), claim("wait", "1Gi", ofClass("later")), claim("never", "1Gi", ofClass("none")), claim("typo", "1Gi", ofClass("nowhere"))).(*corev1.PersistentVolumeClaim)
	asked := func(name string) func() string {
		return func() string {
			return controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, name).Annotations["volume.kubernetes.io/storage-provisioner"]
		}
	}
	controllertest.UntilEqual(s.Stage, "the provisioner asked", "csi.example.com", asked("now"))
	s.says("now", "ExternalProvisioning", "csi.example.com")
	s.says("wait", "WaitForFirstConsumer", "")
	s.says("never", "ProvisioningFailed", "create a PersistentVolume of this class")
	s.says("typo", "ProvisioningFailed", `storageclass.storage.k8s.io "nowhere" not found`)
	s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "wait"}}}}}})
	s.says("wait", "WaitForPodScheduled", "waiting for pod p to be scheduled")
	if got := asked("wait")(); got != "" {
		t.Errorf("a claim that waits for a pod is given to %s", got)
	}
	controllertest.Change(s.Stage, controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, "wait"), func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n"}
	})
	controllertest.UntilEqual(s.Stage, "the provisioner asked once the pod has a node", "csi.example.com", asked("wait"))
	// What the provisioner makes is bound, and left to it when the claim goes.
	s.Put(pv("made", "1Gi", func(v *corev1.PersistentVolume) {
		v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "csi.example.com"}
		v.Spec.StorageClassName, v.Spec.PersistentVolumeReclaimPolicy = "csi", corev1.PersistentVolumeReclaimDelete
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	}))
	s.becomes("claim never Pending; claim now Bound made; claim typo Pending; claim wait Pending; volume made Bound now")
	controllertest.Delete(s.Stage, c, metav1.DeleteOptions{})
	s.becomes("claim never Pending; claim typo Pending; claim wait Pending; volume made Released now")
}

func TestAClaimGetsADefaultClassThatCameLater(t *testing.T) {
	s := begin(t)
	s.Put(claim("c", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }))
	s.becomes("claim c Pending")
	s.Put(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "std", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "csi.example.com"})
	controllertest.UntilEqual(s.Stage, "the class", "std", func() string {
		return ptr.Deref(controllertest.Get[*corev1.PersistentVolumeClaim](s.Stage, "c").Spec.StorageClassName, "")
	})
}
