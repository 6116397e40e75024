package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
)

// gpus is what a node's driver publishes.
func gpus(node string, n int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.org", NodeName: ptr.To(node),
		Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}}
	for i := range n {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", i)})
	}
	return s
}

func gpuClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}}}}
}

func claiming(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	}
}

// A gang that lacks a device takes none, is not tried again for what it gave back itself, and goes once there are enough.
func TestGangOfDevices(t *testing.T) {
	c := start(t)
	c.server.MustCreate(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	c.server.MustCreate(node("a", "9"))
	c.server.MustCreate(gpus("a", 2))
	c.server.MustCreate(gang("g", 3))
	var pods []string
	for i := range 3 {
		name := fmt.Sprint("g-", i)
		c.server.MustCreate(gpuClaim(name))
		c.server.MustCreate(pod(name, "1", in("g"), claiming(name)))
		pods = append(pods, name)
	}
	c.wait("the group is told why", func() bool {
		return strings.Contains(c.scheduled("g").Message, "2 of its pods find a place, and 3 must at once") && strings.Contains(c.scheduled("g").Message, "too few free devices")
	})
	c.server.MustCreate(gpuClaim("single"))
	c.server.MustCreate(pod("single", "1", claiming("single")))
	c.wait("another gets a device", func() bool { return c.nodeOf("single") == "a" })
	w, ok, err := c.scheduler.Waiting(t.Context(), "default", "g-0")
	if err != nil || !ok {
		t.Fatalf("what the scheduler knows of g-0: %v, %v", ok, err)
	}
	if w.Attempts > 20 {
		t.Errorf("it was tried %d times, though hardly anything happened", w.Attempts)
	}
	more := gpus("a", 5)
	old, err := client.Of[*resourcev1.ResourceSlice](c.server).Get(context.Background(), "", "a")
	if err != nil {
		t.Fatal(err)
	}
	more.ResourceVersion, more.UID, more.Spec.Pool.Generation = old.ResourceVersion, old.UID, 2
	if _, err := client.Of[*resourcev1.ResourceSlice](c.server).Update(context.Background(), more); err != nil {
		t.Fatal(err)
	}
	c.poll("all are bound", time.Second, func() bool { return c.bound(pods) == 3 })
}

// Pods of a gang that share a claim are placed at once, though the claim gets its devices with the first of them; if not all find a place nothing is kept.
func TestGangSharesAClaim(t *testing.T) {
	c := start(t)
	c.server.MustCreate(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	c.server.MustCreate(node("a", "3"))
	c.server.MustCreate(node("b", "9"))
	c.server.MustCreate(gpus("a", 1))
	c.server.MustCreate(gpuClaim("shared"))
	c.server.MustCreate(gang("big", 4))
	big := c.members("big", 4, claiming("shared"))
	c.wait("one has no room where the device is", func() bool {
		return strings.Contains(c.scheduled("big").Message, "3 of its pods find a place, and 4 must at once")
	})
	c.server.MustCreate(gpuClaim("mine"))
	c.server.MustCreate(pod("single", "1", claiming("mine")))
	c.wait("the device is free for another", func() bool { return c.nodeOf("single") == "a" })
	zero := int64(0)
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", "single", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	if n := c.bound(big); n > 0 {
		t.Fatalf("%d of the big gang are bound", n)
	}
	c.server.MustCreate(gpus("b", 1))
	c.poll("all go to the node with room", time.Second, func() bool { return c.bound(big) == 4 })
	for _, name := range big {
		if n := c.nodeOf(name); n != "b" {
			t.Errorf("%s went to %s", name, n)
		}
	}
	claim, err := client.Of[*resourcev1.ResourceClaim](c.server).Get(context.Background(), "default", "shared")
	if err != nil || claim.Status.Allocation == nil || len(claim.Status.ReservedFor) != 4 || claim.Status.Allocation.Devices.Results[0].Pool != "b" {
		t.Errorf("the claim: %v, %+v", err, claim)
	}
}
