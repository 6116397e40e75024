package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/client"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default"}
}

// env is the environment of a pod's container.
func (m *machineUnderTest) env(pod, name string) map[string]string {
	out := map[string]string{}
	for _, kv := range m.rt.ContainerConfig(id(m.pod(pod), name)).Envs {
		out[kv.Key] = string(kv.Value)
	}
	return out
}

// mountOf is where on the host a container's path is.
func (m *machineUnderTest) mountOf(pod, name, path string) *runtimeapi.Mount {
	m.t.Helper()
	for _, mount := range m.rt.ContainerConfig(id(m.pod(pod), name)).Mounts {
		if mount.ContainerPath == path {
			return mount
		}
	}
	m.t.Fatalf("nothing is mounted at %s", path)
	return nil
}

func (m *machineUnderTest) read(mount *runtimeapi.Mount, file string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(mount.HostPath, file))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func TestEnvironmentFromEverywhere(t *testing.T) {
	m := newMachine(t, false,
		&corev1.ConfigMap{ObjectMeta: meta("cm"), Data: map[string]string{"A": "from-cm", "KEY": "one"}},
		&corev1.Secret{ObjectMeta: meta("sec"), Data: map[string][]byte{"S": []byte("hidden")}},
		&corev1.Service{ObjectMeta: meta("kubernetes"), Spec: corev1.ServiceSpec{ClusterIP: "10.43.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}},
		&corev1.Service{ObjectMeta: meta("my-db"), Spec: corev1.ServiceSpec{ClusterIP: "10.43.0.7", Ports: []corev1.ServicePort{{Port: 5432}}}},
		&corev1.Service{ObjectMeta: meta("headless"), Spec: corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Port: 1}}}},
	)
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "shop"}
		c := &p.Spec.Containers[0]
		c.Resources.Requests = quantities("250m", "64Mi")
		c.Resources.Limits = quantities("500m", "")
		c.EnvFrom = []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nosuch"}, Optional: ptr(true)}}}
		c.Env = []corev1.EnvVar{
			{Name: "PLAIN", Value: "x"},
			{Name: "EXPANDED", Value: "$(PLAIN)-$(P_A)-$(MY_DB_SERVICE_HOST)-$(UNKNOWN)-$$(PLAIN)"},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "sec"}, Key: "S"}}},
			{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "sec"}, Key: "T", Optional: ptr(true)}}},
			{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "APP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
			{Name: "NODE_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
			{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			{Name: "MEM", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}},
		}
		c.Command, c.Args = []string{"run", "$(PLAIN)"}, []string{"--name=$(NAME)"}
	}))
	m.waitReady("web")
	got := m.env("web", "main")
	want := map[string]string{"PLAIN": "x", "EXPANDED": "x-from-cm-10.43.0.7-$(UNKNOWN)-$(PLAIN)", "P_A": "from-cm", "P_KEY": "one", "SECRET": "hidden",
		"NAME": "web", "APP": "shop", "NODE_IP": "192.0.2.10", "POD_IP": m.pod("web").Status.PodIP, "CPU": "1", "MEM": fmt.Sprint(8 << 30),
		"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.43.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.43.0.1:443", "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
		"KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.43.0.1",
		"MY_DB_SERVICE_HOST": "10.43.0.7", "MY_DB_SERVICE_PORT": "5432", "MY_DB_PORT": "tcp://10.43.0.7:5432", "MY_DB_PORT_5432_TCP": "tcp://10.43.0.7:5432",
		"MY_DB_PORT_5432_TCP_PROTO": "tcp", "MY_DB_PORT_5432_TCP_PORT": "5432", "MY_DB_PORT_5432_TCP_ADDR": "10.43.0.7"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	config := m.rt.ContainerConfig(id(m.pod("web"), "main"))
	if d := cmp.Diff([]string{"run", "x", "--name=web"}, append(config.Command, config.Args...)); d != "" {
		t.Errorf("command (-want +got):\n%s", d)
	}
}

func TestMissingConfigMapKeyHoldsTheContainerUntilItIsThere(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "K", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "k"}}}}
	}))
	m.wait("held", func() bool { return waiting(m.pod("web"), "main") == "CreateContainerConfigError" })
	if got := container(m.pod("web"), "main").State.Waiting.Message; got != `configmaps "late" not found` {
		t.Errorf("message %q", got)
	}
	start := time.Now()
	m.create(&corev1.ConfigMap{ObjectMeta: meta("late"), Data: map[string]string{"k": "v"}})
	m.waitReady("web")
	t.Logf("ready %s after the config map appeared", time.Since(start).Round(time.Millisecond))
	if got := m.env("web", "main")["K"]; got != "v" {
		t.Errorf("K=%q", got)
	}
}

