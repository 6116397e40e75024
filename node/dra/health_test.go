package dra_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/node/dra/fake"
)

func TestHealthOfDevices(t *testing.T) {
	b := newBench(t)
	b.m.Close()
	clock := testingclock.NewFakeClock(time.Now())
	b.clock = clock
	b.start()
	d := b.driver("gpu", fake.Options{})
	pod, other := newPod("p", "c"), newPod("other", "o")
	b.claim("c", []string{"gpu"}, pod)
	b.claim("o", []string{"gpu"}, other)
	b.prepare(pod, other)
	health := func(p *corev1.Pod) corev1.ResourceHealth {
		list := b.m.Health(p, &p.Spec.Containers[0])
		if len(list) != 1 || len(list[0].Resources) != 1 {
			t.Fatalf("health of pod %s: %v", p.Name, list)
		}
		return list[0].Resources[0]
	}
	is := func(status corev1.ResourceHealthStatus, message string) corev1.ResourceHealth {
		h := corev1.ResourceHealth{ResourceID: "example.com/dev=c", Health: status}
		if message != "" {
			h.Message = &message
		}
		return h
	}
	for _, step := range []struct {
		status  healthv1alpha1.HealthStatus
		message string
		want    corev1.ResourceHealth
	}{
		{healthv1alpha1.HealthStatus_UNHEALTHY, "too hot", is(corev1.ResourceHealthStatusUnhealthy, "too hot")},
		{healthv1alpha1.HealthStatus_HEALTHY, "", is(corev1.ResourceHealthStatusHealthy, "")},
		{healthv1alpha1.HealthStatus_UNKNOWN, strings.Repeat("x", 2000), is(corev1.ResourceHealthStatusUnknown, strings.Repeat("x", 1021)+"...")},
		{healthv1alpha1.HealthStatus_UNHEALTHY, "", is(corev1.ResourceHealthStatusUnhealthy, "")},
	} {
		d.Tell("n1", "c-dev", step.status, step.message)
		b.until("the news arrives", func() bool { return cmp.Equal(step.want, health(pod)) })
		b.until("the pod hears of it", func() bool { return cmp.Equal([]types.UID{pod.UID}, <-b.changed) })
		if got := health(other); got.Health != corev1.ResourceHealthStatusUnknown {
			t.Errorf("health of another pod's device: %+v", got)
		}
	}
	clock.Step(31 * time.Second)
	b.m.Sweep(b.ctx, func(types.UID) bool { return true })
	if diff := cmp.Diff(is(corev1.ResourceHealthStatusUnknown, ""), health(pod)); diff != "" {
		t.Errorf("health that was not repeated (-want +got):\n%s", diff)
	}
	b.unprepare(pod)
	if got := b.m.Health(pod, &pod.Spec.Containers[0]); got != nil {
		t.Errorf("health of devices that were given back: %v", got)
	}
}

// A driver's health follows it to its next instance.
func TestHealthAfterADriverRestarts(t *testing.T) {
	b := newBench(t)
	old := b.driver("gpu", fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	b.prepare(pod)
	b.m.Unregister(b.plugin(old))
	old.Stop()
	fresh := b.driver("gpu", fake.Options{Socket: "fresh.sock"})
	fresh.Tell("n1", "c-dev", healthv1alpha1.HealthStatus_UNHEALTHY, "worn out")
	b.until("the new instance is heard", func() bool {
		h := b.m.Health(pod, &pod.Spec.Containers[0])
		return len(h) == 1 && h[0].Resources[0].Health == corev1.ResourceHealthStatusUnhealthy
	})
}
