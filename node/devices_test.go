package node_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/node"
	"github.com/yare-project/yare/node/dra/fake"
	"github.com/yare-project/yare/node/pluginregistry"
)

const driverName = "gpu.example.com"

// gpus gives a claim one device for each of its two requests.
func gpus(c *drav1.Claim) []*drav1.Device {
	device := func(name, request string) *drav1.Device {
		return &drav1.Device{PoolName: "n1", DeviceName: name, RequestNames: []string{request}, CdiDeviceIds: []string{"example.com/gpu=" + c.Name + "-" + name}}
	}
	return []*drav1.Device{device("d0", "first"), device("d1", "second")}
}

// claimed is an allocated claim for pods.
func claimed(name string, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("claim-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "first", Driver: driverName, Pool: "n1", Device: "d0"}, {Request: "second", Driver: driverName, Pool: "n1", Device: "d1"}}}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	return c
}

// using makes a pod's containers use its claim: main all of it, side the second request, none nothing.
func using(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
		p.Spec.Containers = []corev1.Container{ctr("main"), ctr("side"), ctr("none")}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		p.Spec.Containers[1].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu", Request: "second"}}
	}
}

func (m *machineUnderTest) driver() *fake.Driver {
	m.t.Helper()
	return m.driverOf(driverName)
}

func (m *machineUnderTest) driverOf(name string) *fake.Driver {
	m.t.Helper()
	dir := filepath.Join(m.root, "plugins_registry")
	m.waitFor("the folder of plugins", func() bool { _, err := os.Stat(dir); return err == nil })
	d, err := fake.Start(dir, name, gpus)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(d.Stop)
	m.waitFor("the driver is asked who it is", func() bool {
		select {
		case s := <-d.Registered():
			if !s.PluginRegistered {
				m.t.Fatalf("not registered: %s", s.Error)
			}
			return true
		default:
			if m.fake != nil { // it may have been asked a moment too early
				m.fake.Step(10 * time.Millisecond)
			}
			return false
		}
	})
	return d
}

func (m *machineUnderTest) cdi(pod, container string) []string {
	m.t.Helper()
	got := m.rt.Find(pod, container)
	if got == nil {
		m.t.Fatalf("no container %s/%s", pod, container)
	}
	names := []string{}
	for _, d := range m.rt.ContainerConfig(got.Id).CDIDevices {
		names = append(names, d.Name)
	}
	return names
}

