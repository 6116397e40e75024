package scheduler_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	apiref "github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/scheduler"
)

// A pod for which others make room is not to evict more of them just because its status does not say yet where it waits.
func TestPodThatWaitsForRoomEvictsNobodyElse(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(node("b", "1"))
	for _, name := range []string{"a", "b"} {
		c.server.MustCreate(pod("low-"+name, "1", func(p *corev1.Pod) { p.Spec.NodeName = name }))
	}
	c.server.FailWith(func(verb string, ref apiref.Ref, _ runtime.Object) error {
		if verb == "patch" && ref.Name == "high" {
			return errors.New("not now")
		}
		return nil
	})
	c.server.MustCreate(pod("high", "1", priority(100)))
	leaving := func() (n int) {
		for _, name := range []string{"low-a", "low-b"} {
			if p := c.pod(name); p != nil && p.DeletionTimestamp != nil {
				n++
			}
		}
		return n
	}
	c.wait("a victim is told to leave", func() bool { return leaving() > 0 })
	c.server.MustCreate(pod("marker", "1", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} }))
	c.poll("all news so far is known", 0, func() bool {
		_, ok, err := c.scheduler.Waiting(context.Background(), "default", "marker")
		return err == nil && ok
	})
	for tries := 1; tries < 4; tries++ {
		c.clock.Step(6 * time.Minute) // longer than a pod is left alone
		c.poll("another attempt", 0, func() bool {
			w, ok, err := c.scheduler.Waiting(context.Background(), "default", "high")
			return err == nil && ok && w.Attempts > tries
		})
	}
	if n := leaving(); n != 1 {
		t.Errorf("%d pods are told to leave; one is enough", n)
	}
}

// In a trial nothing happens but by its steps.
func TestTrialMovesByHand(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	server := fake.New(clock)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	caches := client.NewCaches(client.CachesConfig{Transport: server, Log: log})
	pods := client.CacheOf[*corev1.Pod](caches, client.CacheOptions{})
	arrived := make(chan string, 100)
	s, err := scheduler.New(scheduler.Config{Transport: server, Caches: caches, Clock: clock, Log: log, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		t.Fatal(err)
	}
	pods.OnChange(func(_, p *corev1.Pod) { // after the scheduler heard of it
		if p != nil {
			arrived <- p.Name + " " + p.Spec.NodeName
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); caches.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	await := func(want string) {
		for got := range arrived {
			if got == want {
				return
			}
		}
	}
	trial, err := s.Try(ctx, func(context.Context) {})
	if err != nil {
		t.Fatal(err)
	}
	server.MustCreate(pod("one", "1"))
	await("one ")
	if err := trial.Rest(); err != nil {
		t.Fatal(err)
	}
	if left := trial.Unplaced(); len(left) != 1 || left[0].Pod.Name != "one" || left[0].Message != "no nodes available to schedule pods" {
		t.Fatalf("without a node: %+v", left)
	}
	server.MustCreate(pod("two", "1", func(p *corev1.Pod) { p.Spec.NodeName = "b" }))
	await("two b")
	trial.Retry()
	if err := trial.Rest(); err != nil {
		t.Fatal(err)
	}
	if left := trial.Unplaced(); len(left) != 1 || left[0].Attempts != 2 {
		t.Errorf("tried once more: %+v", left)
	}
}
