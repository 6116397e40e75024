package apiserver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apply1 "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	apply2 "k8s.io/client-go/applyconfigurations/autoscaling/v2"

	"github.com/yare-project/yare/kind"
)

// twoVersions is autoscaling with v2 stored and v1 served beside it, as far as min and max replicas go.
func twoVersions() *kind.Group {
	g := &kind.Group{Name: "autoscaling", Versions: []string{"v2", "v1"},
		AddToScheme: []func(*runtime.Scheme) error{autoscalingv2.AddToScheme, autoscalingv1.AddToScheme}}
	kind.Add(g, kind.Def[autoscalingv2.HorizontalPodAutoscaler]{
		Names: kind.Names{Plural: "horizontalpodautoscalers"},
		Default: func(h *autoscalingv2.HorizontalPodAutoscaler) {
			if h.Spec.MinReplicas == nil {
				one := int32(1)
				h.Spec.MinReplicas = &one
			}
		},
		Served: []kind.Served[autoscalingv2.HorizontalPodAutoscaler]{{
			GroupVersion: autoscalingv1.SchemeGroupVersion,
			New:          func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
			NewList:      func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscalerList{} },
			To: func(h *autoscalingv2.HorizontalPodAutoscaler) (runtime.Object, error) {
				out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: *h.ObjectMeta.DeepCopy()}
				out.Spec.MinReplicas, out.Spec.MaxReplicas, out.Status.CurrentReplicas = h.Spec.MinReplicas, h.Spec.MaxReplicas, h.Status.CurrentReplicas
				return out, nil
			},
			From: func(o runtime.Object) (*autoscalingv2.HorizontalPodAutoscaler, error) {
				h := o.(*autoscalingv1.HorizontalPodAutoscaler)
				out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: *h.ObjectMeta.DeepCopy()}
				out.Spec.MinReplicas, out.Spec.MaxReplicas, out.Status.CurrentReplicas = h.Spec.MinReplicas, h.Spec.MaxReplicas, h.Status.CurrentReplicas
				return out, nil
			},
		}},
	})
	return g
}

func TestVersionsAreViewsOfOneObject(t *testing.T) {
	h := start(t, func(c *apiserverConfig) { c.Groups = append(c.Groups, twoVersions()) })
	ctx := within(t)
	v1, v2 := h.client().AutoscalingV1().HorizontalPodAutoscalers("ns"), h.jsonClient().AutoscalingV2().HorizontalPodAutoscalers("ns")
	w := must(v1.Watch(ctx, metav1.ListOptions{}))
	defer w.Stop()
	made := must(v1.Create(ctx, &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 5}}, metav1.CreateOptions{}))
	if *made.Spec.MinReplicas != 1 || made.ManagedFields[0].APIVersion != "autoscaling/v1" {
		t.Fatalf("made %+v", made)
	}
	other := must(v2.Get(ctx, "a", metav1.GetOptions{}))
	if other.UID != made.UID || other.Spec.MaxReplicas != 5 || other.ResourceVersion != made.ResourceVersion {
		t.Fatalf("as v2 %+v", other)
	}
	other.Spec.MaxReplicas = 6
	must(v2.Update(ctx, other, metav1.UpdateOptions{}))
	must(v1.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"spec":{"minReplicas":2}}`), metav1.PatchOptions{}))
	got := must(v2.List(ctx, metav1.ListOptions{})).Items[0]
	if got.Spec.MaxReplicas != 6 || *got.Spec.MinReplicas != 2 || got.Generation != 3 {
		t.Fatalf("now %+v", got)
	}
	expect(t, w, "ADDED a")
	expect(t, w, "MODIFIED a")
	if last := expect(t, w, "MODIFIED a").(*autoscalingv1.HorizontalPodAutoscaler); last.Spec.MaxReplicas != 6 || *last.Spec.MinReplicas != 2 {
		t.Fatalf("watched %+v", last)
	}
}

// Ownership holds across versions: who owns a field in v1 owns it in v2.
func TestApplyAcrossVersions(t *testing.T) {
	h := start(t, func(c *apiserverConfig) { c.Groups = append(c.Groups, twoVersions()) })
	ctx := within(t)
	v1, v2 := h.client().AutoscalingV1().HorizontalPodAutoscalers("ns"), h.client().AutoscalingV2().HorizontalPodAutoscalers("ns")
	must(v1.Apply(ctx, apply1.HorizontalPodAutoscaler("a", "ns").WithSpec(apply1.HorizontalPodAutoscalerSpec().WithMaxReplicas(5)), metav1.ApplyOptions{FieldManager: "one"}))
	_, err := v2.Apply(ctx, apply2.HorizontalPodAutoscaler("a", "ns").WithSpec(apply2.HorizontalPodAutoscalerSpec().WithMaxReplicas(7)), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one": .spec.maxReplicas`) {
		t.Fatalf("an apply in another version: %v", err)
	}
	got := must(v2.Apply(ctx, apply2.HorizontalPodAutoscaler("a", "ns").WithSpec(apply2.HorizontalPodAutoscalerSpec().WithMaxReplicas(7)), metav1.ApplyOptions{FieldManager: "two", Force: true}))
	if got.Spec.MaxReplicas != 7 || *got.Spec.MinReplicas != 1 {
		t.Fatalf("applied %+v", got.Spec)
	}
}

