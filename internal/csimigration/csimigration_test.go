package csimigration

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"sigs.k8s.io/randfill"
)

// sources is one volume of each sort, with the plugin, and what its driver calls it.
func sources() map[string]struct {
	source corev1.VolumeSource
	handle string
} {
	type s = struct {
		source corev1.VolumeSource
		handle string
	}
	return map[string]s{
		"kubernetes.io/aws-ebs":         {corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/vol-7"}}, "vol-7"},
		"kubernetes.io/azure-disk":      {corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/disks/d"}}, "/subscriptions/s/disks/d"},
		"kubernetes.io/azure-file":      {corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share"}}, "#acc#share#data#prod"},
		"kubernetes.io/cinder":          {corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "c7"}}, "c7"},
		"kubernetes.io/gce-pd":          {corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "pd"}}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd"},
		"kubernetes.io/portworx-volume": {corev1.VolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "px"}}, "px"},
		"kubernetes.io/vsphere-volume":  {corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk", StoragePolicyName: "gold"}}, "[ds] v.vmdk"},
	}
}

func TestInlineVolumesAreTheirDrivers(t *testing.T) {
	for plugin, c := range sources() {
		v := &corev1.Volume{Name: "data", VolumeSource: c.source}
		before := v.DeepCopy()
		if got := PluginOfInline(v); got != plugin {
			t.Errorf("plugin is %q, want %q", got, plugin)
		}
		pv, err := TranslateInline(v, "prod")
		if err != nil {
			t.Errorf("%s: %v", plugin, err)
			continue
		}
		if got := pv.Spec.CSI; got.Driver != Driver(plugin) || got.VolumeHandle != c.handle {
			t.Errorf("%s: it is %s of driver %s, want %s of %s", plugin, got.VolumeHandle, got.Driver, c.handle, Driver(plugin))
		}
		if c.source.VsphereVolume != nil && pv.Spec.CSI.VolumeAttributes["storagepolicyname"] != "gold" {
			t.Errorf("the storage policy is lost: %v", pv.Spec.CSI.VolumeAttributes)
		}
		if diff := cmp.Diff(before, v); diff != "" {
			t.Errorf("%s: the volume was changed (-before +after): %s", plugin, diff)
		}
	}
	if pv, err := TranslateInline(&corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}, "prod"); pv != nil || err != nil {
		t.Errorf("an NFS volume became %v (%v)", pv, err)
	}
}

func TestPersistentVolumesGetTheirDriversTopology(t *testing.T) {
	in := func(key string) *corev1.VolumeNodeAffinity {
		return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"eu-1a"}}}}}}}
	}
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{NodeAffinity: in("failure-domain.beta.kubernetes.io/zone"),
		PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-7"}}}}
	before := v.DeepCopy()
	got, err := Translate(v)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in("topology.ebs.csi.aws.com/zone"), got.Spec.NodeAffinity); diff != "" {
		t.Errorf("affinity differs (-want +got): %s", diff)
	}
	if got.Spec.AWSElasticBlockStore != nil || got.Spec.CSI.VolumeHandle != "vol-7" {
		t.Errorf("source is %+v", got.Spec.PersistentVolumeSource)
	}
	if diff := cmp.Diff(before, v); diff != "" {
		t.Errorf("the volume was changed (-before +after): %s", diff)
	}
	v.Spec.AWSElasticBlockStore.VolumeID = "aws://eu-1a/no/such"
	if _, err := Translate(v); err == nil || !strings.Contains(err.Error(), "volume pv of kubernetes.io/aws-ebs can't be handled by CSI driver ebs.csi.aws.com") {
		t.Errorf("the refusal says: %v", err)
	}
	local := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/d"}}}}
	if got, err := Translate(local); got != local || err != nil {
		t.Errorf("a local volume became %v (%v)", got, err)
	}
}

// TestNamesAgreeWithTheLibrary keeps what stands here to what the drivers' provisioners use.
func TestNamesAgreeWithTheLibrary(t *testing.T) {
	lib := csitranslation.New()
	if !slices.IsSorted(Plugins()) {
		t.Errorf("not in order: %v", Plugins())
	}
	for _, plugin := range Plugins() {
		driver, err := lib.GetCSINameFromInTreeName(plugin)
		if err != nil || driver != Driver(plugin) {
			t.Errorf("driver of %s is %s here, %s there (%v)", plugin, Driver(plugin), driver, err)
		}
	}
	for plugin, c := range sources() {
		if name, err := lib.GetInTreePluginNameFromSpec(nil, &corev1.Volume{VolumeSource: c.source}); err != nil || name != plugin {
			t.Errorf("plugin is %s here, %s there (%v)", plugin, name, err)
		}
	}
	if len(sources()) != len(Plugins()) || Driver("kubernetes.io/host-path") != "" || Counted("csi.example.com") || Counted("kubernetes.io/vsphere-volume") || !Counted("kubernetes.io/cinder") {
		t.Error("other provisioners are taken for plugins, or plugins are missing")
	}
}

func TestNodesSayWhatIsMigrated(t *testing.T) {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": NodeAnnotation()}}}
	for _, plugin := range Plugins() {
		if !OnNode(n, plugin) {
			t.Errorf("%s is not on the node", plugin)
		}
	}
	n.Annotations["storage.alpha.kubernetes.io/migrated-plugins"] = "kubernetes.io/gce-pd"
	if OnNode(n, "kubernetes.io/aws-ebs") || OnNode(nil, "kubernetes.io/gce-pd") || OnNode(&storagev1.CSINode{}, "") || !OnNode(n, "kubernetes.io/gce-pd") {
		t.Error("a node that does not say so is taken to have migrated")
	}
}

// TestNoVolumeIsTooOdd translates random sources: whatever passed the API must not end the process.
func TestNoVolumeIsTooOdd(t *testing.T) {
	seed := rand.Int64()
	fill := randfill.NewWithSeed(seed).NilChance(0.2).NumElements(0, 3).MaxDepth(8).Funcs(func(s *corev1.AWSElasticBlockStoreVolumeSource, c randfill.Continue) {
		c.FillNoCustom(s)
		s.VolumeID = []string{"aws://", "aws:///", ""}[c.Intn(3)] + s.VolumeID
	})
	for range 200 {
		for _, s := range eachField[corev1.VolumeSource](fill) {
			v := &corev1.Volume{Name: "v", VolumeSource: s}
			if got, err := TranslateInline(v, "ns"); PluginOfInline(v) != "" && err == nil && (got == nil || got.Spec.CSI == nil) {
				t.Fatalf("seed %d: %+v is neither translated nor refused", seed, s)
			}
		}
		for _, s := range eachField[corev1.PersistentVolumeSource](fill) {
			v := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: s}}
			fill.Fill(&v.Spec.NodeAffinity)
			fill.Fill(&v.Labels)
			if got, err := Translate(v); PluginOf(v) != "" && err == nil && got.Spec.CSI == nil {
				t.Fatalf("seed %d: %+v is neither translated nor refused", seed, v.Spec)
			}
		}
	}
}

// eachField is a source of each sort, filled at random.
func eachField[T any](fill *randfill.Filler) (out []T) {
	for i := range reflect.TypeFor[T]().NumField() {
		var one T
		f := reflect.ValueOf(&one).Elem().Field(i)
		f.Set(reflect.New(f.Type().Elem()))
		fill.Fill(f.Interface())
		out = append(out, one)
	}
	return out
}
