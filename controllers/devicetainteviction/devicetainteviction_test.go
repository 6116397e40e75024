package devicetainteviction_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/devicetainteviction"
)

const driver = "gpu.example.com"

func slice() *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "good"}, {Name: "bad"}}}}
}

func using(device string, tolerations ...resourcev1.DeviceToleration) func(p *corev1.Pod) *resourcev1.ResourceClaim {
	return func(p *corev1.Pod) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: p.Name}}
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Driver: driver, Pool: "p", Device: device, Tolerations: tolerations}}}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
		return c
	}
}

func tolerating(seconds *int64) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{Key: "broken", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: seconds}
}

func TestPodsLeaveTaintedDevices(t *testing.T) {
	s := ct.New(t, devicetainteviction.Descriptor()).Go()
	put := func(name string, claim func(*corev1.Pod) *resourcev1.ResourceClaim) {
		p := s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name}, Spec: corev1.PodSpec{NodeName: "n", ResourceClaims: []corev1.PodResourceClaim{{Name: "x", ResourceClaimName: &name}}}})
		s.Put(claim(p.(*corev1.Pod)))
	}
	put("bad", using("bad"))
	put("good", using("good"))
	put("patient", using("bad", tolerating(nil)))
	put("for-a-while", using("bad", tolerating(ptr.To(int64(60)))))
	s.Put(slice())
	s.Settled()
	names := func() []string {
		out := []string{}
		for _, p := range ct.All[*corev1.Pod](s) {
			if p.DeletionTimestamp == nil { // those that leave stay until their node has ended them
				out = append(out, p.Name)
			}
		}
		return out
	}
	if got := names(); len(got) != 4 {
		t.Fatalf("pods %v without a taint", got)
	}
	taint := func(effect resourcev1.DeviceTaintEffect) {
		ct.Change(s, slice(), func(sl *resourcev1.ResourceSlice) {
			sl.Spec.Devices[1].Taints = []resourcev1.DeviceTaint{{Key: "broken", Effect: effect, TimeAdded: ptr.To(metav1.NewTime(ct.Start))}}
		})
	}
	taint(resourcev1.DeviceTaintEffectNoSchedule)
	s.Settled()
	if got := names(); len(got) != 4 {
		t.Fatalf("pods %v after a taint that is about new ones", got)
	}
	taint(resourcev1.DeviceTaintEffectNoExecute)
	ct.UntilEqual(s, "the intolerant pod goes", []string{"for-a-while", "good", "patient"}, names)
	s.Settled()
	s.Clock.Step(59 * time.Second)
	s.Settled()
	if got := names(); len(got) != 3 {
		t.Fatalf("pods %v before the toleration ended", got)
	}
	s.Clock.Step(2 * time.Second)
	ct.UntilEqual(s, "the toleration has ended", []string{"good", "patient"}, names)
}
