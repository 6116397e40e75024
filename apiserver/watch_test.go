package apiserver_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// next reads one event, or fails.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no event within 10 s")
	}
	panic("unreachable")
}

func expect(t *testing.T, w watch.Interface, want string) metav1.Object {
	t.Helper()
	e := next(t, w)
	m, ok := e.Object.(metav1.Object)
	if !ok {
		t.Fatalf("want %s, got %s %+v", want, e.Type, e.Object)
	}
	if got := string(e.Type) + " " + m.GetName(); got != want {
		t.Fatalf("want %s, got %s", want, got)
	}
	return m
}

func TestWatchTellsEveryChange(t *testing.T) {
	eachCodec(t, func(t *testing.T, h *harness, cs *kubernetes.Clientset) {
		ctx := within(t)
		c := cs.CoreV1().ConfigMaps("ns")
		made := must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
		w := must(c.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion}))
		defer w.Stop()
		made.Data = map[string]string{"x": "y"}
		changed := must(c.Update(ctx, made, metav1.UpdateOptions{}))
		must(c.Create(ctx, configMap("b", nil), metav1.CreateOptions{}))
		must(cs.CoreV1().ConfigMaps("other").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}))
		if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := expect(t, w, "MODIFIED a"); got.GetResourceVersion() != changed.ResourceVersion {
			t.Errorf("rv %s, update answered %s", got.GetResourceVersion(), changed.ResourceVersion)
		}
		expect(t, w, "ADDED b")
		gone := expect(t, w, "DELETED a")
		if gone.GetResourceVersion() <= changed.ResourceVersion || gone.(*corev1.ConfigMap).Data["x"] != "y" {
			t.Errorf("the deletion shows %+v", gone)
		}
		old := must(c.Watch(ctx, metav1.ListOptions{}))
		defer old.Stop()
		expect(t, old, "ADDED b")
		one := must(c.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=z"}))
		defer one.Stop()
		must(c.Create(ctx, configMap("y", nil), metav1.CreateOptions{}))
		must(c.Create(ctx, configMap("z", nil), metav1.CreateOptions{}))
		expect(t, one, "ADDED z")
	})
}

// What comes to match a selector is added, what ceases to is deleted.
func TestWatchFollowsSelectors(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	w := must(c.Watch(ctx, metav1.ListOptions{LabelSelector: "on=yes"}))
	defer w.Stop()
	cm := must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	set := func(on string) {
		cm.Labels = map[string]string{"on": on}
		cm.Data = map[string]string{"n": on + cm.ResourceVersion}
		cm = must(c.Update(ctx, cm, metav1.UpdateOptions{}))
	}
	set("yes")
	expect(t, w, "ADDED a")
	set("yes")
	expect(t, w, "MODIFIED a")
	set("no")
	if got := expect(t, w, "DELETED a"); got.GetResourceVersion() != cm.ResourceVersion || got.GetLabels()["on"] != "yes" {
		t.Errorf("leaving shows rv %s labels %v, want rv %s and the last matching state", got.GetResourceVersion(), got.GetLabels(), cm.ResourceVersion)
	}
	set("yes")
	expect(t, w, "ADDED a")
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, w, "DELETED a")
}

func TestWatchSendsInitialEvents(t *testing.T) {
	eachCodec(t, func(t *testing.T, h *harness, cs *kubernetes.Clientset) {
		ctx := within(t)
		c := cs.CoreV1().ConfigMaps("ns")
		for i := range 3 {
			must(c.Create(ctx, configMap(fmt.Sprint("c", i), nil), metav1.CreateOptions{}))
		}
		w := must(c.Watch(ctx, metav1.ListOptions{SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}))
		defer w.Stop()
		for i := range 3 {
			expect(t, w, fmt.Sprint("ADDED c", i))
		}
		end := expect(t, w, "BOOKMARK ")
		if end.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || end.GetResourceVersion() == "" {
			t.Fatalf("the end of the initial events: %+v", end)
		}
		must(c.Create(ctx, configMap("d", nil), metav1.CreateOptions{}))
		expect(t, w, "ADDED d")
		none := must(c.Watch(ctx, metav1.ListOptions{SendInitialEvents: ptr.To(false), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}))
		defer none.Stop()
		must(c.Create(ctx, configMap("e", nil), metav1.CreateOptions{}))
		expect(t, none, "ADDED e")
	})
}

