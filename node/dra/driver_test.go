package dra_test

import (
	"context"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/node/dra/fake"
	"github.com/yare-project/yare/node/pluginregistry"
)

func TestServicesOfEitherVersion(t *testing.T) {
	v1, v1beta1 := drav1.DRAPluginService, drav1beta1.DRAPluginService
	for name, versions := range map[string][]string{"v1": {v1}, "v1beta1": {v1beta1}, "both": {v1beta1, v1}, "with others": {"v9.DRAPlugin", v1beta1}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			d := b.driver("gpu", fake.Options{Versions: versions})
			pod := newPod("p", "c")
			b.claim("c", []string{"gpu"}, pod)
			b.prepare(pod)
			if diff := cmp.Diff([]string{"example.com/dev=c"}, b.devices(pod)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			b.unprepare(pod)
			calls(t, d, "prepare default/c", "unprepare default/c")
		})
	}
	b := newBench(t)
	for _, versions := range [][]string{{}, {"v9.DRAPlugin"}} {
		if err := b.m.Register(pluginregistry.Plugin{Name: "gpu", Endpoint: b.dir + "/x.sock", Versions: versions}); err == nil {
			t.Errorf("a driver with %v is registered", versions)
		}
	}
}

func TestDriverRestartsBetweenPreparingAndUndoing(t *testing.T) {
	b := newBench(t)
	old := b.driver("gpu", fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	b.prepare(pod)
	gone := b.plugin(old)
	old.Stop()
	b.m.Unregister(gone)
	says(t, b.m.Unprepare(b.ctx, pod.UID), "DRA driver gpu is not registered")
	if got := b.devices(pod); len(got) != 1 {
		t.Errorf("devices while the driver is away: %v", got)
	}
	fresh := b.driver("gpu", fake.Options{})
	b.unprepare(pod)
	calls(t, old, "prepare default/c")
	calls(t, fresh, "unprepare default/c")
}

// A rolling update: the new instance registers by another socket before the old one goes.
func TestNewestInstanceOfADriverIsAsked(t *testing.T) {
	b := newBench(t)
	old := b.driver("gpu", fake.Options{})
	one, two := newPod("one", "a"), newPod("two", "b")
	b.claim("a", []string{"gpu"}, one)
	b.claim("b", []string{"gpu"}, two)
	b.prepare(one)
	fresh := b.driver("gpu", fake.Options{Socket: "fresh.sock"})
	b.prepare(two)
	b.m.Unregister(b.plugin(old))
	b.unprepare(one)
	calls(t, old, "prepare default/a")
	calls(t, fresh, "prepare default/b", "unprepare default/a")
	b.m.Unregister(b.plugin(old)) // once more: nothing happens
	b.m.Unregister(b.plugin(fresh))
	says(t, b.m.Unprepare(b.ctx, two.UID), "DRA driver gpu is not registered")
}

// A driver that dies in the middle of a call ends it at once.
func TestDriverDiesWhileItIsAsked(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	d.Hang()
	wait, _ := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, pod) })
	b.await(d, "prepare default/c")
	d.Stop()
	if err := wait(); err == nil {
		t.Error("a call to a driver that died succeeded")
	}
	b.m.Unregister(b.plugin(d))
	b.driver("gpu", fake.Options{})
	b.prepare(pod)
}

func TestDriversRegisterBySocket(t *testing.T) {
	b := newBench(t)
	registry := pluginregistry.New(pluginregistry.Config{Dirs: []string{b.dir}, Handlers: map[string]pluginregistry.Handler{registerapi.DRAPlugin: b.m}})
	ended, stop := b.behind(registry.Run)
	d, err := fake.Start(b.dir, "gpu", oneEach)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	if s := <-d.Registered(); !s.PluginRegistered {
		t.Fatalf("not registered: %s", s.Error)
	}
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	b.prepare(pod)
	d.Stop()
	again, err := fake.Start(b.dir, "gpu", oneEach)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Stop)
	<-again.Registered()
	b.until("the new one is asked", func() bool { return b.m.Unprepare(b.ctx, pod.UID) == nil })
	calls(t, again, "unprepare default/c")
	stop()
	if err := ended(); err != nil {
		t.Error(err)
	}
}

func TestSlicesOfADriverThatStaysAwayGo(t *testing.T) {
	b := newBench(t)
	b.m.Close()
	clock := testingclock.NewFakeClock(time.Now())
	b.clock = clock
	b.start()
	slice := func(name, driver, node string) {
		b.api.MustCreate(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node}})
	}
	slice("gone", "gpu", "n1")
	slice("elsewhere", "gpu", "n2")
	slice("other", "nic", "n1")
	left := func() string {
		list, err := client.Of[*resourcev1.ResourceSlice](b.api).List(b.ctx, "", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for _, s := range list {
			names += s.Name + " "
		}
		return names
	}
	sweep := func(step time.Duration) {
		clock.Step(step)
		b.m.Sweep(b.ctx, func(types.UID) bool { return true })
	}
	d := b.driver("gpu", fake.Options{Silent: true})
	b.m.Unregister(b.plugin(d))
	sweep(29 * time.Second)
	b.register(d) // it is back in time
	sweep(time.Minute)
	b.m.Unregister(b.plugin(d))
	sweep(29 * time.Second)
	if got := left(); got != "elsewhere gone other " {
		t.Fatalf("left while the driver may come back: %s", got)
	}
	sweep(time.Second)
	if got := left(); got != "elsewhere other " {
		t.Errorf("left after half a minute: %s", got)
	}
}
