package dra

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/framework"
)

// used is a claim that has devices and that pods use.
func used(name string, pods []string, devices ...string) *resourcev1.ResourceClaim {
	c := taken(devices...)
	c.Name, c.UID = name, ""
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p})
	}
	return c
}

// pinned puts the devices of a claim on a node.
func pinned(c *resourcev1.ResourceClaim, node string) *resourcev1.ResourceClaim {
	c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}
	return c
}

func ofClass(name string) func(*resourcev1.ExactDeviceRequest) {
	return func(e *resourcev1.ExactDeviceRequest) { e.DeviceClassName = name }
}

// lost makes a claim give its devices back.
func lost(names ...string) func(*desk) {
	return func(d *desk) {
		for _, name := range names {
			c, ok := d.book.Claim("default", name)
			if !ok {
				d.Fatalf("no claim %s", name)
			}
			d.book.SetClaim(c, nil)
		}
	}
}

func published(list ...*resourcev1.ResourceSlice) func(*desk) {
	return func(d *desk) {
		for _, s := range list {
			s.Spec.Pool.Generation++
			d.book.SetSlice(s.Name, s)
		}
	}
}

// asked puts another claim in the place of the pod's.
func asked(c *resourcev1.ResourceClaim) func(*desk) {
	return func(d *desk) {
		old, _ := d.book.Claim("default", "c")
		d.book.SetClaim(old, nil)
		c.Name, c.UID = "c", "another"
		d.book.SetClaim(nil, c)
	}
}