func mount(name, path string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: name, MountPath: path}
}

func TestVolumesOfEveryKind(t *testing.T) {
	m := newMachine(t, false,
		&corev1.ConfigMap{ObjectMeta: meta("cm"), Data: map[string]string{"a.txt": "alpha", "b.txt": "beta"}, BinaryData: map[string][]byte{"bin": {0, 1}}},
		&corev1.Secret{ObjectMeta: meta("sec"), Data: map[string][]byte{"password": []byte("geheim")}},
		&corev1.ServiceAccount{ObjectMeta: meta("default")},
	)
	m.api.OnCreate("serviceaccounts/token", func(_ client.Object, body runtime.Object) (runtime.Object, bool, error) {
		tr := body.(*authv1.TokenRequest).DeepCopy()
		tr.Status = authv1.TokenRequestStatus{Token: "token-for-" + string(tr.Spec.BoundObjectRef.UID), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
		return tr, false, nil
	})
	host := t.TempDir()
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "shop"}
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(2000))}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "cm", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
				DefaultMode: ptr(int32(0o600)), Items: []corev1.KeyToPath{{Key: "a.txt", Path: "sub/dir/a"}, {Key: "b.txt", Path: "b", Mode: ptr(int32(0o755))}}}}},
			{Name: "sec", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "sec"}}},
			{Name: "none", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nosuch", Optional: ptr(true)}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host + "/made", Type: ptr(corev1.HostPathDirectoryOrCreate)}}},
			{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}},
			{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr(int64(3607))}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Items: []corev1.KeyToPath{{Key: "a.txt", Path: "ca.crt"}}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
			}}}},
		}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "WHO", Value: "me"}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{mount("cm", "/cm"), mount("sec", "/sec"), mount("none", "/none"), mount("tmp", "/tmp"), mount("host", "/host"),
			mount("info", "/info"), mount("api", "/var/run/secrets/kubernetes.io/serviceaccount"),
			{Name: "tmp", MountPath: "/mine", SubPathExpr: "users/$(WHO)", MountPropagation: ptr(corev1.MountPropagationHostToContainer)},
			{Name: "cm", MountPath: "/b", SubPath: "b", ReadOnly: true},
		}
	}))
	m.waitReady("web")
	p := m.pod("web")
	api := m.mountOf("web", "main", "/var/run/secrets/kubernetes.io/serviceaccount")
	for _, want := range []struct{ mount, file, content string }{
		{"/cm", "sub/dir/a", "alpha"}, {"/cm", "b", "beta"}, {"/sec", "password", "geheim"}, {"/info", "labels", `app="shop"`},
		{api.ContainerPath, "token", "token-for-" + string(p.UID)}, {api.ContainerPath, "ca.crt", "alpha"}, {api.ContainerPath, "namespace", "default"},
	} {
		if got := m.read(m.mountOf("web", "main", want.mount), want.file); got != want.content {
			t.Errorf("%s/%s holds %q, want %q", want.mount, want.file, got, want.content)
		}
	}
	for path, mode := range map[string]os.FileMode{"sub/dir/a": 0o640, "b": 0o755} {
		info, err := os.Stat(filepath.Join(m.mountOf("web", "main", "/cm").HostPath, path))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode of %s is %v (%v), want %v: its own, and readable for the fsGroup", path, info.Mode().Perm(), err, mode)
		}
	}
	if e, err := os.ReadDir(m.mountOf("web", "main", "/none").HostPath); err != nil || len(e) > 0 {
		// only the hidden ..data may be there
		for _, x := range e {
			if !strings.HasPrefix(x.Name(), "..") {
				t.Errorf("a missing optional secret gave %s", x.Name())
			}
		}
	}
	mine := m.mountOf("web", "main", "/mine")
	if !strings.HasSuffix(mine.HostPath, "/users/me") || mine.Propagation != runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER {
		t.Errorf("subPathExpr mount: %+v", mine)
	}
	if b := m.mountOf("web", "main", "/b"); !b.Readonly {
		t.Error("a readOnly mount is writable")
	}
	if _, err := os.Stat(host + "/made"); err != nil {
		t.Error("DirectoryOrCreate did not create")
	}
	m.delete("web", nil)
	m.wait("gone", func() bool { return m.pod("web") == nil })
	if left, _ := filepath.Glob(m.root + "/pods/[^.]*"); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
	if left, _ := filepath.Glob(m.root + "/pods/.memory/*"); len(left) > 0 {
		t.Errorf("left in memory: %v", left)
	}
	if _, err := os.Stat(host + "/made"); err != nil {
		t.Error("a hostPath was removed with its pod")
	}
}

