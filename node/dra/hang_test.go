package dra_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/node/dra/fake"
)

func TestHungDriverDelaysOnlyWhatNeedsIt(t *testing.T) {
	b := newBench(t)
	hung, well := b.driver("hung", fake.Options{}), b.driver("well", fake.Options{})
	release := hung.Hang()
	stuck, free, both := newPod("stuck", "a"), newPod("free", "b"), newPod("both", "c", "d")
	b.claim("a", []string{"hung"}, stuck)
	b.claim("b", []string{"well"}, free)
	b.claim("c", []string{"hung"}, both)
	b.claim("d", []string{"well"}, both)
	waitStuck, _ := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, stuck) })
	waitBoth, _ := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, both) })
	b.await(hung, "prepare default/a")
	b.await(hung, "prepare default/c") // another claim of the same driver is not behind the first
	b.await(well, "prepare default/d") // nor are a pod's other drivers
	b.prepare(free)
	b.unprepare(free)
	shares := newPod("shares", "d2")
	b.claim("d2", []string{"well"}, both, shares)
	b.prepare(shares)
	release()
	if err := errors.Join(waitStuck(), waitBoth()); err != nil {
		t.Error(err)
	}
	calls(t, well, "prepare default/d", "prepare default/b", "unprepare default/b", "prepare default/d2")
}

// A claim is done as soon as its own drivers are, whatever its pod's other claims wait for.
func TestClaimIsFreeBeforeItsPodIsReady(t *testing.T) {
	b := newBench(t)
	hung, well := b.driver("hung", fake.Options{}), b.driver("well", fake.Options{})
	release := hung.Hang()
	defer release()
	both, other := newPod("both", "slow", "shared"), newPod("other", "shared")
	b.claim("slow", []string{"hung"}, both)
	b.claim("shared", []string{"well"}, both, other)
	_, cancel := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, both) })
	defer cancel()
	b.await(hung, "prepare default/slow")
	b.prepare(other)
	calls(t, well, "prepare default/shared")
}

func TestDriverThatNeverAnswersIsNamed(t *testing.T) {
	b := newBench(t)
	b.m.Close()
	b.timeout = 20 * time.Millisecond
	b.start()
	d := b.driver("gpu", fake.Options{})
	release := d.Hang()
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	says(t, b.m.Prepare(b.ctx, pod), "NodePrepareResources: driver gpu did not answer within 20ms")
	says(t, b.m.Unprepare(b.ctx, pod.UID), "NodeUnprepareResources: driver gpu did not answer within 20ms")
	release()
	b.unprepare(pod)
}

func TestCallerThatGivesUpIsFreeAtOnce(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	release := d.Hang()
	asks, waits := newPod("asks", "c"), newPod("waits", "c")
	b.claim("c", []string{"gpu"}, asks, waits)
	asked, cancelAsk := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, asks) })
	b.await(d, "prepare default/c")
	waited, cancelWait := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, waits) })
	b.until("the second is put down", func() bool { return b.m.Holds(waits.UID) })
	cancelWait()
	if err := waited(); !errors.Is(err, context.Canceled) {
		t.Errorf("the pod that waited for its turn: %v", err)
	}
	cancelAsk()
	if asked() == nil {
		t.Error("a call that was given up succeeded")
	}
	release()
	b.prepare(waits)
	if got := d.Prepared(); len(got) != 1 {
		t.Errorf("prepared %v", got)
	}
}

