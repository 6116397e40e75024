package node_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/node"
)

func (m *machineUnderTest) node() *corev1.Node {
	n, err := client.Of[*corev1.Node](m.api).Get(context.Background(), "", "n1")
	if err != nil {
		return nil
	}
	return n
}

func nodeCondition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	if n == nil {
		return &corev1.NodeCondition{}
	}
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return &corev1.NodeCondition{}
}

func TestNodeRegistersAndKeepsItsLease(t *testing.T) {
	m := newMachine(t, true)
	m.wait("ready", func() bool { return nodeCondition(m.node(), corev1.NodeReady).Status == corev1.ConditionTrue })
	n := m.node()
	for k, want := range map[string]string{"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux"} {
		if n.Labels[k] != want {
			t.Errorf("label %s is %q, want %q", k, n.Labels[k], want)
		}
	}
	if got := n.Status.Capacity.Cpu().String() + " " + n.Status.Capacity.Pods().String(); got != "4 110" {
		t.Errorf("cpu and pods: %s", got)
	}
	if d := cmp.Diff([]corev1.NodeAddress{{Type: "InternalIP", Address: "192.0.2.10"}, {Type: "Hostname", Address: "n1"}}, n.Status.Addresses); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
	lease := func() *coordv1.Lease {
		l, err := client.Of[*coordv1.Lease](m.api).Get(context.Background(), "kube-node-lease", "n1")
		if err != nil {
			return nil
		}
		return l
	}
	m.wait("lease", func() bool { return lease() != nil })
	first := lease()
	if *first.Spec.HolderIdentity != "n1" || *first.Spec.LeaseDurationSeconds != 40 || len(first.OwnerReferences) != 1 {
		t.Errorf("lease %+v", first)
	}
	m.waitFor("renewed within 10 s", func() bool { m.fake.Step(time.Second); return lease().Spec.RenewTime.After(first.Spec.RenewTime.Time) })
	if took := lease().Spec.RenewTime.Sub(first.Spec.RenewTime.Time); took > 30*time.Second {
		t.Errorf("renewed after %s of its clock", took)
	}
}

func TestNodeTellsOfItsRuntime(t *testing.T) {
	m := newMachine(t, true)
	m.rt.SetNetworkNotReady("cni config uninitialized")
	m.waitFor("not ready", func() bool {
		m.fake.Step(time.Second)
		c := nodeCondition(m.node(), corev1.NodeReady)
		return c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady" &&
			strings.Contains(c.Message, "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni config uninitialized")
	})
	m.rt.SetNetworkNotReady("")
	m.waitFor("ready again", func() bool {
		m.fake.Step(time.Second)
		return nodeCondition(m.node(), corev1.NodeReady).Status == corev1.ConditionTrue
	})
	if !m.events.has("n1", "Normal NodeReady: Node n1 status is now: NodeReady") {
		t.Errorf("no NodeReady event in:\n%s", m.events.all())
	}
}

func TestDeletedNodeRegistersAgain(t *testing.T) {
	m := newMachine(t, false)
	m.wait("registered", func() bool { return m.node() != nil })
	if err := client.Of[*corev1.Node](m.api).Delete(context.Background(), "", "n1", deleteNow); err != nil {
		t.Fatal(err)
	}
	m.wait("registered again", func() bool { return nodeCondition(m.node(), corev1.NodeReady).Status == corev1.ConditionTrue })
}

