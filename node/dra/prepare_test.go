package dra_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/node/dra"
	"github.com/yare-project/yare/node/dra/fake"
)

func TestEachDriverIsAskedOnceAboutAllItsClaims(t *testing.T) {
	b := newBench(t)
	gpu, nic := b.driver("gpu", fake.Options{}), b.driver("nic", fake.Options{})
	pod := newPod("p", "one", "two", "both")
	b.claim("one", []string{"gpu"}, pod)
	b.claim("two", []string{"gpu"}, pod)
	b.claim("both", []string{"nic", "gpu"}, pod)
	b.prepare(pod, pod)
	calls(t, gpu, "prepare default/one", "prepare default/two", "prepare default/both")
	calls(t, nic, "prepare default/both")
	if diff := cmp.Diff([]string{"example.com/dev=one", "example.com/dev=two", "example.com/dev=both"}, b.devices(pod)); diff != "" {
		t.Errorf("CDI devices (-want +got):\n%s", diff)
	}
	b.unprepare(pod, pod)
	calls(t, nic, "prepare default/both", "unprepare default/both")
	if got := gpu.Prepared(); len(got) > 0 {
		t.Errorf("still prepared: %v", got)
	}
	if _, err := b.m.Devices(pod, &pod.Spec.Containers[0]); err == nil {
		t.Error("a container gets devices that are undone")
	}
}

func TestOneOfSeveralClaimsFails(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	pod := newPod("p", "good", "bad")
	b.claim("good", []string{"gpu"}, pod)
	b.claim("bad", []string{"gpu"}, pod)
	d.FailClaim("bad", "out of channels")
	says(t, b.m.Prepare(b.ctx, pod), "NodePrepareResources failed for ResourceClaim bad: out of channels")
	d.FailClaim("bad", "")
	b.prepare(pod)
	calls(t, d, "prepare default/good", "prepare default/bad", "prepare default/bad") // what is prepared is not asked for again
	d.FailClaim("bad", "busy")
	says(t, b.m.Unprepare(b.ctx, pod.UID), "NodeUnprepareResources failed for ResourceClaim bad: busy")
	if diff := cmp.Diff([]string{"uid-bad"}, d.Prepared()); diff != "" {
		t.Errorf("prepared (-want +got):\n%s", diff)
	}
	if !b.m.Holds(pod.UID) {
		t.Error("the pod holds nothing while a claim is still prepared")
	}
	d.FailClaim("bad", "")
	b.unprepare(pod)
	if b.m.Holds(pod.UID) || len(d.Prepared()) > 0 {
		t.Errorf("held: %v, prepared: %v", b.m.Holds(pod.UID), d.Prepared())
	}
}

// A pod that could get only some of its claims gives back those that were prepared.
func TestHalfPreparedPodGivesBackAll(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	pod := newPod("p", "good", "bad")
	b.claim("good", []string{"gpu"}, pod)
	b.claim("bad", []string{"gpu", "absent"}, pod)
	says(t, b.m.Prepare(b.ctx, pod), "DRA driver absent is not registered")
	if diff := cmp.Diff([]string{"uid-bad", "uid-good"}, d.Prepared()); diff != "" {
		t.Errorf("prepared (-want +got):\n%s", diff)
	}
	says(t, b.m.Unprepare(b.ctx, pod.UID), "DRA driver absent is not registered")
	if got := d.Prepared(); len(got) > 0 {
		t.Errorf("prepared: %v", got)
	}
	b.driver("absent", fake.Options{})
	b.unprepare(pod)
	if b.m.Holds(pod.UID) {
		t.Error("the pod still holds something")
	}
}

func TestClaimsThatAPodMayNotUse(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	other := newPod("other")
	b.claim("theirs", []string{"gpu"}, other)
	unallocated := b.claim("unallocated", nil)
	unallocated.Name, unallocated.UID, unallocated.Status.Allocation = "waits", "uid-waits", nil
	b.api.MustCreate(unallocated)
	templated := newPod("templated")
	templated.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: ptr("t")}}
	stolen := newPod("stolen")
	stolen.Spec.ResourceClaims = templated.Spec.ResourceClaims
	stolen.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: ptr("theirs")}}
	for _, c := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{newPod("p", "theirs"), "pod p(uid-p) is not allowed to use ResourceClaim theirs(uid-theirs)"},
		{newPod("p", "waits"), "ResourceClaim waits has no devices yet"},
		{newPod("p", "missing"), `failed to fetch ResourceClaim missing referenced by pod p: resourceclaims.resource.k8s.io "missing" not found`},
		{templated, `pod "default/templated": ResourceClaim not created yet`},
		{stolen, "ResourceClaim default/theirs was not created for Pod default/stolen (Pod is not owner)"},
	} {
		says(t, b.m.Prepare(b.ctx, c.pod), c.want)
		if b.m.Holds(c.pod.UID) {
			t.Errorf("pod %s holds a claim after %q", c.pod.Name, c.want)
		}
	}
	if got := d.Calls(); len(got) > 0 {
		t.Errorf("the driver was asked %v", got)
	}
}