func TestBookmarksKeepWatchersFresh(t *testing.T) {
	h := start(t, func(c *apiserverConfig) { c.Limits.Bookmarks = 5 * time.Millisecond })
	ctx := within(t)
	c := h.client().CoreV1()
	w := must(c.ConfigMaps("quiet").Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true}))
	defer w.Stop()
	plain := must(c.ConfigMaps("quiet").Watch(ctx, metav1.ListOptions{}))
	defer plain.Stop()
	made := must(c.ConfigMaps("ns").Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	for {
		if e := expect(t, w, "BOOKMARK "); e.GetResourceVersion() == made.ResourceVersion {
			break // the watcher knows that nothing up to here concerned it
		}
	}
	must(c.ConfigMaps("quiet").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{}))
	expect(t, plain, "ADDED b")
}

func TestWatchOfOneObject(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	must(c.Create(ctx, configMap("b", nil), metav1.CreateOptions{}))
	for _, path := range []string{"/api/v1/namespaces/ns/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Db", "/api/v1/watch/namespaces/ns/configmaps/b?timeoutSeconds=1"} {
		if a := h.do("GET", path, ""); strings.Count(a.body, `"type":"ADDED"`) != 1 || !strings.Contains(a.body, `"name":"b"`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	// The path of an object is authorized as get, and answered so.
	if a := h.do("GET", "/api/v1/namespaces/ns/configmaps/b?watch=1&timeoutSeconds=1", ""); !strings.HasPrefix(a.body, `{"kind":"ConfigMap"`) {
		t.Error(a.body)
	}
}

func TestServeSpeaksHTTP2(t *testing.T) {
	h := start(t)
	cert := certificate(t)
	ln := must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(ctx, ln, &tls.Config{Certificates: []tls.Certificate{cert}}) }()
	for proto, transport := range map[int]*http.Transport{
		2: {TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true},
		1: {TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	} {
		resp := must((&http.Client{Transport: transport}).Get("https://" + ln.Addr().String() + "/api/v1/configmaps"))
		resp.Body.Close()
		if resp.ProtoMajor != proto || resp.StatusCode != 200 {
			t.Errorf("HTTP/%d: got %s %d", proto, resp.Proto, resp.StatusCode)
		}
		transport.CloseIdleConnections()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPanicsInProcessEndOneRequest(t *testing.T) {
	p := plugin{mutate: func(*kind.AdmissionRequest) error { panic("boom") }}
	h := start(t, func(c *apiserverConfig) { c.Mutators = []kind.Mutator{p} })
	if _, err := h.local().Create(within(t), configMaps(), configMap("a", nil), metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
		t.Fatalf("answered %v", err)
	}
}

// A version may be stricter than the stored one: its rule holds for what comes through it, and for nothing else.
func TestStricterVersion(t *testing.T) {
	g := twoVersions()
	g.Kinds[0].Versions[1].Validate = func(obj, old kind.Object) field.ErrorList {
		if h := obj.(*autoscalingv2.HorizontalPodAutoscaler); h.Spec.MaxReplicas > 9 {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "maxReplicas"), h.Spec.MaxReplicas, fmt.Sprintf("v1 counts to nine (update: %v)", old != nil))}
		}
		return nil
	}
	h := start(t, func(c *apiserverConfig) { c.Groups = append(c.Groups, g) })
	ctx := within(t)
	v1, v2 := h.client().AutoscalingV1().HorizontalPodAutoscalers("ns"), h.client().AutoscalingV2().HorizontalPodAutoscalers("ns")
	of := func(n int32) *autoscalingv1.HorizontalPodAutoscaler {
		return &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: n}}
	}
	refused := func(what string, err error, update bool) {
		t.Helper()
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), fmt.Sprintf("v1 counts to nine (update: %v)", update)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := v1.Create(ctx, of(10), metav1.CreateOptions{})
	refused("create", err, false)
	must(v1.Create(ctx, of(5), metav1.CreateOptions{}))
	_, err = v1.Update(ctx, of(10), metav1.UpdateOptions{})
	refused("update", err, true)
	_, err = v1.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"maxReplicas":10}}`), metav1.PatchOptions{})
	refused("patch", err, true)
	_, err = v1.Apply(ctx, apply1.HorizontalPodAutoscaler("a", "ns").WithSpec(apply1.HorizontalPodAutoscalerSpec().WithMaxReplicas(10)), metav1.ApplyOptions{FieldManager: "m", Force: true})
	refused("apply", err, true)
	must(v2.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"maxReplicas":10}}`), metav1.PatchOptions{}))
	status := of(10)
	status.Status.CurrentReplicas = 3
	if got, err := v1.UpdateStatus(ctx, status, metav1.UpdateOptions{}); err != nil || got.Status.CurrentReplicas != 3 {
		t.Errorf("a status through v1: %v", err)
	}
}