// TestNodeSaysThatCSIDriversTookOverCloudVolumes follows KEP-625: the scheduler reads it from the CSINode.
func TestNodeSaysThatCSIDriversTookOverCloudVolumes(t *testing.T) {
	m := newMachine(t, false)
	says := func() (string, types.UID) {
		n, err := client.Of[*storagev1.CSINode](m.api).Get(context.Background(), "", "n1")
		if err != nil || len(n.OwnerReferences) != 1 {
			return "", ""
		}
		return n.Annotations["storage.alpha.kubernetes.io/migrated-plugins"], n.OwnerReferences[0].UID
	}
	told := func() bool {
		plugins, owner := says()
		return m.node() != nil && owner == m.node().UID && plugins == "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
	}
	m.wait("the CSINode", told)
	// What a driver has put there stays when the node is registered anew.
	api := client.Of[*storagev1.CSINode](m.api)
	n, err := api.Get(context.Background(), "", "n1")
	if err != nil {
		t.Fatal(err)
	}
	n = n.DeepCopy()
	n.Annotations = nil
	n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: "n1"}}
	if _, err := api.Update(context.Background(), n); err != nil {
		t.Fatal(err)
	}
	first := m.node().UID
	if err := client.Of[*corev1.Node](m.api).Delete(context.Background(), "", "n1", deleteNow); err != nil {
		t.Fatal(err)
	}
	m.wait("registered again", func() bool { return m.node() != nil && m.node().UID != first && told() })
	if n, err = api.Get(context.Background(), "", "n1"); err != nil || len(n.Spec.Drivers) != 1 {
		t.Errorf("drivers of the CSINode: %+v (%v)", n, err)
	}
}

// lateAnswer is an API whose answer to the first status write comes after the Node was deleted and everybody was told so.
type lateAnswer struct {
	client.Transport
	once sync.Once
	// seen and told are closed when the agent's cache has had the Node, and its deletion.
	seen, told chan struct{}
}

func (l *lateAnswer) Patch(ctx context.Context, ref resource.Ref, kind types.PatchType, body []byte, opts metav1.PatchOptions) (runtime.Object, error) {
	got, err := l.Transport.Patch(ctx, ref, kind, body, opts)
	l.once.Do(func() {
		<-l.seen
		if err = client.Of[*corev1.Node](l.Transport).Delete(ctx, "", "n1", deleteNow); err == nil {
			<-l.told
		}
	})
	return got, err
}

func TestDeletionIsSeenThoughAnAnswerComesAfterIt(t *testing.T) {
	m := newMachine(t, true)
	m.stop()
	if err := client.Of[*corev1.Node](m.api).Delete(context.Background(), "", "n1", deleteNow); err != nil {
		t.Fatal(err)
	}
	var late *lateAnswer
	m.run(func(c *node.Config) {
		late = &lateAnswer{Transport: c.Transport, seen: make(chan struct{}), told: make(chan struct{})}
		c.Transport = late
		nodes := client.CacheOf[*corev1.Node](c.Caches, client.CacheOptions{FieldSelector: "metadata.name=n1"})
		var seen, told sync.Once
		nodes.OnChange(func(_, now *corev1.Node) {
			if now == nil {
				told.Do(func() { close(late.told) })
			} else {
				seen.Do(func() { close(late.seen) })
			}
		})
	})
	defer m.stop()
	<-late.told
	m.wait("registered again", func() bool { return nodeCondition(m.node(), corev1.NodeReady).Status == corev1.ConditionTrue })
}

