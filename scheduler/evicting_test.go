package scheduler

import (
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// A pod for whose sake others are being told to leave must not look for more victims because something else happens meanwhile.
func TestPodWaitsUntilItsVictimsAreToldToLeave(t *testing.T) {
	d := newDesk(t)
	e := d.node("4")
	it := d.add("high", 9)
	if got := d.pops(); got != "high" {
		t.Fatalf("ready are %q", got)
	}
	s := &Scheduler{queue: d.queue, config: Config{Clock: clocktesting.NewFakeClock(d.now)}}
	d.queue.refuse(it, []string{plugins.NodeResourcesFit}, d.now)
	s.evicting("high", 2)
	d.queue.wake(e, d.now)
	s.evicting("high", -1)
	if got := d.pops(); got != "" {
		t.Errorf("%q is tried while victims are being told", got)
	}
	s.evicting("high", -1)
	if got := d.pops(); got != "high" {
		t.Errorf("ready are %q, though a node came up meanwhile and all victims are told", got)
	}
}

// A pod that waits for room which others leave is woken where it has room by then, and not by every pod that leaves anywhere.
func TestNominatedPodIsWokenOnceItHasRoom(t *testing.T) {
	d := newDesk(t)
	d.node("1")
	slot, _ := d.nodes.Slot("n")
	high, low, other := d.pod("high", 9), d.pod("low", 1), d.pod("other", 1)
	d.nodes.AddPod(low, "n")
	d.nodes.AddPod(other, "n")
	d.nodes.Nominate(high, "n")
	left := func(p *framework.Pod) bool {
		d.nodes.RemovePod(p)
		return d.profile.Helps(high, []string{plugins.NodeResourcesFit}, &framework.Event{Kind: framework.PodRemoved, Pod: p, Slot: slot})
	}
	if left(other) {
		t.Error("it is woken though the node is still full")
	}
	if !left(low) {
		t.Error("it is not woken though the node has room")
	}
}
