package follow

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/resource"
)

// script is a source whose watches are given by the test, one after another.
type script struct {
	mu      sync.Mutex
	watches []*watch.FakeWatcher
	started chan int
	opts    []metav1.ListOptions
}

func (s *script) Watch(_ context.Context, _ resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := watch.NewFakeWithChanSize(100, false)
	s.watches = append(s.watches, w)
	s.opts = append(s.opts, opts)
	s.started <- len(s.watches) - 1
	return w, nil
}

func cm(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func end() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

func TestObjectsLostWhileTheWatchWasBrokenAreDropped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	source := &script{started: make(chan int, 10)}
	heard := make(chan string, 100)
	done := make(chan error)
	go func() {
		done <- Run(ctx, Config{Source: source, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
			Set:    func(o runtime.Object) { heard <- "set " + o.(*corev1.ConfigMap).Name },
			Drop:   func(o runtime.Object) { heard <- "drop " + o.(*corev1.ConfigMap).Name },
			Synced: func() { heard <- "synced" }})
	}()
	first := source.watches[<-source.started]
	first.Add(cm("a"))
	first.Add(cm("b"))
	first.Action(watch.Bookmark, end())
	first.Modify(cm("a"))
	first.Action(watch.Error, &metav1.Status{Message: "too old resource version"})
	second := source.watches[<-source.started]
	second.Add(cm("b"))
	second.Action(watch.Bookmark, end())
	second.Delete(cm("b"))
	var got []string
	for range 7 {
		got = append(got, <-heard)
	}
	want := []string{"set a", "set b", "synced", "set a", "set b", "drop a", "drop b"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if i := slices.IndexFunc(source.opts, func(o metav1.ListOptions) bool { return o.SendInitialEvents == nil || !*o.SendInitialEvents }); i >= 0 {
		t.Errorf("watch %d did not ask for initial events", i)
	}
}