func TestExistingNodeIsTakenOver(t *testing.T) {
	m := newMachine(t, false)
	m.wait("registered", func() bool { return m.node() != nil })
	m.stop()
	if _, err := client.Of[*corev1.Node](m.api).Patch(context.Background(), "", "n1", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"mine":"kept","kubernetes.io/os":"plan9"}},"spec":{"unschedulable":true}}`), ""); err != nil {
		t.Fatal(err)
	}
	m.run(func(c *node.Config) { c.PodCIDRs = []string{"10.42.0.0/24"} })
	defer m.stop()
	m.wait("taken over", func() bool {
		n := m.node()
		return n.Labels["kubernetes.io/os"] == "linux" && n.Spec.PodCIDR == "10.42.0.0/24"
	})
	if n := m.node(); n.Labels["mine"] != "kept" || !n.Spec.Unschedulable {
		t.Errorf("what the user set was lost: %v, unschedulable %v", n.Labels, n.Spec.Unschedulable)
	}
}

func TestPodsThatDoNotFitAreRefused(t *testing.T) {
	for _, test := range []struct {
		name, reason, message string
		change                func(*corev1.Pod)
	}{
		{"cpu", "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000",
			func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = quantities("3", "") }},
		{"selector", "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }},
		{"port", "NodePorts", "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
			}},
		{"os", "PodOSNotSupported", "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: "windows"} }},
		{"sysctl", "SysctlForbidden", `Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted`, func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}},
		{"sysctl of the host", "SysctlForbidden", `Pod was rejected: forbidden sysctl: "net.ipv4.tcp_rmem" not allowed with host net enabled`, func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_rmem", Value: "1"}}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t, false)
			m.create(newPod("first", func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = quantities("2", "")
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
			}))
			m.waitReady("first")
			m.create(newPod("second", test.change))
			m.waitPhase("second", corev1.PodFailed)
			p := m.pod("second")
			if p.Status.Reason != test.reason || p.Status.Message != test.message {
				t.Errorf("reason %q, message %q", p.Status.Reason, p.Status.Message)
			}
			if m.rt.SandboxConfig("second") != nil {
				t.Error("a sandbox was made for it")
			}
		})
	}
}

func TestSandboxAndContainerConfig(t *testing.T) {
	m := newMachine(t, false)
	m.rt.AddImage(&runtimeapi.Image{RepoTags: []string{"img/main:1"}, Username: "nobody"})
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Hostname, p.Spec.Subdomain = "host", "sub"
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "203.0.113.1", Hostnames: []string{"alias", "other"}}}
		p.Spec.ShareProcessNamespace = ptr(true)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: []int64{3000}, FSGroup: ptr(int64(2000)),
			Sysctls: []corev1.Sysctl{{Name: "net/ipv4/tcp_keepalive_time", Value: "1024"}}}
		c := &p.Spec.Containers[0]
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: "TCP"}, {ContainerPort: 81}}
		c.Resources = corev1.ResourceRequirements{Requests: quantities("100m", "128Mi"), Limits: quantities("250m", "256Mi")}
		c.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true), RunAsGroup: ptr(int64(5)), RunAsUser: ptr(int64(6)),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}}}
	}))
	m.waitReady("web")
	s := m.rt.SandboxConfig("web")
	if d := cmp.Diff([]string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local"}, s.DnsConfig.Searches[:3]); d != "" {
		t.Errorf("search domains (-want +got):\n%s", d)
	}
	if s.Hostname != "host" || s.DnsConfig.Servers[0] != "10.43.0.10" || s.Linux.Sysctls["net.ipv4.tcp_keepalive_time"] != "1024" || len(s.PortMappings) != 1 ||
		s.PortMappings[0].HostPort != 8080 || s.Linux.SecurityContext.NamespaceOptions.Pid != runtimeapi.NamespaceMode_POD {
		t.Errorf("sandbox: %v", s)
	}
	c := m.rt.ContainerConfig(id(m.pod("web"), "main"))
	r := c.Linux.Resources
	if r.CpuShares != 102 || r.CpuQuota != 25000 || r.CpuPeriod != 100000 || r.MemoryLimitInBytes != 256<<20 || r.OomScoreAdj != 1000-1000*128/8192 {
		t.Errorf("resources: %v", r)
	}
	sc := c.Linux.SecurityContext
	if !sc.NoNewPrivs || !sc.ReadonlyRootfs || sc.RunAsUser.Value != 6 || sc.RunAsGroup.Value != 5 || sc.Privileged || sc.Capabilities.DropCapabilities[0] != "ALL" ||
		sc.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault || len(sc.MaskedPaths) == 0 {
		t.Errorf("security: %v", sc)
	}
	if d := cmp.Diff([]int64{2000, 3000}, sc.SupplementalGroups); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
	hosts := m.mountOf("web", "main", "/etc/hosts")
	content := m.read(hosts, "")
	for _, want := range []string{m.pod("web").Status.PodIP + "\thost.sub.default.svc.cluster.local\thost\n", "203.0.113.1\talias\tother\n"} {
		if !strings.Contains(content, want) {
			t.Errorf("hosts file lacks %q:\n%s", want, content)
		}
	}
}

func TestRunAsNonRootIsEnforced(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr(true)} }))
	m.wait("refused", func() bool { return waiting(m.pod("web"), "main") == "CreateContainerConfigError" })
	if got := container(m.pod("web"), "main").State.Waiting.Message; !strings.HasPrefix(got, `container has runAsNonRoot and image will run as root (pod: "web_default(`) {
		t.Errorf("message %q", got)
	}
}

