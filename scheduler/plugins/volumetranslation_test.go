package plugins

import (
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

// ebs makes a volume one of the in-tree plugin kubernetes.io/aws-ebs.
func ebs(id string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id}
	}
}

func inlined(s corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: s})
	}
}

func inlineEBS(id string) func(*corev1.Pod) {
	return inlined(corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id}})
}

// drivers is what a node says: how many volumes each driver attaches there, and which in-tree plugins they took over.
func (f *fixture) drivers(node string, count int32, plugins string, names ...string) {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": plugins}}}
	for _, name := range names {
		n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: name, Allocatable: &storagev1.VolumeNodeResources{Count: &count}})
	}
	f.storage.csiNodes[node] = n
}

// TestInTreeVolumesCountForTheirDrivers follows KEP-625 and "Node-specific Volume Limits".
func TestInTreeVolumesCountForTheirDrivers(t *testing.T) {
	const many = "node(s) exceed max volume count"
	pod := func(change ...func(*corev1.Pod)) []func(*corev1.Pod) { return change }
	inline := func(s corev1.VolumeSource) []func(*corev1.Pod) { return pod(inlined(s)) }
	for _, c := range []struct {
		name       string
		there, pod []func(*corev1.Pod)
		a          string // there is on a, where each driver attaches one volume
	}{
		{"two volumes of claims", pod(mounts("e1")), pod(mounts("e2")), many},
		{"two in specs", pod(inlineEBS("vol-1")), pod(inlineEBS("vol-2")), many},
		{"one of each", pod(mounts("e1")), pod(inlineEBS("vol-2")), many},
		{"the same volume, by its driver's name for it", pod(mounts("e1")), pod(inlineEBS("aws://eu-1a/vol-1")), ok},
		{"the driver's own volumes count with them", pod(mounts("own")), pod(inlineEBS("vol-2")), many},
		{"one that the driver made is the same, too", pod(mounts("own")), pod(inlineEBS("vol-9")), ok},
		{"one that its class's plugin is to make", pod(mounts("e1")), pod(mounts("new")), many},
		{"of another driver", pod(mounts("e1")), inline(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "c"}}), ok},
		{"GCE", inline(corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "x"}}), inline(corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "y"}}), many},
		{"Cinder", inline(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "x"}}), inline(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "y"}}), many},
		{"Azure disks", inline(corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: "/x"}}), inline(corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DataDiskURI: "/y"}}), many},
		{"Portworx", inline(corev1.VolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "x"}}), inline(corev1.VolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "y"}}), many},
		{"Azure files are not attached", inline(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{ShareName: "x"}}), inline(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{ShareName: "y"}}), ok},
		{"vSphere was never switched on", inline(corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "x", StoragePolicyName: "p"}}),
			inline(corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "y", StoragePolicyName: "p"}}), ok},
	} {
		f := storageCluster(t)
		f.drivers("a", 1, "", "ebs.csi.aws.com", "cinder.csi.openstack.org", "pd.csi.storage.gke.io", "disk.csi.azure.com", "pxd.portworx.com", "file.csi.azure.com", "csi.vsphere.vmware.com")
		f.class("legacy", "kubernetes.io/aws-ebs", late)
		f.claim("e1", "now", "1Gi", boundTo("v1"))
		f.claim("e2", "now", "1Gi", boundTo("v2"))
		f.claim("own", "now", "1Gi", boundTo("v9"))
		f.claim("new", "legacy", "1Gi")
		f.volume("v1", "now", "1Gi", ebs("aws://eu-1a/vol-1"))
		f.volume("v2", "now", "1Gi", ebs("vol-2"))
		f.volume("v9", "now", "1Gi", csi("ebs.csi.aws.com", "vol-9"))
		f.on("a", f.pod("there", c.there...))
		f.want(c.name, NodeVolumeLimits, "", f.pod("p", c.pod...), map[string]string{"a": c.a, "b": ok})
	}
}

