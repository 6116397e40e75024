package plugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

func mounts(claims ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
}

func ephemeral(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
}

func (f *fixture) class(name, provisioner string, mode storagev1.VolumeBindingMode, change ...func(*storagev1.StorageClass)) {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	for _, x := range change {
		x(c)
	}
	f.storage.classes[name] = c
}

func (f *fixture) claim(name, class, size string, change ...func(*corev1.PersistentVolumeClaim)) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: res("storage", size)}}}
	for _, x := range change {
		x(c)
	}
	f.storage.claims["default/"+name] = c
}

func boundTo(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Annotations["pv.kubernetes.io/bind-completed"] = volume, "yes"
	}
}

func (f *fixture) volume(name, class, size string, change ...func(*corev1.PersistentVolume)) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, Capacity: res("storage", size), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	for _, x := range change {
		x(v)
	}
	f.storage.volumes[name] = v
}

func at(key string, values ...string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{all(expr(key, corev1.NodeSelectorOpIn, values...))}}}
	}
}

func csi(driver, handle string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	}
}

const (
	late      = storagev1.VolumeBindingWaitForFirstConsumer
	immediate = storagev1.VolumeBindingImmediate
)

func storageCluster(t *testing.T) *fixture {
	f := newFixture(t, testNode("a", label(host, "a", zone, "1")), testNode("b", label(host, "b", zone, "2")))
	f.class("now", "csi.x", immediate)
	f.class("late", "csi.x", late)
	f.class("local", "kubernetes.io/no-provisioner", late)
	return f
}

