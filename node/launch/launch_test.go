package launch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func memory(request, limit string) corev1.Container {
	c := corev1.Container{Name: "c"}
	if request != "" {
		c.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse(request)}
	}
	if limit != "" {
		c.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse(limit), "cpu": resource.MustParse("1")}
		c.Resources.Requests["cpu"] = resource.MustParse("1")
	}
	return c
}

func TestOOMScoreFollowsQualityOfService(t *testing.T) {
	const capacity = 4 << 30
	for _, test := range []struct {
		name string
		c    corev1.Container
		want int
	}{
		{"best effort", memory("", ""), 1000},
		{"guaranteed", memory("1Gi", "1Gi"), -997},
		{"burstable, a quarter of the machine", memory("1Gi", ""), 750},
		{"burstable, nearly nothing", memory("1", ""), 999},
		{"burstable, all of it", memory("4Gi", ""), 3},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{test.c}}}
		if got := OOMScoreAdj(pod, &test.c, capacity); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	c := memory("1Gi", "1Gi")
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	b := Builder{MemoryCapacity: capacity, OOMFloor: 0}
	if got := b.Resources(pod, &c).OomScoreAdj; got != 0 {
		t.Errorf("a process that can't go below 0 asks for %d", got)
	}
}

func TestDNSPolicies(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("# host\nnameserver 9.9.9.9\nsearch corp.example. .\noptions rotate timeout:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Builder{ClusterDNS: []string{"10.43.0.10"}, ClusterDomain: "cluster.local", ResolvConf: conf}
	value := "2"
	extra := &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"my.example"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &value}, {Name: "edns0"}}}
	cluster := []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"}
	for _, test := range []struct {
		name string
		spec corev1.PodSpec
		want *runtimeapi.DNSConfig
	}{
		{"ClusterFirst", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst}, &runtimeapi.DNSConfig{Servers: []string{"10.43.0.10"}, Searches: cluster, Options: []string{"ndots:5"}}},
		{"on the host's network it is the host's", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, &runtimeapi.DNSConfig{Servers: []string{"9.9.9.9"}, Searches: []string{"corp.example"}, Options: []string{"rotate", "timeout:1"}}},
		{"ClusterFirstWithHostNet", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true}, &runtimeapi.DNSConfig{Servers: []string{"10.43.0.10"}, Searches: cluster, Options: []string{"ndots:5"}}},
		{"None", corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: extra}, &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{"my.example"}, Options: []string{"ndots:2", "edns0"}}},
		{"with more", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, DNSConfig: extra}, &runtimeapi.DNSConfig{Servers: []string{"10.43.0.10", "1.1.1.1"}, Searches: append(cluster, "my.example"), Options: []string{"ndots:2", "edns0"}}},
	} {
		got, err := b.dns(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: test.spec})
		if err != nil {
			t.Fatal(err)
		}
		type plain struct{ Servers, Searches, Options []string }
		if d := cmp.Diff(plain{test.want.Servers, test.want.Searches, test.want.Options}, plain{got.Servers, got.Searches, got.Options}); d != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, d)
		}
	}
}

func TestOrphanKeepsWhatEndingNeeds(t *testing.T) {
	grace := int64(77)
	c := corev1.Container{Name: "c", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}},
		Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	gotPod, got := Orphan(containerLabels(pod, &c), annotations(pod, &c, 3))
	if gotPod.Name != "p" || gotPod.Namespace != "ns" || gotPod.UID != "u" || *gotPod.Spec.TerminationGracePeriodSeconds != 77 {
		t.Errorf("pod %+v", gotPod)
	}
	if d := cmp.Diff(&c, got); d != "" {
		t.Errorf("container (-want +got):\n%s", d)
	}
}

func TestUserNamespacesAreRefused(t *testing.T) {
	no := false
	b := Builder{LogRoot: t.TempDir()}
	if _, err := b.Sandbox(&corev1.Pod{Spec: corev1.PodSpec{HostUsers: &no}}, 0, ""); err == nil {
		t.Error("hostUsers: false was accepted and not honoured")
	}
}

func TestLocalhostSeccompProfileMustExist(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "p.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Builder{SeccompRoot: root}
	name := "p.json"
	sc := &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &name}}
	if p, err := b.seccomp(sc); err != nil || p.LocalhostRef != filepath.Join(root, "p.json") {
		t.Errorf("profile %v, %v", p, err)
	}
	name = "../../etc/passwd"
	if p, err := b.seccomp(sc); err == nil {
		t.Errorf("a path out of the folder gave %v", p)
	}
}