func TestContainersGetTheDevicesOfTheirClaims(t *testing.T) {
	m := newMachine(t, false)
	d := m.driver()
	pod := newPod("web", using("c"))
	m.create(claimed("c", pod))
	m.create(pod)
	m.waitReady("web")
	for container, want := range map[string][]string{"main": {"example.com/gpu=c-d0", "example.com/gpu=c-d1"}, "side": {"example.com/gpu=c-d1"}, "none": {}} {
		if diff := cmp.Diff(want, m.cdi("web", container)); diff != "" {
			t.Errorf("devices of %s (-want +got):\n%s", container, diff)
		}
	}
	m.delete("web", ptr(int64(0)))
	m.wait("deleted", func() bool { return m.pod("web") == nil })
	m.waitFor("undone", func() bool { return len(d.Prepared()) == 0 })
	if diff := cmp.Diff([]string{"prepare default/c", "unprepare default/c"}, d.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestMissingDriverIsToldOfAndWaitedFor(t *testing.T) {
	m := newMachine(t, false)
	pod := newPod("web", using("c"))
	m.create(claimed("c", pod))
	m.create(pod)
	m.waitFor("told", func() bool {
		return m.events.has("Warning FailedPrepareDynamicResources: Failed to prepare dynamic resources: DRA driver gpu.example.com is not registered")
	})
	m.driver()
	m.waitReady("web")
}

func TestClaimOfAnotherPodIsRefused(t *testing.T) {
	m := newMachine(t, false)
	m.driver()
	m.create(claimed("c", newPod("other")))
	m.create(newPod("web", using("c")))
	m.waitFor("told", func() bool {
		return m.events.has("FailedPrepareDynamicResources", "is not allowed to use ResourceClaim c(claim-c)")
	})
}

func TestPodIsNotOverBeforeItsDevicesAreGivenBack(t *testing.T) {
	m := newMachine(t, false)
	d := m.driver()
	pod := newPod("job", using("c"), restart(corev1.RestartPolicyNever))
	m.create(claimed("c", pod))
	m.create(pod)
	m.waitReady("job")
	d.Fail("the device is stuck")
	for _, c := range []string{"main", "side", "none"} {
		m.rt.Exit(id(m.pod("job"), c), 0)
	}
	m.waitFor("told", func() bool {
		return m.events.has("FailedUnprepareDynamicResources", "NodeUnprepareResources failed for ResourceClaim c: the device is stuck")
	})
	if p := m.pod("job"); p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s while its devices are still prepared", p.Status.Phase)
	}
	d.Fail("")
	m.waitPhase("job", corev1.PodSucceeded)
	if got := d.Prepared(); len(got) > 0 {
		t.Errorf("the pod is over and %v is still prepared", got)
	}
}

func TestPreparedDevicesOutliveTheAgent(t *testing.T) {
	m := newMachine(t, false)
	d := m.driver()
	web, gone := newPod("web", using("shared")), newPod("gone", using("lone"))
	m.create(claimed("shared", web))
	m.create(claimed("lone", gone))
	m.create(web)
	m.create(gone)
	m.waitReady("web")
	m.waitReady("gone")
	m.stop()
	m.delete("gone", ptr(int64(0)))
	m.run(func(c *node.Config) {})
	defer m.stop()
	m.waitFor("what is left of the other pod is undone", func() bool { return slices.Equal(d.Prepared(), []string{"claim-shared"}) })
	m.waitFor("the pod is known", func() bool { p, ok := m.agent.Pod("default", "web"); return ok && isReady(p) })
	before := id(m.pod("web"), "main")
	m.rt.Exit(before, 1)
	m.wait("restarted", func() bool { p := m.pod("web"); return isReady(p) && id(p, "main") != before })
	var now *runtimeapi.ContainerStatus = m.rt.Find("web", "main")
	if got := m.rt.ContainerConfig(now.Id).CDIDevices; len(got) != 2 {
		t.Errorf("the restarted container has devices %v, want 2", got)
	}
}

func TestSharedClaimIsUndoneAfterItsLastPod(t *testing.T) {
	m := newMachine(t, false)
	d := m.driver()
	a, b := newPod("a", using("c")), newPod("b", using("c"))
	m.create(claimed("c", a, b))
	m.create(a)
	m.create(b)
	m.waitReady("a")
	m.waitReady("b")
	m.delete("a", ptr(int64(0)))
	m.wait("deleted", func() bool { return m.pod("a") == nil })
	m.waitFor("forgotten", func() bool { _, known := m.agent.Pod("default", "a"); return !known })
	if got := d.Prepared(); len(got) != 1 {
		t.Fatalf("prepared with one pod left: %v", got)
	}
	m.delete("b", ptr(int64(0)))
	m.wait("deleted", func() bool { return m.pod("b") == nil })
	m.waitFor("undone", func() bool { return len(d.Prepared()) == 0 })
	if diff := cmp.Diff([]string{"prepare default/c", "unprepare default/c"}, d.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestHealthOfDevicesIsInTheStatus(t *testing.T) {
	m := newMachine(t, true)
	d := m.driver()
	pod := newPod("web", using("c"))
	m.create(claimed("c", pod))
	m.create(pod)
	m.waitReady("web")
	d.Tell("n1", "d1", healthv1alpha1.HealthStatus_UNHEALTHY, "too hot")
	want := []corev1.ResourceStatus{{Name: "claim:gpu/second", Resources: []corev1.ResourceHealth{{ResourceID: "example.com/gpu=c-d1", Health: corev1.ResourceHealthStatusUnhealthy, Message: ptr("too hot")}}}}
	m.wait("the status says so", func() bool { return cmp.Equal(want, container(m.pod("web"), "side").AllocatedResourcesStatus) })
	if all := container(m.pod("web"), "main").AllocatedResourcesStatus; len(all) != 1 || len(all[0].Resources) != 2 || all[0].Resources[0].Health != corev1.ResourceHealthStatusUnknown {
		t.Errorf("main, which has both devices: %+v", all)
	}
	want[0].Resources[0] = corev1.ResourceHealth{ResourceID: "example.com/gpu=c-d1", Health: corev1.ResourceHealthStatusUnknown}
	m.waitFor("what the driver does not repeat is unknown in the end", func() bool {
		m.fake.Step(10 * time.Second)
		return cmp.Equal(want, container(m.pod("web"), "side").AllocatedResourcesStatus)
	})
}

// One driver hangs: the pod of another starts meanwhile, and the pod that waits says for whom.
func TestHungDriverDelaysOnlyItsOwnPods(t *testing.T) {
	m := newMachine(t, true)
	hung, well := m.driverOf("hung.example.com"), m.driver()
	release := hung.Hang()
	stuck, free := newPod("stuck", using("s")), newPod("free", using("f"))
	s := claimed("s", stuck)
	for i := range s.Status.Allocation.Devices.Results {
		s.Status.Allocation.Devices.Results[i].Driver = "hung.example.com"
	}
	m.create(s)
	m.create(claimed("f", free))
	m.create(stuck)
	m.waitFor("the driver is asked", func() bool { return slices.Contains(hung.Calls(), "prepare default/s") })
	asked := m.clock.Now().UTC().Format(time.RFC3339)
	m.create(free)
	m.waitReady("free")
	if got := well.Prepared(); len(got) != 1 {
		t.Errorf("the other driver has prepared %v", got)
	}
	want := "DRA driver hung.example.com has not answered NodePrepareResources for ResourceClaim s, which it was asked at " + asked + "; the call ends after 45s"
	m.waitFor("the pod says which driver it waits for", func() bool {
		m.fake.Step(time.Second)
		w := container(m.pod("stuck"), "main").State.Waiting
		return w != nil && w.Reason == "ContainerCreating" && w.Message == want
	})
	if !m.events.has("stuck", "Warning WaitingForDynamicResources: "+want) {
		t.Errorf("no event; events:\n%s", m.events.all())
	}
	release()
	m.waitReady("stuck")
	if w := container(m.pod("stuck"), "main").State; w.Waiting != nil {
		t.Errorf("a pod that runs still waits: %v", w)
	}
}

func TestPodResourcesTellOfClaims(t *testing.T) {
	m := newMachine(t, false)
	m.driver()
	pod := newPod("web", using("c"))
	m.create(claimed("c", pod))
	m.create(pod)
	m.waitReady("web")
	conn, err := pluginregistry.Dial(filepath.Join(m.root, "pod-resources", "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var list *podresourcesv1.ListPodResourcesResponse
	m.waitFor("the API answers", func() bool {
		list, err = podresourcesv1.NewPodResourcesListerClient(conn).List(context.Background(), &podresourcesv1.ListPodResourcesRequest{})
		return err == nil
	})
	got := map[string][]string{}
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			for _, d := range c.DynamicResources {
				for _, r := range d.ClaimResources {
					got[p.Name+"/"+c.Name] = append(got[p.Name+"/"+c.Name], d.ClaimName+" "+r.DeviceName+" "+r.CdiDevices[0].Name)
				}
			}
		}
	}
	want := map[string][]string{"web/main": {"c d0 example.com/gpu=c-d0", "c d1 example.com/gpu=c-d1"}, "web/side": {"c d1 example.com/gpu=c-d1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestSlicesOfALostDriverAreRemoved(t *testing.T) {
	m := newMachine(t, true)
	d := m.driver()
	node := "n1"
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{Driver: driverName, NodeName: &node}}
	m.create(slice)
	d.Stop()
	m.waitFor("the slice goes", func() bool {
		m.fake.Step(10 * time.Second)
		_, err := client.Of[*resourcev1.ResourceSlice](m.api).Get(context.Background(), "", "s")
		return err != nil
	})
}