// TestVolumeBinding follows "Persistent Volumes", "Storage Classes" (volumeBindingMode, allowedTopologies) and KEP-1472 (storage capacity).
func TestVolumeBinding(t *testing.T) {
	const unfound, far, gone, full = "!node(s) didn't find available persistent volumes to bind", "!node(s) didn't match PersistentVolume's node affinity",
		"!node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", "!node(s) did not have enough free storage"
	for _, c := range []struct {
		name  string
		setup func(f *fixture)
		pod   func(*corev1.Pod)
		a, b  string
	}{
		{"no claims", func(*fixture) {}, func(*corev1.Pod) {}, ok, ok},
		{"a missing claim", func(*fixture) {}, mounts("c"), `!persistentvolumeclaim "c" not found`, `!persistentvolumeclaim "c" not found`},
		{"a missing claim of its own", func(*fixture) {}, ephemeral, `!waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"`, `!waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"`},
		{"somebody else's claim of its own", func(f *fixture) { f.claim("p-scratch", "late", "1Gi") }, ephemeral,
			"!PVC default/p-scratch was not created for pod default/p (pod is not owner)", "!PVC default/p-scratch was not created for pod default/p (pod is not owner)"},
		{"a claim on its way out", func(f *fixture) {
			f.claim("c", "late", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) })
		}, mounts("c"), `!persistentvolumeclaim "c" is being deleted`, `!persistentvolumeclaim "c" is being deleted`},
		{"a lost claim", func(f *fixture) {
			f.claim("c", "late", "1Gi", boundTo("v"), func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })
		}, mounts("c"), `!persistentvolumeclaim "c" bound to non-existent persistentvolume "v"`, `!persistentvolumeclaim "c" bound to non-existent persistentvolume "v"`},
		{"an unbound immediate claim", func(f *fixture) { f.claim("c", "now", "1Gi") }, mounts("c"), "!pod has unbound immediate PersistentVolumeClaims", "!pod has unbound immediate PersistentVolumeClaims"},
		{"a claim that names its volume", func(f *fixture) {
			f.claim("c", "late", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" })
		}, mounts("c"), "!pod has unbound immediate PersistentVolumeClaims", "!pod has unbound immediate PersistentVolumeClaims"},
		{"what is missing is told before what is unbound", func(f *fixture) { f.claim("c", "now", "1Gi") }, mounts("c", "d"), `!persistentvolumeclaim "d" not found`, `!persistentvolumeclaim "d" not found`},
		{"a bound claim", func(f *fixture) { f.claim("c", "now", "1Gi", boundTo("v")); f.volume("v", "now", "1Gi", at(zone, "1")) }, mounts("c"), ok, far},
		{"a bound claim without its volume", func(f *fixture) { f.claim("c", "now", "1Gi", boundTo("v")) }, mounts("c"), gone, gone},
		{"a free volume on the node", func(f *fixture) { f.claim("c", "local", "1Gi"); f.volume("v", "local", "1Gi", at(host, "b")) }, mounts("c"), unfound, ok},
		{"too small", func(f *fixture) { f.claim("c", "local", "2Gi"); f.volume("v", "local", "1Gi") }, mounts("c"), unfound, unfound},
		{"of another class", func(f *fixture) { f.claim("c", "local", "1Gi"); f.volume("v", "late", "1Gi") }, mounts("c"), unfound, unfound},
		{"taken by another claim", func(f *fixture) {
			f.claim("c", "local", "1Gi")
			f.volume("v", "local", "1Gi", func(v *corev1.PersistentVolume) {
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "x", UID: "y"}
			})
		}, mounts("c"), unfound, unfound},
		{"not yet free", func(f *fixture) {
			f.claim("c", "local", "1Gi")
			f.volume("v", "local", "1Gi", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased })
		}, mounts("c"), unfound, unfound},
		{"one for two", func(f *fixture) {
			f.claim("c", "local", "1Gi")
			f.claim("d", "local", "1Gi")
			f.volume("v", "local", "1Gi")
		}, mounts("c", "d"), unfound, unfound},
		{"two for two", func(f *fixture) {
			f.claim("c", "local", "2Gi")
			f.claim("d", "local", "1Gi")
			f.volume("v", "local", "2Gi")
			f.volume("w", "local", "3Gi", at(host, "a"))
		}, mounts("c", "d"), ok, unfound},
		{"one can be made", func(f *fixture) { f.claim("c", "late", "1Gi") }, mounts("c"), ok, ok},
		{"one can be made where the class allows", func(f *fixture) {
			f.claim("c", "zonal", "1Gi")
			f.class("zonal", "csi.x", late, func(c *storagev1.StorageClass) {
				c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zone, Values: []string{"2", "3"}}}}}
			})
		}, mounts("c"), unfound, ok},
		{"one is being made", func(f *fixture) {
			f.claim("c", "late", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Annotations["volume.kubernetes.io/selected-node"] = "b" })
		}, mounts("c"), unfound, ok},
		{"both reasons at once", func(f *fixture) {
			f.claim("c", "local", "1Gi")
			f.claim("d", "now", "1Gi", boundTo("v"))
			f.volume("v", "now", "1Gi", at(zone, "1"))
		}, mounts("c", "d"), unfound, "!node(s) didn't match PersistentVolume's node affinity, node(s) didn't find available persistent volumes to bind"},
		{"a driver that counts what it has left", func(f *fixture) { f.claim("c", "late", "2Gi"); counts(f, "1", "2Gi", nil); counts(f, "2", "1Gi", nil) }, mounts("c"), ok, full},
		{"the largest volume that it can make", func(f *fixture) {
			f.claim("c", "late", "2Gi")
			counts(f, "1", "9Gi", ptr.To("1Gi"))
			counts(f, "2", "0", ptr.To("2Gi"))
		}, mounts("c"), full, ok},
		{"a driver that does not count", func(f *fixture) {
			f.claim("c", "late", "2Gi")
			counts(f, "1", "1Gi", nil)
			f.storage.drivers["csi.x"].Spec.StorageCapacity = nil
		}, mounts("c"), ok, ok},
	} {
		f := storageCluster(t)
		c.setup(f)
		f.want(c.name, VolumeBinding, "", f.pod("p", c.pod), map[string]string{"a": c.a, "b": c.b})
	}
}

// counts has driver csi.x say what it has left in a zone.
func counts(f *fixture, in, left string, largest *string) {
	f.storage.drivers["csi.x"] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}
	c := &storagev1.CSIStorageCapacity{StorageClassName: "late", Capacity: ptr.To(res("x", left)["x"]), NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{zone: in}}}
	if largest != nil {
		c.MaximumVolumeSize = ptr.To(res("x", *largest)["x"])
	}
	f.storage.capacities = append(f.storage.capacities, c)
}

