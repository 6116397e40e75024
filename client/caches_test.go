package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/internal/resource"
)

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

// running starts caches and stops them with the test.
func running(t *testing.T, tr client.Transport) *client.Caches {
	t.Helper()
	c := client.NewCaches(client.CachesConfig{Transport: tr})
	start(t, c)
	return c
}

func start(t *testing.T, c *client.Caches) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func synced[T client.Object](t *testing.T, c client.Cache[T]) {
	t.Helper()
	select {
	case <-c.Synced():
	case <-time.After(10 * time.Second):
		t.Fatal("cache did not sync within 10 s")
	}
}

// journal records what OnChange told.
type journal struct {
	mu    sync.Mutex
	lines []string
	heard chan struct{}
}

func listen(c client.Cache[*corev1.Pod]) *journal {
	j := &journal{heard: make(chan struct{}, 1000)}
	c.OnChange(func(old, new *corev1.Pod) {
		line := ""
		switch {
		case old == nil:
			line = "add " + new.Name
		case new == nil:
			line = "remove " + old.Name
		default:
			line = fmt.Sprintf("change %s %s->%s", new.Name, old.Spec.NodeName, new.Spec.NodeName)
		}
		j.mu.Lock()
		j.lines = append(j.lines, line)
		j.mu.Unlock()
		j.heard <- struct{}{}
	})
	return j
}

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	for range want {
		select {
		case <-j.heard:
		case <-time.After(10 * time.Second):
			j.mu.Lock()
			defer j.mu.Unlock()
			t.Fatalf("waited 10 s for %q; heard %q", want, j.lines)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if diff := cmp.Diff(want, j.lines); diff != "" {
		t.Fatalf("changes (-want +got):\n%s", diff)
	}
	j.lines = nil
}

func TestCacheFollowsTheServer(t *testing.T) {
	ctx := context.Background()
	server := fake.New(nil, pod("a", ""), pod("b", "node-1"))
	caches := client.NewCaches(client.CachesConfig{Transport: server})
	pods := client.CacheOf[*corev1.Pod](caches, client.CacheOptions{})
	pods.AddIndex("node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
	start(t, caches)
	synced(t, pods)
	j := listen(pods)
	if n := len(j.lines); n != 2 {
		t.Fatalf("a handler added late heard %d additions, want 2", n)
	}
	<-j.heard
	<-j.heard
	j.lines = nil

	api := client.Of[*corev1.Pod](server)
	a, err := api.Get(ctx, "n", "a")
	if err != nil {
		t.Fatal(err)
	}
	a = a.DeepCopy()
	a.Spec.NodeName = "node-1"
	if _, err := api.Update(ctx, a); err != nil {
		t.Fatal(err)
	}
	zero := int64(0)
	if err := api.Delete(ctx, "n", "b", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	j.expect(t, "change a ->node-1", "remove b")
	if got := pods.By("node", "node-1"); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("By(node-1) = %v, want a", got)
	}
	if got := pods.By("node", ""); len(got) != 0 {
		t.Errorf("By() = %v, want nothing", got)
	}
	stored, _ := server.Get(ctx, resource.Ref{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "n", Name: "a"}, metav1.GetOptions{})
	if cached, _ := pods.Get("n", "a"); runtime.Object(cached) != stored {
		t.Error("the cache holds a copy, want the server's own object")
	}
}

func TestSelectorsAndSharing(t *testing.T) {
	server := fake.New(nil, pod("a", ""), pod("b", "node-1"))
	caches := running(t, server)
	opts := client.CacheOptions{FieldSelector: "spec.nodeName=node-1"}
	one, two := client.CacheOf[*corev1.Pod](caches, opts), client.CacheOf[*corev1.Pod](caches, opts)
	synced(t, one)
	synced(t, two)
	j := listen(one)
	j.expect(t, "add b")
	p := pod("a", "node-1")
	if _, err := client.Of[*corev1.Pod](server).Update(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	j.expect(t, "add a")
	watches := 0
	for _, a := range server.Actions(true) {
		if a.Verb == "watch" {
			watches++
		}
	}
	if watches != 1 {
		t.Errorf("two equal caches made %d watches, want 1", watches)
	}
}

// flaky refuses or breaks requests as told.
type flaky struct {
	*fake.Transport
	mu        sync.Mutex
	streaming bool // accept sendInitialEvents
	open      []watch.Interface
	from      []string
}

func (f *flaky) Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if opts.SendInitialEvents != nil && !f.streaming {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	w, err := f.Transport.Watch(ctx, ref, opts)
	if err == nil {
		f.open, f.from = append(f.open, w), append(f.from, opts.ResourceVersion)
	}
	return w, err
}

func (f *flaky) breakAll() {
	f.mu.Lock()
	open := f.open
	f.open = nil
	f.mu.Unlock()
	for _, w := range open {
		w.Stop()
	}
}

func TestResumesAndRelists(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%v", streaming), func(t *testing.T) {
			server := &flaky{Transport: fake.New(nil, pod("a", ""), pod("b", "")), streaming: streaming}
			pods := client.CacheOf[*corev1.Pod](running(t, server), client.CacheOptions{})
			synced(t, pods)
			j := listen(pods)
			<-j.heard
			<-j.heard
			j.lines = nil

			server.breakAll() // resumes at the last revision
			server.MustCreate(pod("c", ""))
			j.expect(t, "add c")
			server.mu.Lock()
			last := server.from[len(server.from)-1]
			server.mu.Unlock()
			if last == "" {
				t.Error("a broken watch listed again, want it to resume at its revision")
			}

			gone := func(verb string, ref resource.Ref, _ runtime.Object) error {
				if verb == "watch" {
					return errors.New("the server is away")
				}
				return nil
			}
			server.FailWith(gone)
			server.breakAll()
			server.MustCreate(pod("d", ""))
			if err := client.Of[*corev1.Pod](server).Delete(context.Background(), "n", "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			server.Compact() // what happened while away can't be replayed
			server.FailWith(nil)
			j.expect(t, "remove a", "add d")
		})
	}
}

func TestViewRefuses(t *testing.T) {
	caches := client.NewCaches(client.CachesConfig{Transport: fake.New(nil)})
	no := errors.New("not declared")
	view := caches.View(func(gvr schema.GroupVersionResource, _ client.CacheOptions) error {
		if gvr.Resource == "secrets" {
			return no
		}
		return nil
	})
	client.CacheOf[*corev1.Pod](view, client.CacheOptions{})
	if got := view.Refused(); len(got) != 0 {
		t.Fatalf("refused %v, want nothing", got)
	}
	client.CacheOf[*corev1.Secret](view, client.CacheOptions{})
	if got := view.Refused(); !slices.Equal(got, []error{no}) {
		t.Fatalf("refused %v, want %v", got, no)
	}
}

func TestEveryBuiltinHasAResource(t *testing.T) {
	for resource, kind := range map[string]string{"endpoints": "Endpoints", "endpointslices": "EndpointSlice", "networkpolicies": "NetworkPolicy",
		"ingresses": "Ingress", "storageclasses": "StorageClass", "customresourcedefinitions": "CustomResourceDefinition", "leases": "Lease",
		"priorityclasses": "PriorityClass", "apiservices": "APIService"} {
		found := false
		for _, group := range []string{"", "discovery.k8s.io", "networking.k8s.io", "storage.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io",
			"scheduling.k8s.io", "apiregistration.k8s.io"} {
			gvk, ok := client.KindFor(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource})
			found = found || ok && gvk.Kind == kind
		}
		if !found {
			t.Errorf("%s is not known as %s", resource, kind)
		}
	}
}

