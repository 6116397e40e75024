package loop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/loop"
)

type candidate struct {
	leads, ended chan struct{}
	result       chan error
	cancel       context.CancelFunc
}

func compete(t *testing.T, server *fake.Transport, clk *clocktesting.FakeClock, name string) *candidate {
	t.Helper()
	e, err := loop.NewLeaseElector(loop.LeaseConfig{Transport: server, Name: "lock", Identity: name, Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c := &candidate{leads: make(chan struct{}), ended: make(chan struct{}), result: make(chan error, 1), cancel: cancel}
	go func() {
		c.result <- e.Lead(ctx, func(ctx context.Context) { close(c.leads); <-ctx.Done(); close(c.ended) })
	}()
	return c
}

// stepUntil lets fake time pass, at most n seconds, until c is ready.
func stepUntil(t *testing.T, clk *clocktesting.FakeClock, what string, n int, c <-chan struct{}) {
	t.Helper()
	for range n * 4 {
		select {
		case <-c:
			return
		case <-time.After(5 * time.Millisecond):
			clk.Step(250 * time.Millisecond)
		}
	}
	t.Fatalf("%s: not within %d s of fake time", what, n)
}

func TestOneLeadsAndAnotherFollows(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	server := fake.New(clk)
	a := compete(t, server, clk, "a")
	receive(t, "a leads", a.leads)
	b := compete(t, server, clk, "b")
	for range 40 { // 40 s: a renews
		select {
		case <-b.leads:
			t.Fatal("b leads beside a")
		case <-a.ended:
			t.Fatal("a stopped though nobody took its lease")
		case <-time.After(5 * time.Millisecond):
			clk.Step(time.Second)
		}
	}
	a.cancel() // releases
	if err := receive(t, "a returns", a.result); err != nil {
		t.Errorf("a stopped with %v", err)
	}
	stepUntil(t, clk, "b follows a's release", 6, b.leads)
}

func TestLeaderCutOffStepsDownBeforeAnotherLeads(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	server := fake.New(clk)
	a := compete(t, server, clk, "a")
	receive(t, "a leads", a.leads)
	server.FailWith(func(verb string, _ resource.Ref, _ runtime.Object) error { return errors.New("network is down") })
	stepUntil(t, clk, "a steps down", 14, a.ended)
	if err := receive(t, "a returns", a.result); !errors.Is(err, loop.ErrLeadershipLost) {
		t.Errorf("a returned %v, want ErrLeadershipLost", err)
	}
	server.FailWith(nil)
	b := compete(t, server, clk, "b")
	stepUntil(t, clk, "b takes the lease over", 20, b.leads)
}