func TestWatchEndsAtItsTimeout(t *testing.T) {
	h := start(t)
	w := must(h.client().CoreV1().ConfigMaps("ns").Watch(within(t), metav1.ListOptions{TimeoutSeconds: ptr.To(int64(1))}))
	select {
	case e, open := <-w.ResultChan():
		if open {
			t.Fatalf("got %+v", e)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the watch goes on")
	}
}

func TestInformersFollow(t *testing.T) {
	h := start(t)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	c := h.client()
	for i := range 50 {
		must(c.CoreV1().ConfigMaps("ns").Create(ctx, configMap(fmt.Sprint("c", i), nil), metav1.CreateOptions{}))
	}
	factory := informers.NewSharedInformerFactory(c, 0)
	informer := factory.Core().V1().ConfigMaps()
	seen := make(chan string, 100)
	must(informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen <- "+" + o.(*corev1.ConfigMap).Name },
		DeleteFunc: func(o any) { seen <- "-" + o.(*corev1.ConfigMap).Name },
	}))
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		t.Fatal("the cache never synced")
	}
	for range 50 {
		<-seen
	}
	must(c.CoreV1().ConfigMaps("ns").Create(ctx, configMap("late", nil), metav1.CreateOptions{}))
	if err := c.CoreV1().ConfigMaps("ns").Delete(ctx, "c7", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+late", "-c7"} {
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%s never came", want)
		}
	}
}

// A watch from a revision that is yet to come begins at once, says nothing until then, and then every change after it.
func TestWatchAwaitsItsRevision(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	made := must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	now := must(strconv.ParseUint(made.ResourceVersion, 10, 64))
	w := must(c.Watch(ctx, metav1.ListOptions{ResourceVersion: fmt.Sprint(now + 2)}))
	defer w.Stop()
	for _, name := range []string{"b", "c", "d"} {
		must(c.Create(ctx, configMap(name, nil), metav1.CreateOptions{}))
	}
	expect(t, w, "ADDED d")

	never := h.do("GET", "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=999999", "")
	if never.code != 200 || never.body != "" {
		t.Errorf("one that never comes: %+v", never)
	}
	state := h.do("GET", "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "")
	if state.code != 200 || !strings.Contains(state.body, `"type":"ERROR"`) || !strings.Contains(state.body, "Too large resource version: 999999") {
		t.Errorf("the state of one that never comes: %+v", state)
	}
}

// Any value but false and 0 makes a list a watch; a watch has no pages.
func TestWatchParameters(t *testing.T) {
	h := start(t)
	must(h.client().CoreV1().ConfigMaps("ns").Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	for query, want := range map[string]string{
		"watch=yes&timeoutSeconds=1":          `200 {"type":"ADDED"`,
		"watch=false":                         `200 {"kind":"ConfigMapList"`,
		"watch=0":                             `200 {"kind":"ConfigMapList"`,
		"watch=1&continue=x&timeoutSeconds=1": `422 resourceVersionMatch is forbidden when continue is provided`,
		"watch=1&continue=x&timeoutSeconds=1&resourceVersion=1": `200 {"type":"ADDED"`,
	} {
		code, text, _ := strings.Cut(want, " ")
		if got := h.do("GET", "/api/v1/configmaps?"+query, ""); fmt.Sprint(got.code) != code || !strings.Contains(got.body, text) {
			t.Errorf("%s: %d %s, want %s", query, got.code, got.body, want)
		}
	}
}