// TestEachClaimGetsTheSmallestVolume looks at what a placed pod reserves.
func TestEachClaimGetsTheSmallestVolume(t *testing.T) {
	f := storageCluster(t)
	f.claim("large", "local", "3Gi")
	f.claim("small", "local", "1Gi")
	for _, size := range []string{"5Gi", "1Gi", "4Gi"} {
		f.volume("of-"+size, "local", size)
	}
	b := f.make(VolumeBinding, "").(*volumeBinding)
	profile := f.profile(b)
	c := profile.Begin(f.pod("p", mounts("large", "small")))
	d, _, err := profile.Decide(c)
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	if s := b.Reserve(c, d.Node); !s.OK() {
		t.Fatal(s.Message())
	}
	if diff := cmp.Diff(map[string]string{"of-1Gi": "default/small", "of-4Gi": "default/large"}, b.reserved); diff != "" {
		t.Errorf("reserved volumes differ (-want +got): %s", diff)
	}
	second := profile.Begin(f.pod("q", mounts("large")))
	if b.Unreserve(c, d.Node); len(b.reserved) > 0 {
		t.Errorf("still reserved: %v", b.reserved)
	}
	if d, _, err := profile.Decide(second); err != nil || d == nil {
		t.Errorf("what was given back is not free: %v %v", d, err)
	}
}

// TestPodIsNotBoundWhereItsNewVolumeIsNot has a provisioner make a volume elsewhere than it was asked to.
func TestPodIsNotBoundWhereItsNewVolumeIsNot(t *testing.T) {
	f := storageCluster(t)
	b := f.make(VolumeBinding, "").(*volumeBinding)
	profile := f.profile(b)
	for zoneOfVolume, want := range map[string]string{"2": `pv "made" node affinity doesn't match node "a"`, "1": ""} {
		f.claim("c", "late", "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Annotations["volume.kubernetes.io/selected-node"] = "a" })
		c := profile.Begin(f.pod("p", mounts("c")))
		if d, _, err := profile.Decide(c); err != nil || d == nil || d.Node != "a" {
			t.Fatal(d, err)
		}
		if s := b.Reserve(c, "a"); !s.OK() {
			t.Fatal(s.Message())
		}
		f.volume("made", "late", "1Gi", at(zone, zoneOfVolume))
		f.claim("c", "late", "1Gi", boundTo("made"))
		got := b.PreBind(t.Context(), c, "a")
		if got.OK() != (want == "") || !strings.Contains(got.Message(), want) {
			t.Errorf("with the volume in zone %s: %q, want %q", zoneOfVolume, got.Message(), want)
		}
	}
}

// TestVolumeRestrictions follows "Persistent Volumes" (ReadWriteOncePod, KEP-2485) and the API documentation of the disks.
func TestVolumeRestrictions(t *testing.T) {
	const inUse, disk = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod", "node(s) had no available disk"
	volume := func(s corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
	}
	gce := func(name string, only bool) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name, ReadOnly: only}})
	}
	ebs := func(id string, only bool) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id, ReadOnly: only}})
	}
	iscsi := func(iqn string, only bool) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{IQN: iqn, ReadOnly: only}})
	}
	rbd := func(monitor, pool, image string, only bool) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{monitor, "m9"}[:1], RBDPool: pool, RBDImage: image, ReadOnly: only}})
	}
	once := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	for _, c := range []struct {
		name       string
		there, pod func(*corev1.Pod)
		a, b       string // there is on a
	}{
		{"a claim for one pod, twice", mounts("once"), mounts("once"), inUse, inUse},
		{"another claim", mounts("other"), mounts("once"), ok, ok},
		{"a claim for several", mounts("other"), mounts("other"), ok, ok},
		{"a missing claim", mounts("other"), mounts("none"), `!persistentvolumeclaim "none" not found`, `!persistentvolumeclaim "none" not found`},
		{"claims of its own are VolumeBinding's business", mounts("other"), ephemeral, ok, ok},
		{"a GCE disk", gce("d", false), gce("d", false), disk, ok}, {"another", gce("d", false), gce("e", false), ok, ok},
		{"both read", gce("d", true), gce("d", true), ok, ok}, {"one reads", gce("d", true), gce("d", false), disk, ok},
		{"an EBS volume, even if both read", ebs("d", true), ebs("d", true), disk, ok},
		{"iSCSI", iscsi("q", false), iscsi("q", true), disk, ok}, {"iSCSI, both read", iscsi("q", true), iscsi("q", true), ok, ok},
		{"RBD", rbd("m", "p", "i", false), rbd("m", "p", "i", true), disk, ok}, {"another pool", rbd("m", "p", "i", false), rbd("m", "q", "i", false), ok, ok},
		{"another cluster", rbd("m", "p", "i", false), rbd("n", "p", "i", false), ok, ok}, {"RBD, both read", rbd("m", "p", "i", true), rbd("m", "p", "i", true), ok, ok},
		{"different sorts", gce("d", false), ebs("d", false), ok, ok},
	} {
		f := storageCluster(t)
		f.claim("once", "now", "1Gi", boundTo("v"), once)
		f.claim("other", "now", "1Gi", boundTo("w"))
		f.on("a", f.pod("there", c.there))
		f.want(c.name, VolumeRestrictions, "", f.pod("p", c.pod), map[string]string{"a": c.a, "b": c.b})
	}
}