func TestSharedClaimIsPreparedOnceAndUndoneLast(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	one, two := newPod("one", "shared"), newPod("two", "shared")
	b.claim("shared", []string{"gpu"}, one, two)
	b.prepare(one, two)
	calls(t, d, "prepare default/shared")
	b.unprepare(one)
	calls(t, d, "prepare default/shared")
	if got := b.devices(two); len(got) != 1 {
		t.Errorf("devices of the pod that stays: %v", got)
	}
	b.unprepare(two)
	calls(t, d, "prepare default/shared", "unprepare default/shared")
}

// A claim that its last pod leaves while another comes: nothing that one pod has is undone under it.
func TestSharedClaimChangesHands(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	old, fresh := newPod("old", "shared"), newPod("fresh", "shared")
	b.claim("shared", []string{"gpu"}, old, fresh)
	b.prepare(old)
	release := d.Hang()
	leaves, _ := b.behind(func(ctx context.Context) error { return b.m.Unprepare(ctx, old.UID) })
	b.await(d, "unprepare default/shared")
	comes, _ := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, fresh) })
	b.until("the fresh pod is put down for the claim", func() bool { return b.m.Holds(fresh.UID) })
	release()
	if err := leaves(); err != nil {
		t.Fatal(err)
	}
	if err := comes(); err != nil {
		t.Fatal(err)
	}
	calls(t, d, "prepare default/shared", "unprepare default/shared", "prepare default/shared")
	if b.m.Holds(old.UID) || !b.m.Holds(fresh.UID) || len(d.Prepared()) != 1 {
		t.Errorf("old holds %v, fresh holds %v, prepared %v", b.m.Holds(old.UID), b.m.Holds(fresh.UID), d.Prepared())
	}
}

func TestDevicesOfContainers(t *testing.T) {
	b := newBench(t)
	b.giving("gpu", twoRequests, fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	extended := b.claim("extended", []string{"gpu"}, pod)
	extended.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: pod.UID, Controller: ptr(true)}}
	extended.Name, extended.UID = "made", "uid-made"
	b.api.MustCreate(extended)
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "made", RequestMappings: []corev1.ContainerExtendedResourceRequest{
		{ContainerName: "plain", ResourceName: "example.com/gpu", RequestName: "second"}}}
	container := func(name string, claims ...corev1.ResourceClaim) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Claims: claims}}
	}
	pod.Spec.Containers = []corev1.Container{container("all", corev1.ResourceClaim{Name: "c"}), container("first", corev1.ResourceClaim{Name: "c", Request: "first"}),
		container("twice", corev1.ResourceClaim{Name: "c", Request: "second"}, corev1.ResourceClaim{Name: "c"}), container("plain"), container("none")}
	b.prepare(pod)
	got := map[string][]dra.Use{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		uses, err := b.m.Uses(pod, c)
		if err != nil {
			t.Fatal(err)
		}
		got[c.Name] = uses
	}
	device := func(name, claim string, share *string) dra.Device {
		return dra.Device{Driver: "gpu", Pool: "n1", Name: name, Share: share, CDI: []string{"example.com/gpu=" + claim + "-" + name}}
	}
	use := func(claim string, devices ...dra.Device) []dra.Use {
		return []dra.Use{{Namespace: "default", Claim: claim, Devices: devices}}
	}
	d0, d1 := device("d0", "c", nil), device("d1", "c", ptr("s1"))
	want := map[string][]dra.Use{"all": use("c", d0, d1), "first": use("c", d0), "twice": use("c", d1, d0), "plain": use("made", device("d1", "made", ptr("s1"))), "none": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices of containers (-want +got):\n%s", diff)
	}
	pod.Spec.Containers[4].Resources.Claims = []corev1.ResourceClaim{{Name: "unheard"}}
	_, err := b.m.Uses(pod, &pod.Spec.Containers[4])
	says(t, err, `container none: the pod has no claim "unheard"`)
}

// A claim of a request with alternatives: the driver names the alternative, the container the request.
func TestAlternativeOfARequest(t *testing.T) {
	b := newBench(t)
	b.giving("gpu", alternative, fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	pod.Spec.Containers[0].Resources.Claims[0].Request = "size"
	b.prepare(pod)
	if diff := cmp.Diff([]string{"example.com/gpu=small"}, b.devices(pod)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestPodWithoutClaimsCostsNothing(t *testing.T) {
	b := newBench(t)
	b.prepare(newPod("p"))
	b.unprepare(newPod("p"))
	if len(b.api.Actions(true)) > 0 {
		t.Errorf("the API was asked %v", b.api.Actions(true))
	}
}

func twoRequests(c *drav1.Claim) []*drav1.Device {
	device := func(name, request string, share *string) *drav1.Device {
		return &drav1.Device{PoolName: "n1", DeviceName: name, RequestNames: []string{request}, CdiDeviceIds: []string{"example.com/gpu=" + c.Name + "-" + name}, ShareId: share}
	}
	return []*drav1.Device{device("d0", "first", nil), device("d1", "second", ptr("s1"))}
}

func alternative(*drav1.Claim) []*drav1.Device {
	return []*drav1.Device{{PoolName: "n1", DeviceName: "d0", RequestNames: []string{"size/small"}, CdiDeviceIds: []string{"example.com/gpu=small"}},
		{PoolName: "n1", DeviceName: "d1", RequestNames: []string{"other"}, CdiDeviceIds: []string{"example.com/gpu=other"}}}
}

func ptr[T any](v T) *T { return &v }