func TestResizeInPlace(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("100m", "64Mi"), Limits: quantities("200m", "64Mi")}
	}))
	m.waitReady("web")
	before := id(m.pod("web"), "main")
	if _, err := client.Of[*corev1.Pod](m.api).Patch(context.Background(), "default", "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"400m"}}}]}}`), ""); err != nil {
		t.Fatal(err)
	}
	m.wait("resized", func() bool {
		p := m.pod("web")
		c := container(p, "main")
		return c.Resources.Limits.Cpu().String() == "400m" && condition(p, corev1.PodResizeInProgress) == nil
	})
	if id(m.pod("web"), "main") != before {
		t.Error("the container was replaced")
	}
	got := m.rt.Find("web", "main").Resources.Linux
	if got.CpuQuota != 40000 {
		t.Errorf("quota %d, want 40000", got.CpuQuota)
	}
}

func TestResizeBeyondTheNodeIsInfeasible(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("100m", "64Mi"), Limits: quantities("200m", "64Mi")}
	}))
	m.waitReady("web")
	if _, err := client.Of[*corev1.Pod](m.api).Patch(context.Background(), "default", "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"40"},"requests":{"cpu":"40"}}}]}}`), ""); err != nil {
		t.Fatal(err)
	}
	m.wait("infeasible", func() bool {
		c := condition(m.pod("web"), corev1.PodResizePending)
		return c != nil && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonInfeasible &&
			c.Message == "Node didn't have enough capacity: cpu, requested: 40000, used: 0, capacity: 4000"
	})
	if got := m.rt.Find("web", "main").Resources.Linux.CpuQuota; got != 20000 {
		t.Errorf("quota %d, want the old 20000", got)
	}
	if got := container(m.pod("web"), "main").Resources.Limits.Cpu().String(); got != "200m" {
		t.Errorf("the status tells of a limit of %s, which the container does not have", got)
	}
}

func TestViewFindsContainers(t *testing.T) {
	m := newMachine(t, true)
	m.create(newPod("web"))
	m.waitReady("web")
	first := id(m.pod("web"), "main")
	got, err := m.agent.Container("default", "web", "", "main", false)
	if err != nil || got.ID != first || !got.Running || !strings.HasSuffix(got.LogPath, "/main/0.log") {
		t.Errorf("container %+v, %v", got, err)
	}
	if _, err := m.agent.Container("default", "web", "", "main", true); err == nil || err.Error() != `previous terminated container "main" in pod "web" not found` {
		t.Errorf("previous: %v", err)
	}
	m.rt.Exit(first, 1)
	m.wait("restarted", func() bool { p := m.pod("web"); return container(p, "main").RestartCount == 1 && isReady(p) })
	if got, err := m.agent.Container("default", "web", "", "main", true); err != nil || got.ID != first {
		t.Errorf("previous %+v, %v, want the first", got, err)
	}
	if _, err := m.agent.Container("default", "web", "", "nosuch", false); err == nil {
		t.Error("a container that is not in the spec was found")
	}
	if _, err := m.agent.Sandbox("default", "web", ""); err != nil {
		t.Error(err)
	}
}

func TestHostNetworkPodHasTheNodesAddress(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("host", func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	m.waitReady("host")
	if got := m.pod("host").Status.PodIP; got != "192.0.2.10" {
		t.Errorf("pod address %q", got)
	}
}
