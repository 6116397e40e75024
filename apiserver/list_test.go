package apiserver_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/store/mem"
)

func names(items []corev1.ConfigMap) string {
	var out []string
	for _, o := range items {
		out = append(out, o.Name)
	}
	return strings.Join(out, " ")
}

func TestListPages(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	for i := range 7 {
		must(c.Create(ctx, configMap(fmt.Sprintf("c%d", i), nil), metav1.CreateOptions{}))
	}
	page := must(c.List(ctx, metav1.ListOptions{Limit: 3}))
	if names(page.Items) != "c0 c1 c2" || page.Continue == "" || page.RemainingItemCount == nil || *page.RemainingItemCount != 4 {
		t.Fatalf("first page: %s %+v", names(page.Items), page.ListMeta)
	}
	// Writes between the pages do not show.
	must(c.Create(ctx, configMap("c3a", nil), metav1.CreateOptions{}))
	if err := c.Delete(ctx, "c5", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := must(c.List(ctx, metav1.ListOptions{Limit: 3, Continue: page.Continue}))
	third := must(c.List(ctx, metav1.ListOptions{Limit: 3, Continue: second.Continue}))
	if names(second.Items) != "c3 c4 c5" || names(third.Items) != "c6" || third.Continue != "" || third.RemainingItemCount != nil || second.ResourceVersion != page.ResourceVersion {
		t.Fatalf("pages %s | %s at %s %s", names(second.Items), names(third.Items), page.ResourceVersion, second.ResourceVersion)
	}
	if now := must(c.List(ctx, metav1.ListOptions{})); names(now.Items) != "c0 c1 c2 c3 c3a c4 c6" {
		t.Fatalf("now: %s", names(now.Items))
	}
	selected := must(c.List(ctx, metav1.ListOptions{Limit: 2, FieldSelector: "metadata.name!=c1"}))
	if names(selected.Items) != "c0 c2" || selected.RemainingItemCount != nil {
		t.Fatalf("selected: %s %+v", names(selected.Items), selected.ListMeta)
	}
}

// TestContinueExpiresWithTime: nothing was written since, yet a token is good for five minutes only, from the first page on.
func TestContinueExpiresWithTime(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	h := start(t, func(cfg *apiserverConfig) { cfg.Clock = clock })
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	for i := range 4 {
		must(c.Create(ctx, configMap(fmt.Sprintf("c%d", i), nil), metav1.CreateOptions{}))
	}
	first := must(c.List(ctx, metav1.ListOptions{Limit: 1}))
	clock.Step(4 * time.Minute)
	second := must(c.List(ctx, metav1.ListOptions{Limit: 1, Continue: first.Continue}))
	clock.Step(2 * time.Minute)
	_, err := c.List(ctx, metav1.ListOptions{Limit: 1, Continue: second.Continue})
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("six minutes after the first page: %v", err)
	}
	rest := must(c.List(ctx, metav1.ListOptions{Continue: err.(apierrors.APIStatus).Status().ListMeta.Continue}))
	if names(rest.Items) != "c2 c3" {
		t.Errorf("the rest from the newest state: %s", names(rest.Items))
	}
}

func TestContinueExpires(t *testing.T) {
	h := start(t, func(cfg *apiserverConfig) { cfg.Store = mem.New(mem.Config{RingBytes: 64 << 10}) })
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	for i := range 4 {
		must(c.Create(ctx, configMap(fmt.Sprintf("c%d", i), nil), metav1.CreateOptions{}))
	}
	page := must(c.List(ctx, metav1.ListOptions{Limit: 1}))
	big := configMap("big", map[string]string{"x": strings.Repeat("x", 20<<10)})
	for i := range 10 {
		big.Data["n"] = fmt.Sprint(i)
		big.ResourceVersion = ""
		if i == 0 {
			must(c.Create(ctx, big, metav1.CreateOptions{}))
		} else {
			must(c.Update(ctx, big, metav1.UpdateOptions{}))
		}
	}
	_, err := c.List(ctx, metav1.ListOptions{Limit: 1, Continue: page.Continue})
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("an old token: %v", err)
	}
	token := err.(apierrors.APIStatus).Status().Continue
	rest := must(c.List(ctx, metav1.ListOptions{Continue: token}))
	if names(rest.Items) != "c1 c2 c3" {
		t.Fatalf("the inconsistent rest: %s", names(rest.Items))
	}
	if _, err := c.List(ctx, metav1.ListOptions{ResourceVersion: page.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Fatalf("an old exact list: %v", err)
	}
	if got := must(c.List(ctx, metav1.ListOptions{ResourceVersion: page.ResourceVersion})); len(got.Items) != 5 {
		t.Fatalf("not older than an old one: %d items", len(got.Items))
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: page.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != "ERROR" || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Fatalf("a watch from an old revision: %+v", e)
	}
}