func TestSmallestChangeForDevices(t *testing.T) {
	two := slice("p", dev("a"), dev("b"))
	numa := slice("p", dev("a", attr("numa", "0")), dev("b", attr("numa", "1")))
	noSchedule := resourcev1.DeviceTaintEffectNoSchedule
	for name, c := range map[string]struct {
		slices []*resourcev1.ResourceSlice
		held   []*resourcev1.ResourceClaim
		claim  *resourcev1.ResourceClaim // "c", which the pod names; nil: there is none
		want   string
		follow func(*desk) // does what it says
	}{
		"no driver publishes anything": {nil, nil, claimOf(exact("gpu")),
			"a device of class any on node n1 for request gpu of claim c (no driver publishes devices there).", published(slice("p", dev("a")))},
		"a selector of the claim": {[]*resourcev1.ResourceSlice{two}, nil, claimOf(exact("gpu", where(`"model" in device.attributes["dra.example.com"]`))),
			`a device of class any on node n1 for request gpu of claim c (claim c, request gpu: selector #0 is false for all 2 devices there: "model" in device.attributes["dra.example.com"]).`,
			published(slice("q", dev("a", attr("model", "x"))))},
		"a selector of the class": {[]*resourcev1.ResourceSlice{slice("p", dev("a"))}, nil, claimOf(exact("gpu", ofClass("big"))),
			`a device of class big on node n1 for request gpu of claim c (class big: selector #0 is false for the only device there: "size" in device.attributes["dra.example.com"]).`,
			published(slice("q", dev("a", attr("size", "x"))))},
		"selectors that no one device meets": {[]*resourcev1.ResourceSlice{slice("p", dev("a", attr("x", "1")), dev("b", attr("y", "1")))}, nil,
			claimOf(exact("gpu", where(`"x" in device.attributes["dra.example.com"]`, `"y" in device.attributes["dra.example.com"]`))),
			"a device of class any on node n1 for request gpu of claim c (no device there meets all its selectors; each is false for some of the 2).",
			published(slice("q", dev("c", attr("x", "1"), attr("y", "1"))))},
		"too few that match": {[]*resourcev1.ResourceSlice{two}, nil, claimOf(exact("gpu", count(3))),
			"1 more device of class any on node n1 for request gpu of claim c (2 of 2 there match, and 3 are wanted).", published(slice("p", dev("a"), dev("b"), dev("c")))},
		"one claim has them": {[]*resourcev1.ResourceSlice{two}, []*resourcev1.ResourceClaim{used("x", []string{"web"}, "p/a", "p/b")}, claimOf(exact("gpu")),
			"the 2 devices on node n1 back that claim default/x has, which pod default/web uses; request gpu of claim c wants 1 of the 2 that match there, and 0 are free.", lost("x")},
		"of several claims the one whose end is enough": {[]*resourcev1.ResourceSlice{slice("p", dev("a"), dev("b", attr("model", "x")))},
			[]*resourcev1.ResourceClaim{used("idle", nil, "p/a"), used("other", []string{"u", "v", "w"}, "p/b")}, claimOf(exact("gpu", where(`"model" in device.attributes["dra.example.com"]`))),
			"the device on node n1 back that claim default/other has, which pods default/u, default/v, 1 more use; request gpu of claim c wants 1 of the 1 that match there, and 0 are free.", lost("other")},
		"two claims are in the way": {[]*resourcev1.ResourceSlice{slice("p", dev("a"), dev("b"), dev("c"))},
			[]*resourcev1.ResourceClaim{used("x", nil, "p/a"), used("y", []string{"v"}, "p/b"), used("z", []string{"w", "u"}, "p/c")}, claimOf(exact("gpu", count(2))),
			"the 2 devices on node n1 back that claims default/x, default/y have, which pod default/v uses; request gpu of claim c wants 2 of the 3 that match there, and 0 are free.",
			lost("x", "y")},
		"all devices": {[]*resourcev1.ResourceSlice{two}, []*resourcev1.ResourceClaim{used("x", nil, "p/a")}, claimOf(exact("gpu", all)),
			"the device on node n1 back that claim default/x has, which no pod uses; request gpu of claim c wants all of the 2 that match there, and 1 is free.", lost("x")},
		"a taint": {[]*resourcev1.ResourceSlice{slice("p", dev("a", taint("broken", noSchedule)))}, nil, claimOf(exact("gpu")),
			"a toleration of taint broken:NoSchedule of device dra.example.com/p/a in request gpu of claim c.", asked(claimOf(exact("gpu", tolerates("broken"))))},
		"a taint of what another has": {[]*resourcev1.ResourceSlice{slice("p", dev("a", taint("broken", noSchedule)))}, []*resourcev1.ResourceClaim{used("x", nil, "p/a")}, claimOf(exact("gpu")),
			"the device on node n1 back that claim default/x has, which no pod uses; request gpu of claim c wants 1 of the 1 that match there, and 0 are free and a toleration of taint broken:NoSchedule of device dra.example.com/p/a in request gpu of claim c.",
			func(d *desk) { lost("x")(d); asked(claimOf(exact("gpu", tolerates("broken"))))(d) }},
		"a constraint": {[]*resourcev1.ResourceSlice{numa}, nil, tied(claimOf(exact("gpu", count(2))), same("numa")),
			"enough free devices with one value of attribute dra.example.com/numa on node n1 for all requests of claim c, or no such constraint.", asked(claimOf(exact("gpu", count(2))))},
		"one constraint of two": {[]*resourcev1.ResourceSlice{numa}, nil, tied(claimOf(exact("gpu"), exact("nic")), distinct("numa", "gpu", "nic"), same("numa", "gpu", "nic")),
			"enough free devices with one value of attribute dra.example.com/numa on node n1 for requests gpu, nic of claim c, or no such constraint.",
			asked(tied(claimOf(exact("gpu"), exact("nic")), distinct("numa", "gpu", "nic")))},
		"capacity": {[]*resourcev1.ResourceSlice{slice("p", dev("a", room("memory", "40Gi")), dev("b", room("memory", "16Gi")))}, nil, claimOf(exact("gpu", wants("memory", "80Gi"))),
			"a device of class any on node n1 for request gpu of claim c (it asks for 80Gi of capacity memory, and no device there has more than 40Gi).",
			published(slice("q", dev("a", room("memory", "80Gi"))))},
		"a capacity that there is not": {[]*resourcev1.ResourceSlice{two}, nil, claimOf(exact("gpu", wants("memory", "80Gi"))),
			"a device of class any on node n1 for request gpu of claim c (no device there has capacity memory).", published(slice("q", dev("a", room("memory", "80Gi"))))},
		"counters": {parts(counterSlice("p", "set/slots=1"), slice("p", dev("a", draws("set", "slots", "2")))), nil, claimOf(exact("gpu")),
			"1 more device of class any on node n1 for request gpu of claim c (1 of 1 there match, and the counters of their pool leave room for 0).", nil},
		"each but not all": {parts(counterSlice("p", "set/slots=1"), slice("p", dev("a", draws("set", "slots", "1")), dev("b", draws("set", "slots", "1")))), nil, claimOf(exact("gpu"), exact("nic")),
			"more devices on node n1: there are enough for each, but not for all of request gpu of claim c, request nic of claim c.", nil},
		"a pool that is being published": {func() []*resourcev1.ResourceSlice { return parts(slice("p", dev("a")), slice("q"))[:1] }(), nil, claimOf(exact("gpu")),
			"resource pool dra.example.com/p complete, for request gpu of claim c: its driver is publishing it (1 of its slices are there).", nil},
		"a pool that is wrong": {[]*resourcev1.ResourceSlice{slice("p", dev("a"), dev("a"))}, nil, claimOf(exact("gpu")),
			"resource pool dra.example.com/p in order, for request gpu of claim c: its driver published duplicate device name a.", published(slice("p", dev("a"), dev("b")))},
		"the alternative that lacks least": {[]*resourcev1.ResourceSlice{two}, nil, claimOf(first("gpu", exact("large", count(8)), exact("small", count(3)))),
			"1 more device of class any on node n1 for request gpu/small of claim c (2 of 2 there match, and 3 are wanted).", published(slice("p", dev("a"), dev("b"), dev("c")))},
		"two requests": {nil, nil, claimOf(exact("gpu"), exact("nic", count(2))),
			"a device of class any on node n1 for request gpu of claim c (no driver publishes devices there) and 2 more devices of class any on node n1 for request nic of claim c (no driver publishes devices there).",
			published(slice("p", dev("a"), dev("b"), dev("c")))},
		"no class": {nil, nil, claimOf(exact("gpu", ofClass("unheard"))), "DeviceClass unheard created, which request gpu of claim c names.", func(d *desk) {
			d.book.SetClass("unheard", class("unheard"))
			published(slice("p", dev("a")))(d)
		}},
		"no claim": {[]*resourcev1.ResourceSlice{two}, nil, nil, "ResourceClaim c created.", func(d *desk) { d.claim(claimOf(exact("gpu")), "c") }},
		"a claim with too much in it": {[]*resourcev1.ResourceSlice{two}, nil, claimOf(exact("gpu", count(33))),
			"an end to this: claim c, request gpu: the claim asks for more than 32 devices, which is the most that one claim can get.", asked(claimOf(exact("gpu")))},
		"devices elsewhere": {[]*resourcev1.ResourceSlice{two}, nil, pinned(used("c", []string{"web"}, "p/a"), "gone"),
			"claim c given up by pod default/web, so that it may get devices on node n1 (it has them on node gone).", asked(claimOf(exact("gpu")))},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, c.slices...)
			d.nodes.RemoveNode("n2")
			d.book.SetClass("big", class("big", `"size" in device.attributes["dra.example.com"]`))
			for _, h := range c.held {
				d.claim(h, h.Name)
			}
			if c.claim != nil {
				d.claim(c.claim, "c")
			}
			tell := func() string {
				cycle := d.cycle("pod", "c")
				got, why, err := d.profile.Decide(cycle)
				if err != nil {
					t.Fatal(err)
				}
				if got != nil {
					return ""
				}
				return strings.TrimPrefix(explain.Message(explain.Pod(cycle, why)), "smallest change: ")
			}
			if diff := cmp.Diff([]string{c.want, c.want}, []string{tell(), tell()}); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if c.follow != nil {
				if c.follow(d); tell() != "" {
					t.Errorf("the change is made, and still: %s", tell())
				}
			}
		})
	}
}

