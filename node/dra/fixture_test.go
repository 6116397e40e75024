package dra_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"github.com/google/go-cmp/cmp"

	apifake "github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/node/dra"
	"github.com/yare-project/yare/node/dra/fake"
	"github.com/yare-project/yare/node/pluginregistry"
)

// patience bounds waits for what takes milliseconds.
const patience = 20 * time.Second

// bench is a Manager with an API and drivers on real sockets.
type bench struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	file    string
	api     *apifake.Transport
	m       *dra.Manager
	clock   clock.WithTicker
	timeout time.Duration
	changed chan []types.UID
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	dir := t.TempDir()
	b := &bench{t: t, ctx: ctx, dir: dir, file: filepath.Join(dir, "agent", "devices.json"), api: apifake.New(nil), changed: make(chan []types.UID, 64)}
	b.start()
	t.Cleanup(func() { b.m.Close() })
	return b
}

// start makes the manager, as an agent does that begins.
func (b *bench) start() {
	b.t.Helper()
	m, err := dra.New(dra.Config{Node: "n1", File: b.file, Transport: b.api, Clock: b.clock, Timeout: b.timeout, Log: slog.New(slog.DiscardHandler), Changed: func(pods []types.UID) {
		select {
		case b.changed <- pods:
		default:
		}
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.m = m
}

// restart ends the manager and makes another one from its file; drivers register again.
func (b *bench) restart(drivers ...*fake.Driver) {
	b.t.Helper()
	b.m.Close()
	b.start()
	for _, d := range drivers {
		b.register(d)
	}
}

// oneEach gives each claim one device "CLAIM-dev".
func oneEach(c *drav1.Claim) []*drav1.Device {
	return []*drav1.Device{{PoolName: "n1", DeviceName: c.Name + "-dev", CdiDeviceIds: []string{"example.com/dev=" + c.Name}}}
}

// driver starts a driver that gives each claim one device, and registers it.
func (b *bench) driver(name string, o fake.Options) *fake.Driver {
	b.t.Helper()
	return b.giving(name, oneEach, o)
}

// giving is driver with other devices.
func (b *bench) giving(name string, devices func(*drav1.Claim) []*drav1.Device, o fake.Options) *fake.Driver {
	b.t.Helper()
	d, err := fake.StartWith(b.dir, name, devices, o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(d.Stop)
	b.register(d)
	return d
}

func (b *bench) register(d *fake.Driver) {
	b.t.Helper()
	if err := b.m.Register(b.plugin(d)); err != nil {
		b.t.Fatal(err)
	}
}

// plugin is how a driver says that it is reached.
func (b *bench) plugin(d *fake.Driver) pluginregistry.Plugin {
	b.t.Helper()
	info, err := d.GetInfo(b.ctx, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return pluginregistry.Plugin{Kind: registerapi.DRAPlugin, Name: info.Name, Endpoint: d.Socket(), Versions: info.SupportedVersions, Socket: d.Socket()}
}

// claim puts a claim into the API that has a device of each driver and is reserved for pods.
func (b *bench) claim(name string, drivers []string, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	b.t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: d, Pool: "n1", Device: name + "-dev"})
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	b.api.MustCreate(c)
	return c
}

// newPod is a pod with one container that uses all of its claims.
func newPod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: c})
	}
	return p
}

func (b *bench) prepare(pods ...*corev1.Pod) {
	b.t.Helper()
	for _, p := range pods {
		if err := b.m.Prepare(b.ctx, p); err != nil {
			b.t.Fatalf("preparing for %s: %v", p.Name, err)
		}
	}
}

func (b *bench) unprepare(pods ...*corev1.Pod) {
	b.t.Helper()
	for _, p := range pods {
		if err := b.m.Unprepare(b.ctx, p.UID); err != nil {
			b.t.Fatalf("undoing for %s: %v", p.Name, err)
		}
	}
}

// behind does something beside the test; the function that it returns waits for its error.
func (b *bench) behind(do func(context.Context) error) (wait func() error, cancel func()) {
	ctx, stop := context.WithCancel(b.ctx)
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = do(ctx)
	}()
	b.t.Cleanup(func() {
		stop()
		<-done
	})
	return func() error {
		<-done
		return err
	}, stop
}

func (b *bench) await(d *fake.Driver, call string) {
	b.t.Helper()
	if err := d.Await(b.ctx, call); err != nil {
		b.t.Fatal(err)
	}
}

// until polls for what no channel tells.
func (b *bench) until(what string, cond func() bool) {
	b.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func (b *bench) devices(p *corev1.Pod) []string {
	b.t.Helper()
	got, err := b.m.Devices(p, &p.Spec.Containers[0])
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func calls(t *testing.T, d *fake.Driver, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.Calls()); diff != "" {
		t.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
}

func says(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("no error, want %q", want)
	case err.Error() != want:
		t.Errorf("error %q, want %q", err, want)
	}
}
