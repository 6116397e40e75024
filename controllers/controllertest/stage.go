// Package controllertest runs real loops over the fake API server with a fake clock, for scenario tests: objects in, settled objects out.
//
// A test changes objects through the server and waits for what a user would see. The wait is woken by each write and bounded by ten seconds of real time.
package controllertest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/loop"
)

// Namespace is where New's objects usually live.
const Namespace = "test"

// Start is the time at which every stage begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Stage is a server, the loops under test, and a clock in the test's hand.
type Stage struct {
	testing.TB
	Server  *fake.Transport
	Caches  *client.Caches
	Runtime *loop.Runtime
	Clock   *clocktesting.FakeClock
	loops   []loop.Descriptor
}

// New makes a stage; Go starts it.
func New(t testing.TB, loops ...loop.Descriptor) *Stage {
	t.Helper()
	clk := clocktesting.NewFakeClock(Start)
	server := fake.New(clk)
	caches := client.NewCaches(client.CachesConfig{Transport: server, Clock: clk, Log: silent()})
	s := &Stage{TB: t, Server: server, Caches: caches, Clock: clk, loops: loops}
	return s
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// Go adds the loops and runs them until the test ends.
func (s *Stage) Go() *Stage {
	s.Helper()
	r, err := loop.New(loop.Config{Transport: func(string) client.Transport { return s.Server }, Caches: s.Caches, Clock: s.Clock, Log: silent()})
	if err != nil {
		s.Fatal(err)
	}
	for _, d := range s.loops {
		if err := r.Add(d); err != nil {
			s.Fatal(err)
		}
	}
	s.Runtime = r
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.Caches.Run(ctx) })
	all.Go(func() {
		if err := r.Run(ctx); err != nil {
			s.Errorf("Run: %v", err)
		}
	})
	s.Cleanup(func() { cancel(); all.Wait() })
	return s
}

// Put creates objects, status and all, and returns the first.
func (s *Stage) Put(objects ...client.Object) client.Object {
	var first client.Object
	for i, o := range objects {
		if stored := s.Server.MustCreate(o); i == 0 {
			first = stored
		}
	}
	return first
}

// Until waits until want holds and fails the test with what describe says if it does not.
func (s *Stage) Until(what string, want func() bool, describe func() any) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Server.Wait(ctx, want); err != nil {
		s.Fatalf("%s: not within 10 s; now:\n%v", what, describe())
	}
}

// UntilEqual waits until got gives want and fails the test with the difference if it does not.
func UntilEqual[T any](s *Stage, what string, want T, got func() T) {
	s.Helper()
	s.Until(what, func() bool { return cmp.Equal(want, got()) }, func() any { return "(-want +got)\n" + cmp.Diff(want, got()) })
}

// Settled waits until all loops are idle and the cache has caught up with the server.
func (s *Stage) Settled() {
	s.Helper()
	deadline := time.After(10 * time.Second)
	quiet := 0
	last := ""
	for quiet < 5 {
		now := fmt.Sprintf("%s %d", s.Server.Revision(), busy(s.Runtime))
		if now == last && busy(s.Runtime) == 0 {
			quiet++
		} else {
			quiet = 0
		}
		last = now
		select {
		case <-deadline:
			s.Fatalf("loops still busy after 10 s: %+v", s.Runtime.Status())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func busy(r *loop.Runtime) int {
	n := 0
	for _, st := range r.Status() {
		n += st.Ready + len(st.Running)
	}
	return n
}

// All lists the objects of T in the stage's namespace, by name.
func All[T client.Object](s *Stage) []T { return AllIn[T](s, Namespace) }

// AllIn lists the objects of T in a namespace, or the cluster's if it is empty.
func AllIn[T client.Object](s *Stage, namespace string) []T {
	s.Helper()
	out, err := client.Of[T](s.Server).List(context.Background(), namespace, metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// Get reads an object of the stage's namespace; the zero T if it is not there.
func Get[T client.Object](s *Stage, name string) T {
	o, err := client.Of[T](s.Server).Get(context.Background(), Namespace, name)
	if err != nil {
		var none T
		return none
	}
	return o
}

// Change updates an object in place through f, status too.
func Change[T client.Object](s *Stage, obj T, f func(T)) T {
	s.Helper()
	ctx := context.Background()
	api := client.Of[T](s.Server)
	for {
		now, err := api.Get(ctx, obj.GetNamespace(), obj.GetName())
		if err != nil {
			s.Fatal(err)
		}
		c := now.DeepCopyObject().(T)
		f(c)
		updated, err := api.Update(ctx, c)
		if err != nil {
			continue // a loop came between
		}
		if updated.GetDeletionTimestamp() != nil && len(updated.GetFinalizers()) == 0 && updated.GetDeletionGracePeriodSeconds() != nil && *updated.GetDeletionGracePeriodSeconds() == 0 {
			return updated // that was the end of it
		}
		c.SetResourceVersion(updated.GetResourceVersion())
		if updated, err = api.UpdateStatus(ctx, c); err == nil {
			return updated
		}
	}
}

// Delete deletes an object.
func Delete[T client.Object](s *Stage, obj T, opts metav1.DeleteOptions) {
	s.Helper()
	if err := client.Of[T](s.Server).Delete(context.Background(), obj.GetNamespace(), obj.GetName(), opts); err != nil {
		s.Fatal(err)
	}
}

// SetReady makes pods run, and be ready or not since the stage's present.
func SetReady(s *Stage, ready bool, pods ...*corev1.Pod) {
	s.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	for _, p := range pods {
		Change(s, p, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(s.Clock.Now())}}
		})
	}
}
