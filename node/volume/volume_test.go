package volume

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testJob(t *testing.T) *job {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
	return &job{Manager: New(Config{Root: t.TempDir()}), ctx: t.Context(), pod: pod}
}

func TestUpdateIsOneSwitch(t *testing.T) {
	j, dir := testJob(t), filepath.Join(t.TempDir(), "v")
	first := payload{"a": {data: []byte("1"), mode: 0o644}, "d/b": {data: []byte("1"), mode: 0o600}}
	if err := j.write(dir, first); err != nil {
		t.Fatal(err)
	}
	before, err := os.Readlink(dir + "/..data")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.write(dir, first); err != nil {
		t.Fatal(err)
	}
	if same, _ := os.Readlink(dir + "/..data"); same != before {
		t.Error("the same content was written anew")
	}
	// A reader that has opened the folder of the old data keeps a consistent view until it looks again.
	if err := j.write(dir, payload{"a": {data: []byte("2"), mode: 0o644}, "c": {data: []byte("2"), mode: 0o644}}); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Readlink(dir + "/..data")
	if after == before {
		t.Error("..data was not switched")
	}
	if _, err := os.Lstat(filepath.Join(dir, before)); !os.IsNotExist(err) {
		t.Error("the old data is still there")
	}
	if _, err := os.Lstat(dir + "/d"); !os.IsNotExist(err) {
		t.Error("a name that is gone is still visible")
	}
	for _, name := range []string{"a", "c"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "2" {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
}

func TestPathsStayWithinTheVolume(t *testing.T) {
	for _, bad := range []string{"", "/abs", "../up", "a/../../up", "."} {
		if err := (payload{}).add(bad, nil, nil, nil, nil); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if err := (payload{}).add("a/b/../c", nil, nil, nil, nil); err != nil {
		t.Error(err)
	}
}

func TestSubPathNeverLeavesTheVolume(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/secret", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	vol := t.TempDir()
	for link, target := range map[string]string{"abs": outside, "rel": "../" + filepath.Base(outside), "fine": "real"} {
		if err := os.Symlink(target, filepath.Join(vol, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(vol+"/real", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"abs", "abs/secret", "rel", "rel/new", "abs/new/deep"} {
		if f, err := openSub(vol, sub); err == nil {
			f.Close()
			t.Errorf("%s was opened", sub)
		}
	}
	if _, err := os.Stat(outside + "/new"); !os.IsNotExist(err) {
		t.Error("a folder was made outside of the volume")
	}
	for _, sub := range []string{"fine", "real", "made/deep"} {
		f, err := openSub(vol, sub)
		if err != nil {
			t.Errorf("%s: %v", sub, err)
			continue
		}
		f.Close()
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		kind corev1.HostPathType
		ok   bool
	}{
		{dir, corev1.HostPathDirectory, true}, {file, corev1.HostPathDirectory, false}, {dir + "/no", corev1.HostPathDirectory, false},
		{file, corev1.HostPathFile, true}, {dir, corev1.HostPathFile, false}, {dir + "/made", corev1.HostPathFileOrCreate, true},
		{dir + "/no/made", corev1.HostPathFileOrCreate, false}, {dir + "/newdir", corev1.HostPathDirectoryOrCreate, true}, {file, corev1.HostPathDirectoryOrCreate, false},
		{"/dev/null", corev1.HostPathCharDev, true}, {file, corev1.HostPathCharDev, false}, {"/dev/null", corev1.HostPathBlockDev, false},
		{file, corev1.HostPathSocket, false}, {file, corev1.HostPathUnset, true}, {file, "Weird", false},
	} {
		if err := checkHostPath(test.path, test.kind); (err == nil) != test.ok {
			t.Errorf("%s as %q: %v", test.path, test.kind, err)
		}
	}
}

func TestRealMountsAreMadeAndUndone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT TESTED: mounting needs root")
	}
	j := testJob(t)
	j.cfg.Mounter = Kernel{}
	t.Cleanup(func() {
		if err := (Kernel{}).UnmountUnder(j.cfg.Root); err != nil {
			t.Error(err)
		}
	})
	j.pod.Spec.Volumes = []corev1.Volume{
		{Name: "ram", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	if _, err := j.SetUp(t.Context(), j.pod); err != nil {
		t.Skipf("SKIPPED, NOT TESTED: this machine lets nobody mount: %v", err)
	}
	c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "disk", MountPath: "/d", SubPath: "sub"}, {Name: "ram", MountPath: "/r"}}}
	mounts, err := j.Mounts(j.pod, c, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if is, err := (Kernel{}).IsMount(m.HostPath); err != nil || !is {
			t.Errorf("%s is not a mount: %v", m.HostPath, err)
		}
	}
	if err := os.WriteFile(mounts[0].HostPath+"/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	ram := mounts[1].HostPath
	if err := os.WriteFile(ram+"/f", []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.SetUp(t.Context(), j.pod); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(ram + "/f"); string(b) != "kept" {
		t.Error("setting up again emptied an emptyDir")
	}
	if err := j.Forget(j.pod.UID, "c", 0); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(j.dir("empty-dir", "disk"), "sub", "f")); string(b) != "x" {
		t.Error("forgetting a container's subPath mount removed the volume's content")
	}
	for range 2 {
		if err := j.TearDown(j.pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	if points, err := mountPoints(j.cfg.Root); err != nil || len(points) > 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
}