func TestFakePatchAndStatus(t *testing.T) {
	ctx := context.Background()
	server := fake.New(nil, pod("a", ""))
	api := client.Of[*corev1.Pod](server)
	p, err := api.Patch(ctx, "n", "a", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}},"status":{"phase":"Running"}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	if p.Labels["x"] != "y" || p.Status.Phase != corev1.PodPending {
		t.Errorf("patch gave labels %v and phase %s; want the label and an untouched status", p.Labels, p.Status.Phase)
	}
	p, err = api.Patch(ctx, "n", "a", types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), "status")
	if err != nil || p.Status.Phase != corev1.PodRunning {
		t.Errorf("status patch: %v, %v", p.Status.Phase, err)
	}
	stale := p.DeepCopy()
	stale.ResourceVersion = "1"
	if _, err := api.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("update at an old revision: %v, want a conflict", err)
	}
	_, err = server.Create(ctx, resource.Ref{GroupVersionResource: client.ResourceOf[*corev1.Pod](), Namespace: "n", Name: "a", Subresource: "binding"},
		&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Name: "node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(ctx, "n", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if p, err = api.Get(ctx, "n", "a"); err != nil || p.DeletionTimestamp == nil {
		t.Errorf("a bound pod is %v, %v after delete; want it terminating", p, err)
	}
}
