package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/loop"
)

func access(resource string, verbs ...string) loop.Access {
	return loop.Access{GroupResource: schema.GroupResource{Resource: resource}, Verbs: verbs}
}

// stage is a runtime over a fake server.
type stage struct {
	*testing.T
	server  *fake.Transport
	caches  *client.Caches
	runtime *loop.Runtime
	clock   *clocktesting.FakeClock
	stop    func() // stops the runtime and waits for it
}

func newStage(t *testing.T) *stage {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	server := fake.New(clk)
	caches := client.NewCaches(client.CachesConfig{Transport: server, Clock: clk})
	r, err := loop.New(loop.Config{Transport: func(string) client.Transport { return server }, Caches: caches, Clock: clk,
		Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{T: t, server: server, caches: caches, runtime: r, clock: clk}
}

func (s *stage) run() {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.caches.Run(ctx) })
	all.Go(func() {
		if err := s.runtime.Run(ctx); err != nil {
			s.Errorf("Run: %v", err)
		}
	})
	s.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	s.Cleanup(s.stop)
}

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: nothing within 10 s", what)
		panic("unreachable")
	}
}

func key(name string) loop.Key { return loop.Key{Name: name} }

func TestChangeDuringAPassLeadsToAnother(t *testing.T) {
	s := newStage(t)
	began, goOn := make(chan string), make(chan struct{})
	var enqueue func(loop.Key)
	err := s.runtime.Add(loop.Descriptor{Name: "x", Workers: 4, Start: func(in loop.Inputs) (loop.Reconcile, error) {
		enqueue = in.Enqueue
		return func(ctx context.Context, k loop.Key) (loop.Result, error) {
			began <- k.Name
			<-goOn
			return loop.Result{}, nil
		}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(key("a"))
	enqueue(key("a")) // one pass for both
	s.run()
	receive(t, "first pass", began)
	enqueue(key("a"))
	enqueue(key("a"))
	enqueue(key("b"))
	if got := receive(t, "another key meanwhile", began); got != "b" {
		t.Fatalf("key %q was given to a second worker while a pass over it ran", got)
	}
	goOn <- struct{}{}
	goOn <- struct{}{}
	if got := receive(t, "second pass", began); got != "a" {
		t.Fatalf("pass over %q, want a again", got)
	}
	goOn <- struct{}{}
	enqueue(key("end"))
	if got := receive(t, "last pass", began); got != "end" {
		t.Fatalf("pass over %q, want none but two over a", got)
	}
	goOn <- struct{}{}
}

func TestBackoffDoublesAndHoldsUpNobody(t *testing.T) {
	s := newStage(t)
	passes := make(chan string, 100)
	fails := errors.New("not yet")
	var enqueue func(loop.Key)
	err := s.runtime.Add(loop.Descriptor{Name: "x", Start: func(in loop.Inputs) (loop.Reconcile, error) {
		enqueue = in.Enqueue
		return func(ctx context.Context, k loop.Key) (loop.Result, error) {
			passes <- k.Name
			if k.Name == "bad" {
				return loop.Result{}, fails
			}
			if k.Name == "panic" {
				panic("oh")
			}
			return loop.Result{}, nil
		}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	enqueue(key("bad"))
	receive(t, "first pass", passes)
	wait := 5 * time.Millisecond
	for range 8 {
		enqueue(key("good"))
		if got := receive(t, "pass of another key", passes); got != "good" {
			t.Fatalf("pass over %q before its back-off of %v ended", got, wait)
		}
		w := s.waiting("bad")
		if w.For < wait || w.For > wait+wait/10+1 || w.Error != fails.Error() {
			t.Fatalf("waits %+v, want %v to a tenth more because of %q", w, wait, fails)
		}
		s.clock.Step(w.For)
		if got := receive(t, "retry", passes); got != "bad" {
			t.Fatalf("pass over %q, want the retry", got)
		}
		wait *= 2
	}
	enqueue(key("panic"))
	receive(t, "panicking pass", passes)
	if w := s.waiting("panic"); !strings.Contains(w.Error, "oh") {
		t.Errorf("a panic gave %+v, want a failed pass", w)
	}
}

// waiting polls, for at most ten seconds, until a key has been put off: the worker does it just after its pass.
func (s *stage) waiting(name string) loop.Wait {
	s.Helper()
	deadline := time.After(10 * time.Second)
	for {
		for _, st := range s.runtime.Status() {
			if w, ok := st.Waiting[key(name)]; ok {
				return w
			}
		}
		select {
		case <-deadline:
			s.Fatalf("%q was not put off within 10 s", name)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestResultAfterAndEnqueueAfter(t *testing.T) {
	s := newStage(t)
	passes := make(chan string, 100)
	var in loop.Inputs
	err := s.runtime.Add(loop.Descriptor{Name: "x", Start: func(i loop.Inputs) (loop.Reconcile, error) {
		in = i
		return func(ctx context.Context, k loop.Key) (loop.Result, error) {
			passes <- k.Name
			return loop.Result{After: time.Hour}, nil
		}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	in.EnqueueAfter(key("a"), time.Minute)
	in.EnqueueAfter(key("a"), 2*time.Minute) // the earlier wish wins
	s.waiting("a")
	s.clock.Step(time.Minute)
	receive(t, "pass after a minute", passes)
	if w := s.waiting("a"); w.For != time.Hour || w.Failures != 0 {
		t.Fatalf("waits %+v, want an hour because the loop asked", w)
	}
	s.clock.Step(time.Hour)
	receive(t, "pass after an hour", passes)
}

func TestUndeclaredAccessFails(t *testing.T) {
	s := newStage(t)
	result := make(chan error, 1)
	err := s.runtime.Add(loop.Descriptor{Name: "x", Reads: []loop.Access{access("pods")}, Writes: []loop.Access{access("pods/status", "update")},
		Start: func(in loop.Inputs) (loop.Reconcile, error) {
			client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{})
			in.Enqueue(key("a"))
			return func(ctx context.Context, k loop.Key) (loop.Result, error) {
				_, err := client.Of[*corev1.Pod](in.Transport).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}})
				result <- err
				return loop.Result{}, nil
			}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	var undeclared *loop.UndeclaredError
	if err := receive(t, "pass", result); !errors.As(err, &undeclared) || undeclared.Verb != "create" {
		t.Errorf("an undeclared create gave %v, want an UndeclaredError", err)
	}
	if got := s.server.Actions(false); len(got) != 0 {
		t.Errorf("the server saw %v, want nothing", got)
	}
}

func TestUndeclaredCacheFailsAtAdd(t *testing.T) {
	s := newStage(t)
	err := s.runtime.Add(loop.Descriptor{Name: "x", Start: func(in loop.Inputs) (loop.Reconcile, error) {
		client.CacheOf[*corev1.Secret](in.Caches, client.CacheOptions{})
		return nil, nil
	}})
	if err == nil || !strings.Contains(err.Error(), "secrets") {
		t.Errorf("Add gave %v, want a refusal that names secrets", err)
	}
}

func TestStopDrains(t *testing.T) {
	s := newStage(t)
	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	err := s.runtime.Add(loop.Descriptor{Name: "x", Start: func(in loop.Inputs) (loop.Reconcile, error) {
		in.Enqueue(key("a"))
		return func(ctx context.Context, k loop.Key) (loop.Result, error) {
			close(began)
			<-goOn
			ended <- ctx.Err()
			return loop.Result{}, nil
		}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	receive(t, "pass", began)
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	select {
	case <-stopped:
		t.Fatal("Run returned while a pass was running")
	case goOn <- struct{}{}:
	}
	if err := receive(t, "end of the pass", ended); err != nil {
		t.Errorf("the running pass saw %v, want time to end", err)
	}
	receive(t, "stop", stopped)
}

func TestRoleHasWhatIsDeclared(t *testing.T) {
	role, binding := loop.RoleOf(loop.Descriptor{Name: "x", Reads: []loop.Access{access("nodes")}, Writes: []loop.Access{access("pods", "delete")}})
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete", "get"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	subject := binding.Subjects[0]
	if user := "system:serviceaccount:" + subject.Namespace + ":" + subject.Name; user != loop.UserName("x") {
		t.Errorf("role is bound to %q, the loop acts as %q", user, loop.UserName("x"))
	}
}

func TestEventsAreCountedCombinedAndLimited(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	pods := []*corev1.Pod{}
	server := fake.New(clk)
	for _, n := range []string{"a", "b", "c"} {
		pods = append(pods, server.MustCreate(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: n}}).(*corev1.Pod))
	}
	r := loop.NewRecorder(loop.RecorderConfig{Transport: server, Component: "x-controller", Clock: clk})
	for range 3 {
		r.Event(pods[0], corev1.EventTypeNormal, "Same", "again")
	}
	for i := range 15 {
		r.Event(pods[1], corev1.EventTypeWarning, "Differs", fmt.Sprintf("message %d", i))
	}
	for i := range 40 {
		r.Event(pods[2], corev1.EventTypeNormal, fmt.Sprintf("Reason%d", i), "spam")
	}
	cancel()
	r.Run(ctx) // writes what waits
	got := map[string]int{}
	events, err := client.Of[*corev1.Event](server).List(context.Background(), "n", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var combined *corev1.Event
	for _, e := range events {
		got[e.InvolvedObject.Name]++
		if e.InvolvedObject.Name == "a" && e.Count != 3 {
			t.Errorf("a repeated event counts %d, want 3", e.Count)
		}
		if strings.HasPrefix(e.Message, "(combined") {
			combined = e
		}
		if e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.APIVersion != "v1" || e.Source.Component != "x-controller" {
			t.Errorf("event is about %+v from %+v", e.InvolvedObject, e.Source)
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 11, "c": 25}, got); diff != "" {
		t.Errorf("events per pod (-want +got):\n%s", diff)
	}
	if combined == nil || combined.Count != 5 || !strings.HasSuffix(combined.Message, "message 14") {
		t.Errorf("combined event is %+v, want one that counts 5 and ends with the last message", combined)
	}
}