// TestVolumeZone follows "Well-Known Labels": a volume's zone and region labels.
func TestVolumeZone(t *testing.T) {
	const other = "!node(s) had no available volume zone"
	labelled := func(kv ...string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Labels = map[string]string{}
			for i := 0; i < len(kv); i += 2 {
				v.Labels[kv[i]] = kv[i+1]
			}
		}
	}
	for _, c := range []struct {
		name        string
		volume      func(*corev1.PersistentVolume)
		a, b, plain string // a: zone 1, b: zone 2 by the old label, plain: no labels
	}{
		{"no labels", labelled(), ok, ok, ok},
		{"a zone", labelled(zone, "1"), ok, other, ok},
		{"several zones", labelled(zone, "1__3"), ok, other, ok},
		{"with spaces", labelled(zone, "3 __ 1"), ok, other, ok},
		{"a label that says nothing", labelled(zone, "__"), ok, ok, ok},
		{"the old label of a volume", labelled(corev1.LabelFailureDomainBetaZone, "1"), ok, other, ok},
		{"the old label of both", labelled(corev1.LabelFailureDomainBetaZone, "2"), other, ok, ok},
		{"a region that no node has", labelled(corev1.LabelTopologyRegion, "eu"), other, other, ok},
	} {
		f := newFixture(t, testNode("a", label(zone, "1")), testNode("b", label(corev1.LabelFailureDomainBetaZone, "2")), testNode("plain"))
		f.claim("c", "now", "1Gi", boundTo("v"))
		f.volume("v", "now", "1Gi", c.volume)
		f.want(c.name, VolumeZone, "", f.pod("p", mounts("c")), map[string]string{"a": c.a, "b": c.b, "plain": c.plain})
	}
	for _, c := range []struct {
		name  string
		setup func(*fixture)
		want  string
	}{
		{"a volume that is gone", func(f *fixture) { f.claim("c", "now", "1Gi", boundTo("v")) }, `!persistentvolume "v" not found`},
		{"a claim that waits for the pod", func(f *fixture) { f.claim("c", "late", "1Gi") }, ok},
		{"a claim that does not", func(f *fixture) { f.claim("c", "now", "1Gi") }, "!PersistentVolume had no name"},
		{"a claim without a class", func(f *fixture) { f.claim("c", "", "1Gi") }, "!PersistentVolumeClaim had no pv name and storageClass name"},
		{"a class that is missing", func(f *fixture) { f.claim("c", "gone", "1Gi") }, `!storageclass.storage.k8s.io "gone" not found`},
		{"a claim that is missing", func(*fixture) {}, `!persistentvolumeclaim "c" not found`},
	} {
		f := storageCluster(t)
		c.setup(f)
		f.want(c.name, VolumeZone, "", f.pod("p", mounts("c")), map[string]string{"a": c.want, "b": c.want})
	}
}

