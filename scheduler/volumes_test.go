package scheduler_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
)

func claim(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}
}

func volumeOn(name, class, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: class, Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}}}
}

func lateClass(name, provisioner string) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
}

func mounts(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func (c *cluster) claim(name string) *corev1.PersistentVolumeClaim {
	got, err := client.Of[*corev1.PersistentVolumeClaim](c.server).Get(context.Background(), "default", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// bind does what the volume controller does.
func (c *cluster) bind(claim, volume string) {
	c.t.Helper()
	api := client.Of[*corev1.PersistentVolumeClaim](c.server)
	p := c.claim(claim).DeepCopy()
	p.Spec.VolumeName = volume
	p, err := api.Update(context.Background(), p)
	if err == nil {
		p = p.DeepCopy()
		p.Status.Phase = corev1.ClaimBound
		_, err = api.UpdateStatus(context.Background(), p)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func TestPodWaitsForItsImmediateClaimAndFollowsItsVolume(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "8"))
	c.server.MustCreate(node("b", "4"))
	c.server.MustCreate(pod("db", "100m", mounts("data")))
	c.wait("the claim is missed", func() bool {
		return strings.HasPrefix(c.condition("db").Message, `0/2 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.`)
	})
	c.server.MustCreate(claim("data", "fast"))
	c.wait("the claim is unbound", func() bool {
		return strings.HasPrefix(c.condition("db").Message, "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
	})
	c.server.MustCreate(volumeOn("pv", "fast", "b"))
	c.bind("data", "pv")
	c.wait("the pod is where its volume is", func() bool { return c.nodeOf("db") == "b" })
}

func TestFirstConsumersGetLocalVolumesOfTheirNodes(t *testing.T) {
	c := start(t)
	c.server.MustCreate(lateClass("local", "kubernetes.io/no-provisioner"))
	for _, n := range []string{"a", "b", "c"} {
		c.server.MustCreate(node(n, "8"))
	}
	c.server.MustCreate(volumeOn("pv-a", "local", "a"))
	c.server.MustCreate(volumeOn("pv-b", "local", "b"))
	for _, name := range []string{"x", "y", "z"} {
		c.server.MustCreate(claim(name, "local"))
		c.server.MustCreate(pod(name, "100m", mounts(name)))
	}
	owner := map[string]string{}
	c.wait("both volumes are reserved", func() bool {
		for _, name := range []string{"pv-a", "pv-b"} {
			v, err := client.Of[*corev1.PersistentVolume](c.server).Get(context.Background(), "", name)
			if err != nil || v.Spec.ClaimRef == nil {
				return false
			}
			owner[name] = v.Spec.ClaimRef.Name
		}
		return true
	})
	if owner["pv-a"] == owner["pv-b"] {
		t.Fatalf("both volumes went to claim %s", owner["pv-a"])
	}
	for volume, claim := range owner {
		if c.nodeOf(claim) != "" {
			t.Errorf("pod %s was bound before its volume", claim)
		}
		c.bind(claim, volume)
	}
	c.wait("the pods follow", func() bool { return c.nodeOf(owner["pv-a"]) == "a" && c.nodeOf(owner["pv-b"]) == "b" })
	for _, name := range []string{"x", "y", "z"} {
		if name != owner["pv-a"] && name != owner["pv-b"] {
			c.wait("the third finds none", func() bool {
				return strings.Contains(c.condition(name).Message, "3 node(s) didn't find available persistent volumes to bind")
			})
		}
	}
}

func TestProvisionerLearnsTheNode(t *testing.T) {
	c := start(t)
	class := lateClass("cloud", "example.com/disk")
	class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "kubernetes.io/hostname", Values: []string{"b"}}}}}
	c.server.MustCreate(class)
	c.server.MustCreate(node("a", "8"))
	c.server.MustCreate(node("b", "4"))
	c.server.MustCreate(claim("data", "cloud"))
	c.server.MustCreate(pod("db", "100m", mounts("data")))
	c.wait("the provisioner is asked", func() bool { return c.claim("data").Annotations["volume.kubernetes.io/selected-node"] == "b" })
	if c.nodeOf("db") != "" {
		t.Error("the pod was bound before its volume")
	}
	c.server.MustCreate(volumeOn("pv", "cloud", "b"))
	c.bind("data", "pv")
	c.wait("the pod is bound", func() bool { return c.nodeOf("db") == "b" })
}

func TestReadWriteOncePodClaimServesOnePod(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "8"))
	once := claim("data", "fast")
	once.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	c.server.MustCreate(once)
	c.server.MustCreate(volumeOn("pv", "fast", "a"))
	c.bind("data", "pv")
	c.server.MustCreate(pod("first", "100m", mounts("data")))
	c.wait("first is bound", func() bool { return c.nodeOf("first") == "a" })
	c.server.MustCreate(pod("second", "100m", mounts("data")))
	c.wait("second waits", func() bool {
		return strings.Contains(c.condition("second").Message, "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
	})
	zero := int64(0)
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", "first", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	c.wait("second is bound", func() bool { return c.nodeOf("second") == "a" })
}

func TestCSIDriversLimitTheVolumesOfANode(t *testing.T) {
	c := start(t)
	one := int32(1)
	limit := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "disk.example.com", NodeID: "a", Allocatable: &storagev1.VolumeNodeResources{Count: &one}}}}}
	c.server.MustCreate(limit)
	c.server.MustCreate(node("a", "8"))
	for _, name := range []string{"x", "y"} {
		v := volumeOn("pv-"+name, "fast", "a")
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: name}
		c.server.MustCreate(v)
		c.server.MustCreate(claim(name, "fast"))
		c.bind(name, "pv-"+name)
	}
	c.server.MustCreate(pod("first", "100m", mounts("x")))
	c.wait("first is bound", func() bool { return c.nodeOf("first") == "a" })
	c.server.MustCreate(pod("same", "100m", mounts("x")))
	c.wait("a pod with the same volume is bound", func() bool { return c.nodeOf("same") == "a" })
	c.server.MustCreate(pod("other", "100m", mounts("y")))
	c.wait("one with another is not", func() bool {
		return strings.Contains(c.condition("other").Message, "1 node(s) exceed max volume count")
	})
	two := int32(2)
	limit = limit.DeepCopy()
	limit.Spec.Drivers[0].Allocatable.Count = &two
	if _, err := client.Of[*storagev1.CSINode](c.server).Update(context.Background(), limit); err != nil {
		t.Fatal(err)
	}
	c.wait("until the limit is raised", func() bool { return c.nodeOf("other") == "a" })
}