// What a trial takes out of the ledger is back afterwards.
func TestExplanationChangesNothing(t *testing.T) {
	d := newDesk(t, slice("p", dev("a"), dev("b")))
	d.claim(used("x", nil, "p/a"), "x")
	d.claim(used("y", nil, "p/b"), "y")
	d.claim(claimOf(exact("gpu", count(2))), "c")
	cycle := d.cycle("pod", "c")
	_, why, _ := d.profile.Decide(cycle)
	before := d.decide(d.cycle("pod", "c"))
	if len(explain.Pod(cycle, why)) == 0 {
		t.Fatal("nothing is told")
	}
	for _, id := range []ID{{driverName, "p", "a"}, {driverName, "p", "b"}} {
		if !d.book.stock.taken(id) {
			t.Errorf("device %s is free", id)
		}
	}
	if now := d.decide(d.cycle("pod", "c")); now != before {
		t.Errorf("now %q, before %q", now, before)
	}
}

// Of what was decided on but is not written, too, it is told who has it.
func TestDevicesThatAreBeingGivenOut(t *testing.T) {
	d := newDesk(t, slice("p", dev("a")))
	d.nodes.RemoveNode("n2")
	d.claim(claimOf(exact("r")), "one")
	d.claim(claimOf(exact("r")), "two")
	d.place(d.cycle("first", "one"))
	cycle := d.cycle("second", "two")
	_, why, _ := d.profile.Decide(cycle)
	want := "smallest change: the device on node n1 back that claim default/one has, which no pod uses; request r of claim two wants 1 of the 1 that match there, and 0 are free."
	if diff := cmp.Diff(want, explain.Message(explain.Pod(cycle, why))); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestExtendedResourceIsNamed(t *testing.T) {
	d := newDesk(t)
	d.nodes.RemoveNode("n2")
	backing := class("gpu")
	backing.Spec.ExtendedResourceName = ptr.To("example.com/gpu")
	d.book.SetClass("gpu", backing)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "train",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}}}}}}
	p, err := framework.NewPod(pod, d.nodes)
	if err != nil {
		t.Fatal(err)
	}
	cycle := d.profile.Begin(p)
	_, why, _ := d.profile.Decide(cycle)
	want := "smallest change: 2 more devices of class gpu on node n1 for extended resource example.com/gpu of container train (no driver publishes devices there)."
	if diff := cmp.Diff(want, explain.Message(explain.Pod(cycle, why))); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}
