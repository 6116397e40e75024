package node_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/yare-project/yare/node/dra/fake"
)

func TestHalfUndoneClaimIsPreparedAnew(t *testing.T) {
	m := newMachine(t, false)
	d := m.driver()
	nic, err := fake.Start(filepath.Join(m.root, "plugins_registry"), "nic.example.com", func(c *drav1.Claim) []*drav1.Device {
		return []*drav1.Device{{PoolName: "n1", DeviceName: "n0", RequestNames: []string{"net"}, CdiDeviceIds: []string{"example.com/nic=n0"}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nic.Stop)
	a, b := newPod("a", using("c"), restart(corev1.RestartPolicyNever)), newPod("b", using("c"))
	claim := claimed("c", a, b)
	claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: "net", Driver: "nic.example.com", Pool: "n1", Device: "n0"})
	m.create(claim)
	m.create(a)
	m.waitReady("a")
	nic.Fail("the card is stuck")
	for _, c := range []string{"main", "side", "none"} {
		m.rt.Exit(id(m.pod("a"), c), 0)
	}
	m.waitFor("told", func() bool { return m.events.has("FailedUnprepareDynamicResources", "the card is stuck") })
	if got := d.Prepared(); len(got) != 0 {
		t.Fatalf("the other driver has not undone it: %v", got)
	}
	m.create(b)
	m.waitFor("b is running or told why not", func() bool {
		return isReady(m.pod("b")) || m.events.has("FailedPrepareDynamicResources", "the card is stuck")
	})
	if isReady(m.pod("b")) {
		t.Errorf("b runs with %v; prepared: gpu %v; calls gpu %v nic %v", m.cdi("b", "main"), d.Prepared(), d.Calls(), nic.Calls())
	}
	nic.Fail("")
	m.waitReady("b")
	if len(d.Prepared()) != 1 || len(nic.Prepared()) != 1 {
		t.Errorf("b runs, prepared: gpu %v, nic %v; gpu calls %v", d.Prepared(), nic.Prepared(), d.Calls())
	}
}