func TestPodsThatWaitAreTold(t *testing.T) {
	b := newBench(t)
	b.m.Close()
	clock := testingclock.NewFakeClock(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	b.clock = clock
	b.start()
	hung := b.driver("hung", fake.Options{Silent: true})
	release := hung.Hang()
	first, second, other := newPod("first", "a", "b"), newPod("second", "b"), newPod("other")
	b.claim("a", []string{"hung"}, first)
	b.claim("b", []string{"hung"}, first, second)
	done, _ := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, first) })
	b.await(hung, "prepare default/b")
	doneToo, _ := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, second) })
	b.until("the second is put down", func() bool { return b.m.Holds(second.UID) })
	if got := b.m.Waits(first); got != "" {
		t.Errorf("told at once: %s", got)
	}
	b.until("somebody looks at the clock", clock.HasWaiters)
	clock.Step(3 * time.Second)
	want := "DRA driver hung has not answered NodePrepareResources for ResourceClaims a, b, which it was asked at 2026-05-01T12:00:00Z; the call ends after 45s"
	for _, pod := range []*corev1.Pod{first, second} {
		b.until("pod "+pod.Name+" is told", func() bool { return b.m.Waits(pod) == want })
	}
	if got := b.m.Waits(other); got != "" {
		t.Errorf("a pod without claims waits: %s", got)
	}
	pods := <-b.changed
	slices.Sort(pods)
	if diff := cmp.Diff([]types.UID{first.UID, second.UID}, pods); diff != "" {
		t.Errorf("pods that heard (-want +got):\n%s", diff)
	}
	release()
	if err := errors.Join(done(), doneToo()); err != nil {
		t.Fatal(err)
	}
	if got := b.m.Waits(first); got != "" {
		t.Errorf("told after the answer: %s", got)
	}
	if len(<-b.changed) != 2 {
		t.Error("the pods did not hear that the driver has answered")
	}
}

// What is left of pods that are gone is undone beside other things, and each thing once at a time.
func TestSweepDoesNotWaitForDrivers(t *testing.T) {
	b := newBench(t)
	hung, well := b.driver("hung", fake.Options{}), b.driver("well", fake.Options{})
	a, c := newPod("a", "a"), newPod("c", "c")
	b.claim("a", []string{"hung"}, a)
	b.claim("c", []string{"well"}, c)
	b.prepare(a, c)
	release := hung.Hang()
	gone := func(types.UID) bool { return false }
	b.m.Sweep(b.ctx, gone)
	b.await(well, "unprepare default/c")
	b.await(hung, "unprepare default/a")
	b.m.Sweep(b.ctx, gone)
	b.until("the other is undone", func() bool { return !b.m.Holds(c.UID) })
	release()
	b.until("both are undone", func() bool { return !b.m.Holds(a.UID) })
	calls(t, hung, "prepare default/a", "unprepare default/a")
	b.m.Sweep(b.ctx, gone)
	b.m.Sweep(b.ctx, func(types.UID) bool { return true })
	calls(t, well, "prepare default/c", "unprepare default/c")
}

// Many pods come and go at once over few shared claims: at the end nothing is prepared, and no claim was undone while a pod had it.
func TestManyPodsAtOnce(t *testing.T) {
	b := newBench(t)
	x, y := b.driver("x", fake.Options{}), b.driver("y", fake.Options{})
	const pods, claims = 24, 5
	all := make([]*corev1.Pod, pods)
	for i := range all {
		all[i] = newPod(fmt.Sprintf("p%d", i), fmt.Sprintf("c%d", i%claims), fmt.Sprintf("c%d", (i*7+1)%claims))
	}
	for i := range claims {
		b.claim(fmt.Sprintf("c%d", i), [][]string{{"x"}, {"y"}, {"x", "y"}}[i%3], all...)
	}
	var waits []func() error
	for _, p := range all {
		wait, _ := b.behind(func(ctx context.Context) error {
			for range 5 {
				if err := b.m.Prepare(ctx, p); err != nil {
					return err
				}
				for _, rc := range p.Spec.ResourceClaims {
					if !slices.Contains(append(x.Prepared(), y.Prepared()...), "uid-"+*rc.ResourceClaimName) {
						return fmt.Errorf("pod %s was told that claim %s is prepared, and it is not", p.Name, rc.Name)
					}
				}
				if err := b.m.Unprepare(ctx, p.UID); err != nil {
					return err
				}
			}
			return nil
		})
		waits = append(waits, wait)
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	if got := append(x.Prepared(), y.Prepared()...); len(got) > 0 {
		t.Errorf("prepared at the end: %s", strings.Join(got, ", "))
	}
	for _, d := range []*fake.Driver{x, y} {
		prepares, undos := 0, 0
		for _, c := range d.Calls() {
			if strings.HasPrefix(c, "prepare") {
				prepares++
			} else {
				undos++
			}
		}
		if prepares != undos {
			t.Errorf("%d times prepared, %d times undone", prepares, undos)
		}
	}
}