func TestVolumesFollowTheirObjects(t *testing.T) {
	m := newMachine(t, false, &corev1.ConfigMap{ObjectMeta: meta("cm"), Data: map[string]string{"old": "1", "both": "1"}})
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Labels = map[string]string{"v": "1"}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "cm", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
			{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{mount("cm", "/cm"), mount("info", "/info")}
	}))
	m.waitReady("web")
	dir, info := m.mountOf("web", "main", "/cm").HostPath, m.mountOf("web", "main", "/info").HostPath
	cm := &corev1.ConfigMap{ObjectMeta: meta("cm"), Data: map[string]string{"new": "2", "both": "2"}}
	if _, err := client.Of[*corev1.ConfigMap](m.api).Update(context.Background(), cm); err != nil {
		t.Fatal(err)
	}
	m.waitFor("the new content", func() bool {
		b, _ := os.ReadFile(dir + "/new")
		_, err := os.Lstat(dir + "/old")
		return string(b) == "2" && os.IsNotExist(err)
	})
	if b, _ := os.ReadFile(dir + "/both"); string(b) != "2" {
		t.Errorf("both holds %q", b)
	}
	if _, err := client.Of[*corev1.Pod](m.api).Patch(context.Background(), "default", "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"v":"2"}}}`), ""); err != nil {
		t.Fatal(err)
	}
	m.waitFor("the new label", func() bool { b, _ := os.ReadFile(info + "/labels"); return string(b) == `v="2"` })
	if got := container(m.pod("web"), "main").RestartCount; got != 0 {
		t.Errorf("the container restarted %d times for new content", got)
	}
}

func TestVolumeThatCannotBeSetUpIsTold(t *testing.T) {
	for _, test := range []struct {
		name   string
		source corev1.VolumeSource
		event  string
	}{
		{"missing", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nosuch"}}},
			`Warning FailedMount: MountVolume.SetUp failed for volume "v" : configmaps "nosuch" not found`},
		{"unsupported", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}},
			`Warning FailedMount: MountVolume.SetUp failed for volume "v" : this node does not support its source (nfs)`},
		{"cloud disk", corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/vol-1"}},
			`MountVolume.SetUp failed for volume "v" : its source (awsElasticBlockStore) is volume vol-1 of CSI driver ebs.csi.aws.com, and this node runs no CSI drivers`},
		{"cloud disk without a meaning", corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/no/such"}},
			`MountVolume.SetUp failed for volume "v" : volume "v" of kubernetes.io/aws-ebs can't be handled by CSI driver ebs.csi.aws.com`},
		{"ephemeral CSI", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets.example.com"}}, `it is an ephemeral volume of CSI driver secrets.example.com, and this node runs no CSI drivers`},
		{"hostpath", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null", Type: ptr(corev1.HostPathDirectory)}},
			`MountVolume.SetUp failed for volume "v" : hostPath type check failed: /dev/null is not a directory`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t, false)
			m.create(newPod("web", func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: test.source}}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{mount("v", "/v")}
			}))
			m.waitFor("told", func() bool { return m.events.has(test.event) })
			m.wait("waiting", func() bool { return waiting(m.pod("web"), "main") == "ContainerCreating" })
			if m.rt.Find("web", "main") != nil {
				t.Error("the container was made without its volume")
			}
			m.delete("web", nil)
			m.wait("gone", func() bool { return m.pod("web") == nil })
		})
	}
}

func TestTokenIsRenewedBeforeItExpires(t *testing.T) {
	m := newMachine(t, true, &corev1.ServiceAccount{ObjectMeta: meta("default")})
	n := 0
	m.api.OnCreate("serviceaccounts/token", func(_ client.Object, body runtime.Object) (runtime.Object, bool, error) {
		n++
		tr := body.(*authv1.TokenRequest).DeepCopy()
		tr.Status = authv1.TokenRequestStatus{Token: fmt.Sprintf("token-%d", n), ExpirationTimestamp: metav1.NewTime(m.clock.Now().Add(time.Hour))}
		return tr, false, nil
	})
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr(int64(3600))}}}}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{mount("api", "/api")}
	}))
	m.waitReady("web")
	dir := m.mountOf("web", "main", "/api").HostPath
	if b, _ := os.ReadFile(dir + "/token"); string(b) != "token-1" {
		t.Fatalf("token %q", b)
	}
	m.fake.Step(48*time.Minute + time.Second)
	m.waitFor("a new token at 80% of its life", func() bool { b, _ := os.ReadFile(dir + "/token"); return string(b) == "token-2" })
}