func TestAttachedInTreeVolumesCount(t *testing.T) {
	attachment := func(s storagev1.VolumeAttachmentSource) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: "ebs.csi.aws.com", NodeName: "a", Source: s}}
	}
	for name, s := range map[string]storagev1.VolumeAttachmentSource{"of a PersistentVolume": {PersistentVolumeName: ptr.To("v1")},
		"of a pod's spec": {InlineVolumeSpec: &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-1"}}}}} {
		f := storageCluster(t)
		f.drivers("a", 1, "", "ebs.csi.aws.com")
		f.volume("v1", "now", "1Gi", ebs("vol-1"))
		f.storage.attachments = append(f.storage.attachments, attachment(s))
		f.want(name+", another", NodeVolumeLimits, "", f.pod("p", inlineEBS("vol-2")), map[string]string{"a": "node(s) exceed max volume count", "b": ok})
		f.want(name+", the same", NodeVolumeLimits, "", f.pod("p", inlineEBS("vol-1")), map[string]string{"a": ok, "b": ok})
	}
}

// TestInTreeVolumesAreReachedWhereTheirDriversSay has node a in zone 1 and node b in zone 2, as Kubernetes' label says, and as the driver's does the other way round.
func TestInTreeVolumesAreReachedWhereTheirDriversSay(t *testing.T) {
	const far, driversZone, migrated = "!node(s) didn't match PersistentVolume's node affinity", "topology.ebs.csi.aws.com/zone", "kubernetes.io/aws-ebs"
	zoned := func(v *corev1.PersistentVolume) { v.Labels = map[string]string{zone: "1"} }
	for _, c := range []struct {
		name    string
		plugins string // taken over on both nodes
		volume  []func(*corev1.PersistentVolume)
		a, b    string
	}{
		{"taken over", migrated, []func(*corev1.PersistentVolume){ebs("vol-1"), at(zone, "1")}, far, ok},
		{"with the old label", "x," + migrated, []func(*corev1.PersistentVolume){ebs("vol-1"), at(corev1.LabelFailureDomainBetaZone, "1")}, far, ok},
		{"by a label of the volume", migrated, []func(*corev1.PersistentVolume){ebs("vol-1"), zoned}, far, ok},
		{"not taken over there", "kubernetes.io/gce-pd", []func(*corev1.PersistentVolume){ebs("vol-1"), at(zone, "1")}, ok, far},
		{"a volume that names its driver", migrated, []func(*corev1.PersistentVolume){csi("ebs.csi.aws.com", "vol-1"), at(zone, "1")}, ok, far},
		{"of no cloud", migrated, []func(*corev1.PersistentVolume){at(zone, "1")}, ok, far},
		{"vSphere", "kubernetes.io/vsphere-volume", []func(*corev1.PersistentVolume){func(v *corev1.PersistentVolume) {
			v.Spec.VsphereVolume = &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "x"}
		}, at(zone, "1")}, ok, far},
	} {
		f := newFixture(t, testNode("a", label(zone, "1", driversZone, "2")), testNode("b", label(zone, "2", driversZone, "1")))
		f.drivers("a", 9, c.plugins, "ebs.csi.aws.com")
		f.drivers("b", 9, c.plugins, "ebs.csi.aws.com")
		f.claim("c", "now", "1Gi", boundTo("v"))
		f.volume("v", "now", "1Gi", c.volume...)
		f.want(c.name, VolumeBinding, "", f.pod("p", mounts("c")), map[string]string{"a": c.a, "b": c.b})
	}
	f := storageCluster(t) // nodes that say nothing have not got the driver
	f.claim("c", "now", "1Gi", boundTo("v"))
	f.volume("v", "now", "1Gi", ebs("vol-1"), at(zone, "1"))
	f.want("no CSINode", VolumeBinding, "", f.pod("p", mounts("c")), map[string]string{"a": ok, "b": far})
}

// TestClassesOfInTreePluginsAreTakenAtTheirWord: their topology is that of nodes, and the driver's counting is for classes that name it.
func TestClassesOfInTreePluginsAreTakenAtTheirWord(t *testing.T) {
	f := storageCluster(t)
	f.class("legacy", "kubernetes.io/aws-ebs", late, func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zone, Values: []string{"2"}}}}}
	})
	f.storage.drivers["ebs.csi.aws.com"] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}
	f.claim("c", "legacy", "1Gi")
	f.want("a volume to be made", VolumeBinding, "", f.pod("p", mounts("c")), map[string]string{"a": "!node(s) didn't find available persistent volumes to bind", "b": ok})
}

