package dra

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/scheduler/framework"
)

// desk is the plugin alone over nodes n1 and n2, an API server and a clock.
type desk struct {
	*testing.T
	*plugin
	api     *fake.Transport
	clock   *testingclock.FakeClock
	nodes   *framework.Nodes
	profile *framework.Profile
	freed   int
}

func newDesk(t *testing.T, slices ...*resourcev1.ResourceSlice) *desk {
	t.Helper()
	d := &desk{T: t, clock: testingclock.NewFakeClock(time.Unix(1000, 0)), nodes: framework.NewNodes()}
	d.api = fake.New(d.clock)
	b := NewBook(Config{Transport: d.api, Clock: d.clock, Go: func(f func()) { f() }, Freed: func() { d.freed++ }})
	b.SetClass("any", class("any"))
	for _, s := range slices {
		b.SetSlice(s.Name, s)
	}
	made, err := b.Factory(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.plugin = made.(*plugin)
	for _, name := range []string{"n1", "n2"} {
		d.nodes.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": name}}})
	}
	d.profile, err = framework.NewProfile("test", framework.Set{PreFilter: []framework.PreFilterPlugin{d.plugin}, Filter: []framework.FilterPlugin{d.plugin}, PreScore: []framework.PreScorePlugin{d.plugin},
		Score: []framework.WeightedScore{{ScorePlugin: d.plugin, Weight: 1}}}, d.nodes, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// claim puts a claim into the API and the book.
func (d *desk) claim(c *resourcev1.ResourceClaim, name string) *resourcev1.ResourceClaim {
	c.Name, c.UID = name, types.UID("claim-"+name)
	made := d.api.MustCreate(c).(*resourcev1.ResourceClaim)
	d.book.SetClaim(nil, made)
	return made
}

func (d *desk) stored(name string) *resourcev1.ResourceClaim {
	d.Helper()
	c, err := client.Of[*resourcev1.ResourceClaim](d.api).Get(context.Background(), "default", name)
	if err != nil {
		d.Fatal(err)
	}
	return c
}

func (d *desk) cycle(name string, claims ...string) *framework.Cycle {
	d.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	for _, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
	}
	p, err := framework.NewPod(pod, d.nodes)
	if err != nil {
		d.Fatal(err)
	}
	return d.profile.Begin(p)
}

// decide answers the node that a pod gets, or why it gets none.
func (d *desk) decide(c *framework.Cycle) string {
	d.Helper()
	got, why, err := d.profile.Decide(c)
	switch {
	case err != nil:
		return err.Error()
	case got == nil:
		return why.Message()
	}
	return got.Node
}

func (d *desk) place(c *framework.Cycle) {
	d.Helper()
	if s := d.Reserve(c, d.decide(c)); !s.OK() {
		d.Fatal(s.Message())
	}
}

func TestNoDeviceGoesToTwoPods(t *testing.T) {
	d := newDesk(t, slice("p", dev("a")))
	d.claim(claimOf(exact("r")), "one")
	d.claim(claimOf(exact("r")), "two")
	one, two := d.cycle("one", "one"), d.cycle("two", "two")
	if got := d.decide(two); got != "n1" {
		t.Fatalf("two: %s", got)
	}
	d.place(one) // decided on after two, but first to be set aside
	if s := d.Reserve(two, "n1"); !s.Rejected() {
		t.Errorf("two got the device too: %v", s)
	}
	if got, want := d.decide(d.cycle("two", "two")), "0/2 nodes are available: 1 cannot allocate all claims: no device matches request r, 1 cannot allocate all claims: too few free devices for request r."; got != want {
		t.Errorf("two: %s\nwant %s", got, want)
	}
	if got := d.decide(d.cycle("more", "one")); !strings.Contains(got, "resource claim default/one is in the process of being allocated") {
		t.Errorf("another pod of the claim: %s", got)
	}
	if s := d.PreBind(context.Background(), one, "n1"); !s.OK() {
		t.Fatal(s.Message())
	}
	if got := d.decide(d.cycle("two", "two")); got == "n1" {
		t.Error("the device is free again once it is written down")
	}
	before := d.stored("one")
	d.book.SetClaim(before, before) // the watch brings it
	d.Unreserve(one, "n1")          // the pod could not be bound
	if c := d.stored("one"); len(c.Status.ReservedFor) != 0 || c.Status.Allocation == nil {
		t.Errorf("after the pod could not be bound: %+v", c.Status)
	}
	if got := d.decide(d.cycle("two", "two")); got == "n1" {
		t.Error("two got a device that claim one still has")
	}
}

func TestSetAsideIsGivenBack(t *testing.T) {
	d := newDesk(t, slice("p", dev("a")))
	d.claim(claimOf(exact("r")), "one")
	d.claim(claimOf(exact("r")), "two")
	c := d.cycle("one", "one")
	d.place(c)
	d.Unreserve(c, "n1")
	if d.freed != 1 {
		t.Errorf("told %d times that a device is free, want once", d.freed)
	}
	if got := d.decide(d.cycle("two", "two")); got != "n1" {
		t.Errorf("two: %s", got)
	}
}

func TestPreBindWritesTheClaim(t *testing.T) {
	d := newDesk(t, slice("p", dev("a")))
	d.claim(claimOf(exact("r")), "one")
	first, second := d.cycle("first", "one"), d.cycle("second", "one")
	d.place(first)
	if s := d.PreBind(context.Background(), first, "n1"); !s.OK() {
		t.Fatal(s.Message())
	}
	if got := d.decide(second); got != "n1" {
		t.Fatalf("the second pod of the claim: %s", got)
	}
	if s := d.PreBind(context.Background(), second, "n1"); !s.OK() {
		t.Fatal(s.Message())
	}
	c := d.stored("one")
	want := []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "first", UID: "first"}, {Resource: "pods", Name: "second", UID: "second"}}
	if diff := cmp.Diff(want, c.Status.ReservedFor); diff != "" {
		t.Errorf("reservedFor (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{resourcev1.Finalizer}, c.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if a := c.Status.Allocation; len(a.Devices.Results) != 1 || a.Devices.Results[0].Device != "a" || a.AllocationTimestamp == nil {
		t.Errorf("allocation %+v", a)
	}
}

// untilTimed waits until somebody waits for the clock.
func (d *desk) untilTimed() {
	d.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !d.clock.HasWaiters() {
		select {
		case <-tick.C:
		case <-deadline:
			d.Fatal("nobody waits for the clock")
		}
	}
}

func TestPodIsBoundOnceItsDevicesAreReady(t *testing.T) {
	conditional := func(d *resourcev1.Device) {
		d.BindingConditions, d.BindingFailureConditions = []string{"Attached"}, []string{"Broken"}
	}
	for name, c := range map[string]struct {
		condition string
		wait      time.Duration
		want      string
	}{
		"ready":    {condition: "Attached"},
		"broken":   {condition: "Broken", want: "device binding failed: claim=one"},
		"too late": {wait: bindingTimeout, want: "device binding timeout: claim=one"},
	} {
		d := newDesk(t, slice("p", dev("a", conditional)))
		d.claim(claimOf(exact("r")), "one")
		cycle := d.cycle("pod", "one")
		d.place(cycle)
		done := make(chan *framework.Status, 1)
		go func() { done <- d.PreBind(context.Background(), cycle, "n1") }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := d.api.Wait(ctx, func() bool { return d.stored("one").Status.Allocation != nil }); err != nil {
			t.Fatal(err)
		}
		cancel()
		select {
		case s := <-done:
			t.Fatalf("%s: it did not wait: %v", name, s.Message())
		default:
		}
		if c.condition != "" {
			claim := d.stored("one").DeepCopy()
			claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: driverName, Pool: "p", Device: "a", Conditions: []metav1.Condition{{Type: c.condition, Status: metav1.ConditionTrue}}}}
			claim, err := client.Of[*resourcev1.ResourceClaim](d.api).UpdateStatus(context.Background(), claim)
			if err != nil {
				t.Fatal(err)
			}
			d.book.SetClaim(claim, claim)
		}
		if c.wait > 0 {
			d.untilTimed()
			d.clock.Step(c.wait)
		}
		select {
		case s := <-done:
			if !strings.Contains(s.Message(), c.want) || s.OK() != (c.want == "") {
				t.Errorf("%s: %q, want %q", name, s.Message(), c.want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it waits on", name)
		}
	}
}

// A claim that keeps its only pod on a node where it can't go gives its devices back.
func TestUnusableAllocationIsGivenBack(t *testing.T) {
	d := newDesk(t, slice("p", dev("a")))
	c := taken("p/a")
	c.Spec = claimOf(exact("r")).Spec
	c.Status.Allocation.NodeSelector = inZone("gone")
	d.claim(c, "one")
	cycle := d.cycle("pod", "one")
	got, why, _ := d.profile.Decide(cycle)
	if got != nil || why.Message() != "0/2 nodes are available: 2 resourceclaim not available on the node." {
		t.Fatalf("got %v, %v", got, why)
	}
	if _, _, s := d.PostFilter(cycle, why); !strings.Contains(s.Message(), "deallocation") {
		t.Errorf("status %q", s.Message())
	}
	if now := d.stored("one"); now.Status.Allocation != nil {
		t.Errorf("it is still %+v", now.Status)
	}
}

func TestMostWantedAlternativeDecidesTheNode(t *testing.T) {
	far := slice("q", dev("small", attr("kind", "small")))
	far.Spec.NodeName = ptr.To("n2")
	for _, large := range []string{"n1", "n2"} {
		near := slice("p", dev("x", attr("kind", "small")))
		near.Spec.NodeName = ptr.To("n1")
		better := slice("z", dev("large", attr("kind", "large")))
		better.Spec.NodeName = &large
		d := newDesk(t, near, far, better)
		d.claim(claimOf(first("r", exact("large", where(is("kind", "large"))), exact("small", where(is("kind", "small"))))), "one")
		if got := d.decide(d.cycle("pod", "one")); got != large {
			t.Errorf("got %s, the large device is on %s", got, large)
		}
	}
}

func TestPodWaitsForItsClaims(t *testing.T) {
	d := newDesk(t)
	pod := d.cycle("pod", "one").Pod
	if s := d.PreEnqueue(pod); s.OK() || s.Message() != `resourceclaim "one" not found` {
		t.Errorf("without its claim: %q", s.Message())
	}
	c := d.claim(claimOf(exact("r")), "one")
	if s := d.PreEnqueue(pod); !s.OK() {
		t.Errorf("with its claim: %q", s.Message())
	}
	if !d.Helps(pod, &framework.Event{Kind: framework.ResourceClaimChanged, Namespace: "default", Name: "one"}) || d.Helps(pod, &framework.Event{Kind: framework.ResourceClaimChanged, Namespace: "default", Name: "two"}) {
		t.Error("the pod is woken by the wrong claim")
	}
	d.book.SetClaim(c, nil)
	if d.PreEnqueue(pod).OK() {
		t.Error("the claim is gone and the pod is let go")
	}
}

func TestArguments(t *testing.T) {
	for args, want := range map[string]string{
		`{}`:                          "",
		`{"filterTimeout":"1s"}`:      "",
		`{"filterTimeout":"-1s"}`:     "filterTimeout: Invalid value",
		`{"bindingTimeout":"500ms"}`:  "must be at least 1 second",
		`{"something":1}`:             "unknown field",
		`{"kind":"NodeAffinityArgs"}`: "want kubescheduler.config.k8s.io/v1 DynamicResourcesArgs",
		`{"kind":"DynamicResourcesArgs","apiVersion":"kubescheduler.config.k8s.io/v1","bindingTimeout":"1m"}`: "",
	} {
		_, err := NewBook(Config{}).Factory([]byte(args), nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestExtendedResourcesBecomeRequests(t *testing.T) {
	asking := func(name string, n int64) corev1.Container {
		c := corev1.Container{Name: name}
		if n > 0 {
			c.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1"), "example.com/gpu": *resource.NewQuantity(n, resource.DecimalSI)}
		}
		return c
	}
	sidecar := asking("side", 1)
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{asking("init", 2), sidecar, asking("big", 5)}, Containers: []corev1.Container{asking("none", 0), asking("main", 3)}}}
	requests, mappings := requestsFor(pod, map[corev1.ResourceName]string{"example.com/gpu": "gpu"})
	var got []string
	for _, r := range requests {
		got = append(got, r.Name+" "+r.Exactly.DeviceClassName+" "+resource.NewQuantity(r.Exactly.Count, resource.DecimalSI).String())
	}
	// init needs 2 of what comes after it; big, which comes after the sidecar, has the 3 of main and needs 2 more.
	want := []string{"container-1-request-1 gpu 1", "container-2-request-1 gpu 2", "container-4-request-1 gpu 3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	by := map[string][]string{}
	for _, m := range mappings {
		by[m.ContainerName] = append(by[m.ContainerName], m.RequestName)
	}
	if diff := cmp.Diff(map[string][]string{"side": {"container-1-request-1"}, "main": {"container-4-request-1"}, "init": {"container-1-request-1", "container-4-request-1"},
		"big": {"container-4-request-1", "container-2-request-1"}}, by); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}