func TestListResourceVersions(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	first := must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	must(c.Create(ctx, configMap("b", nil), metav1.CreateOptions{}))
	exact := must(c.List(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}))
	if names(exact.Items) != "a" || exact.ResourceVersion != first.ResourceVersion {
		t.Errorf("exact: %s at %s", names(exact.Items), exact.ResourceVersion)
	}
	for _, o := range []metav1.ListOptions{{}, {ResourceVersion: "0"}, {ResourceVersion: first.ResourceVersion},
		{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}} {
		if got := must(c.List(ctx, o)); names(got.Items) != "a b" {
			t.Errorf("%+v: %s", o, names(got.Items))
		}
	}
	future := h.do("GET", "/api/v1/configmaps?resourceVersion=999999", "")
	if future.code != 504 || !strings.Contains(future.body, "Too large resource version: 999999") || !strings.Contains(future.body, `"reason":"ResourceVersionTooLarge"`) {
		t.Errorf("from the future: %+v", future)
	}
}

func TestListRefusals(t *testing.T) {
	h := start(t)
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"v0","rv":1,"start":"x"}`))
	for query, want := range map[string]string{
		"continue=!!":                                              "continue key is not valid",
		"continue=" + token:                                        "does not recognize this encoded version",
		"limit=many":                                               "invalid syntax",
		"resourceVersion=abc":                                      "invalid resource version",
		"labelSelector=a%3D%3D%3Db":                                "unable to parse requirement",
		"fieldSelector=spec.x%3Dy":                                 "is not a known field selector: only",
		"resourceVersionMatch=Exact":                               "forbidden unless resourceVersion is provided",
		"resourceVersionMatch=Nearly&resourceVersion=1":            `Unsupported value: \"Nearly\"`,
		"resourceVersionMatch=Exact&resourceVersion=0":             "forbidden for resourceVersion",
		"watch=1&resourceVersionMatch=NotOlderThan":                "forbidden for watch unless sendInitialEvents",
		"watch=1&sendInitialEvents=true":                           "sendInitialEvents requires setting resourceVersionMatch",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan": "sendInitialEvents is forbidden for list",
	} {
		if a := h.do("GET", "/api/v1/configmaps?"+query, ""); a.code != 400 && a.code != 422 || !strings.Contains(a.body, want) {
			t.Errorf("%s: want %q, got %d %s", query, want, a.code, a.body)
		}
	}
}

func TestSelectors(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1()
	for i, node := range []string{"n1", "n2", "n1"} {
		must(c.Pods("ns").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"i": fmt.Sprint(i)}},
			Spec: corev1.PodSpec{NodeName: node}}, metav1.CreateOptions{}))
	}
	for _, s := range []struct {
		label, field string
		want         []string
	}{
		{"", "spec.nodeName=n1", []string{"p0", "p2"}},
		{"", "spec.nodeName!=n1", []string{"p1"}},
		{"i in (0,1)", "", []string{"p0", "p1"}},
		{"i!=0", "spec.nodeName=n1", []string{"p2"}},
		{"", "metadata.name=p1,metadata.namespace=ns", []string{"p1"}},
		{"", "metadata.namespace=other", nil},
	} {
		for _, ns := range []string{"", "ns"} {
			var got []string
			for _, p := range must(c.Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: s.label, FieldSelector: s.field})).Items {
				got = append(got, p.Name)
			}
			if !slices.Equal(got, s.want) {
				t.Errorf("%q %q in %q: %v", s.label, s.field, ns, got)
			}
		}
	}
}

// Clients take "0" for "any version": no list may be at it, and a watch from an empty list must tell what comes after, once.
func TestEmptyStoreHasAVersion(t *testing.T) {
	h := start(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	empty := must(c.List(within(t), metav1.ListOptions{}))
	if empty.ResourceVersion == "" || empty.ResourceVersion == "0" {
		t.Fatalf("an empty list is at %q", empty.ResourceVersion)
	}
	must(c.Create(within(t), configMap("a", nil), metav1.CreateOptions{}))
	w := must(c.Watch(within(t), metav1.ListOptions{ResourceVersion: empty.ResourceVersion}))
	defer w.Stop()
	expect(t, w, "ADDED a")
	// A store that has begun is not written again.
	before := h.store.Revision()
	start(t, func(c *apiserverConfig) { c.Store = shared{h.store} })
	if now := h.store.Revision(); now != before {
		t.Errorf("another server wrote: %d became %d", before, now)
	}
}