// TestVolumeLimits follows "Node-specific Volume Limits".
func TestVolumeLimits(t *testing.T) {
	const many = "node(s) exceed max volume count"
	for _, c := range []struct {
		name  string
		limit int32
		there []string // claims that pods on a mount
		holds []string // volumes attached to a
		pod   []string // claims
		a     string
	}{
		{"below", 2, []string{"c0"}, nil, []string{"c1"}, ok},
		{"at the limit", 1, []string{"c0"}, nil, []string{"c1"}, many},
		{"two at once", 2, []string{"c0"}, nil, []string{"c1", "c2"}, many},
		{"one that is there already", 1, []string{"c0"}, nil, []string{"c0"}, ok},
		{"one volume for two pods counts once", 2, []string{"c0", "c0"}, nil, []string{"c1"}, ok},
		{"attached without a pod", 1, nil, []string{"v0"}, []string{"c1"}, many},
		{"attached, and of a pod", 2, []string{"c0"}, []string{"v0"}, []string{"c1"}, ok},
		{"attached, and wanted", 1, nil, []string{"v1"}, []string{"c1"}, ok},
		{"one yet to be made", 1, []string{"c0"}, nil, []string{"late"}, many},
		{"of another driver", 1, []string{"c0"}, nil, []string{"foreign"}, ok},
		{"of no driver", 1, []string{"c0"}, nil, []string{"local"}, ok},
		{"of a volume that is missing, by its class", 1, []string{"c0"}, nil, []string{"lost"}, many},
	} {
		f := storageCluster(t)
		f.storage.csiNodes["a"] = &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.x", Allocatable: &storagev1.VolumeNodeResources{Count: &c.limit}}, {Name: "csi.y"}}}}
		for i := range 3 {
			f.claim(fmt.Sprintf("c%d", i), "now", "1Gi", boundTo(fmt.Sprintf("v%d", i)))
			f.volume(fmt.Sprintf("v%d", i), "now", "1Gi", csi("csi.x", fmt.Sprintf("h%d", i)))
		}
		f.claim("late", "late", "1Gi")
		f.claim("lost", "now", "1Gi", boundTo("gone"))
		f.claim("foreign", "now", "1Gi", boundTo("w"))
		f.volume("w", "now", "1Gi", csi("csi.z", "h"))
		f.claim("local", "local", "1Gi", boundTo("l"))
		f.volume("l", "local", "1Gi")
		for i, claim := range c.there {
			f.on("a", f.pod(fmt.Sprint("there", i), mounts(claim)))
		}
		for _, v := range c.holds {
			f.storage.attachments = append(f.storage.attachments, &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.x", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v}}})
		}
		f.want(c.name, NodeVolumeLimits, "", f.pod("p", mounts(c.pod...)), map[string]string{"a": c.a, "b": ok})
	}
}

func TestHintsOfVolumes(t *testing.T) {
	f := storageCluster(t)
	pod, other := f.pod("p", mounts("c")), f.pod("q", mounts("c"))
	for _, plugin := range []string{VolumeBinding, VolumeZone, NodeVolumeLimits, VolumeRestrictions} {
		h := f.make(plugin, "").(framework.HintPlugin)
		for _, c := range []struct {
			name string
			e    framework.Event
			want bool
		}{
			{"its claim", framework.Event{Kind: framework.ClaimChanged, Namespace: "default", Name: "c"}, true},
			{"another's claim", framework.Event{Kind: framework.ClaimChanged, Namespace: "default", Name: "d"}, false},
			{"a claim of another namespace", framework.Event{Kind: framework.ClaimChanged, Namespace: "prod", Name: "c"}, false},
		} {
			if got := h.Helps(pod, &c.e); got != c.want {
				t.Errorf("%s, %s: helps is %v, want %v", plugin, c.name, got, c.want)
			}
		}
	}
	r := f.make(VolumeRestrictions, "").(framework.HintPlugin)
	if !r.Helps(pod, &framework.Event{Kind: framework.PodRemoved, Pod: other}) || r.Helps(pod, &framework.Event{Kind: framework.PodRemoved, Pod: f.pod("x")}) {
		t.Error("VolumeRestrictions does not tell a pod with the claim from one without")
	}
	if f.make(VolumeBinding, "").(framework.HintPlugin).Events()&framework.CapacityChanged == 0 || f.make(NodeVolumeLimits, "").(framework.HintPlugin).Events()&framework.AttachmentRemoved == 0 {
		t.Error("a change of capacity or of attachments wakes nobody")
	}
}