func TestVolumesThatNoDriverCanHandleAreExplained(t *testing.T) {
	f := storageCluster(t)
	f.drivers("a", 9, "kubernetes.io/aws-ebs", "ebs.csi.aws.com")
	f.claim("c", "now", "1Gi", boundTo("v"))
	f.volume("v", "now", "1Gi", ebs("aws://eu-1a/no/such"))
	got := f.verdicts(VolumeBinding, "", f.pod("p", mounts("c")))
	if !strings.HasPrefix(got["a"], "!volume v of kubernetes.io/aws-ebs can't be handled by CSI driver ebs.csi.aws.com: ") || got["b"] != ok {
		t.Errorf("verdicts: %q", got)
	}
	b := f.make(VolumeBinding, "").(*volumeBinding)
	if got := remediesOn(t, f, b, f.pod("p", mounts("c")), "a"); len(got) != 1 || !strings.Contains(got[0].Do, "a source that CSI driver ebs.csi.aws.com can handle in volume v") {
		t.Errorf("remedies: %+v", got)
	}
	pod := f.pod("p", inlineEBS("aws://eu-1a/no/such"))
	for node, got := range f.verdicts(NodeVolumeLimits, "", pod) {
		if !strings.HasPrefix(got, `!volume "disk" of kubernetes.io/aws-ebs can't be handled by CSI driver ebs.csi.aws.com: `) {
			t.Errorf("verdict on %s: %q", node, got)
		}
	}
	l := f.make(NodeVolumeLimits, "").(*volumeLimits)
	if got := l.Remedies(f.profile(l).Begin(pod), -1, nil); len(got) != 1 || got[0].Name != "ebs.csi.aws.com" || !strings.Contains(got[0].Do, "took over kubernetes.io/aws-ebs") {
		t.Errorf("remedies: %+v", got)
	}
}

func remediesOn(t *testing.T, f *fixture, p interface {
	framework.Plugin
	framework.Remedier
}, pod *framework.Pod, node string) []framework.Remedy {
	t.Helper()
	profile := f.profile(p)
	c := profile.Begin(pod)
	if _, _, err := profile.Decide(c); err != nil {
		t.Fatal(err)
	}
	i, _ := f.nodes.Lookup(node)
	return p.Remedies(c, i, profile.Fits(c, i))
}

func TestHintsOfInTreeVolumes(t *testing.T) {
	f := storageCluster(t)
	f.claim("cloud", "now", "1Gi", boundTo("v"))
	f.volume("v", "now", "1Gi", ebs("vol-1"))
	f.claim("other", "now", "1Gi", boundTo("w"))
	f.volume("w", "now", "1Gi", csi("csi.x", "h"))
	b := f.make(VolumeBinding, "").(framework.HintPlugin)
	e := &framework.Event{Kind: framework.CSINodeChanged, Name: "a"}
	if b.Events()&framework.CSINodeChanged == 0 || !b.Helps(f.pod("p", mounts("cloud")), e) || b.Helps(f.pod("p", mounts("other")), e) {
		t.Error("what a node says about its drivers wakes pods that do not mind, or not those that do")
	}
	l := f.make(NodeVolumeLimits, "").(framework.HintPlugin)
	gone := &framework.Event{Kind: framework.PodRemoved, Pod: f.pod("q", inlineEBS("vol-2"))}
	if !l.Helps(f.pod("p", inlineEBS("vol-1")), gone) || l.Helps(f.pod("p", inlineEBS("vol-1")), &framework.Event{Kind: framework.PodRemoved, Pod: f.pod("q")}) {
		t.Error("NodeVolumeLimits does not tell a pod with a disk from one without")
	}
}

// TestTranslationsGoWithTheirVolumes: what is remembered must not grow with all volumes that there ever were.
func TestTranslationsGoWithTheirVolumes(t *testing.T) {
	f := storageCluster(t)
	f.volume("kept", "now", "1Gi", ebs("vol-kept"))
	kept := f.storage.volumes["kept"]
	var known translations
	first, err := known.of(kept)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		for range fewTranslations {
			f.volume("v", "now", "1Gi", ebs("vol-1"))
			if _, err := known.of(f.storage.volumes["v"]); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
	}
	if n := len(known.known); n > 2*fewTranslations {
		t.Errorf("%d translations are remembered of 2 volumes", n)
	}
	if again, _ := known.of(kept); again != first {
		t.Error("a volume that is there is translated anew")
	}
}
