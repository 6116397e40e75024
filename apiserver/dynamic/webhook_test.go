package dynamic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	regv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAValidatingWebhookDecides(t *testing.T) {
	g := newGate(t)
	hook := newRemote(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if strings.Contains(string(r.Object.Raw), "forbidden") {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "you shall not pass", Reason: metav1.StatusReasonForbidden, Code: 403}}
		}
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"be careful"}, AuditAnnotations: map[string]string{"seen": "yes"}}
	})
	g.register("a", []regv1.ValidatingWebhook{validating(hook)})
	_, err := g.create("ns", configMap("forbidden"))
	if want := `admission webhook "check.example.com" denied the request: you shall not pass`; err == nil || err.Error() != want || !apierrors.IsForbidden(err) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := g.CoreV1().ConfigMaps("ns").Get(context.Background(), "forbidden", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the refused object: %v", err)
	}
	g.must(g.create("ns", configMap("fine", func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "b"} })))
	if !strings.HasSuffix(g.warnings(), "be careful") || g.annotations()["check.example.com/seen"] != "yes" {
		t.Errorf("warnings %q, audit %v", g.warnings(), g.annotations())
	}
	calls := hook.calls()
	request := calls[len(calls)-1].Request
	var sent corev1.ConfigMap
	if err := json.Unmarshal(request.Object.Raw, &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Kind != "ConfigMap" || sent.APIVersion != "v1" || sent.Data["a"] != "b" || sent.UID == "" || len(request.OldObject.Raw) > 0 && string(request.OldObject.Raw) != "null" {
		t.Errorf("object %s, old %s", request.Object.Raw, request.OldObject.Raw)
	}
	request.Object.Raw, request.OldObject.Raw, request.UID = nil, nil, ""
	kindOf := metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	of := metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	want := &admissionv1.AdmissionRequest{Kind: kindOf, Resource: of, RequestKind: &kindOf, RequestResource: &of, Name: "fine", Namespace: "ns", Operation: "CREATE", DryRun: ptr.To(false)}
	want.UserInfo.Username, want.UserInfo.Groups = "tester", []string{"system:masters"}
	want.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"k": {"v"}}
	want.Options.Raw = request.Options.Raw
	if d := cmp.Diff(want, request); d != "" {
		t.Error(d)
	}
	if s := string(request.Options.Raw); !strings.Contains(s, `"kind":"CreateOptions"`) || !strings.Contains(s, `"apiVersion":"meta.k8s.io/v1"`) {
		t.Errorf("options %s", s)
	}
}

func TestWhichRequestsAWebhookSees(t *testing.T) {
	red := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	rules := func(group, version, resource string, ops ...regv1.OperationType) []regv1.RuleWithOperations {
		return []regv1.RuleWithOperations{{Operations: ops, Rule: regv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}}}}
	}
	for name, c := range map[string]struct {
		change func(*regv1.ValidatingWebhook)
		act    func(*gate)
		want   []string
	}{
		"namespace selector": {func(w *regv1.ValidatingWebhook) { w.NamespaceSelector = red }, func(g *gate) {
			g.must(g.create("ns", configMap("in")))
			g.must(g.create("other", configMap("out")))
		}, []string{"CREATE in"}},
		"object selector, by the old labels too": {func(w *regv1.ValidatingWebhook) { w.ObjectSelector = red }, func(g *gate) {
			c, err := g.create("ns", configMap("a", func(c *corev1.ConfigMap) { c.Labels = map[string]string{"team": "red"} }))
			g.must(c, err)
			c.Labels = nil
			g.must(g.CoreV1().ConfigMaps("ns").Update(context.Background(), c, metav1.UpdateOptions{}))
			g.must(g.create("ns", configMap("b")))
		}, []string{"CREATE a", "UPDATE a"}},
		"match conditions": {func(w *regv1.ValidatingWebhook) {
			w.MatchConditions = []regv1.MatchCondition{{Name: "not-me", Expression: `object.metadata.name != "me"`}, {Name: "not-system", Expression: `!request.userInfo.username.startsWith("system:")`}}
		}, func(g *gate) {
			g.must(g.create("ns", configMap("me")))
			g.must(g.create("ns", configMap("you")))
		}, []string{"CREATE you"}},
		"operations": {func(w *regv1.ValidatingWebhook) { w.Rules = rules("", "v1", "configmaps", "DELETE") }, func(g *gate) {
			g.must(g.create("ns", configMap("a")))
			g.must(nil, g.CoreV1().ConfigMaps("ns").Delete(context.Background(), "a", metav1.DeleteOptions{}))
		}, []string{"DELETE a"}},
		"other group's version of the same objects": {func(w *regv1.ValidatingWebhook) { w.Rules = rules("events.k8s.io", "v1", "events", "CREATE") }, func(g *gate) {
			g.must(g.CoreV1().Events("ns").Create(context.Background(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns"}, InvolvedObject: corev1.ObjectReference{Namespace: "ns"}}, metav1.CreateOptions{}))
		}, []string{"CREATE e as events.k8s.io/v1"}},
		"exactly": {func(w *regv1.ValidatingWebhook) {
			w.Rules, w.MatchPolicy = rules("events.k8s.io", "v1", "events", "CREATE"), ptr.To(regv1.Exact)
		}, func(g *gate) {
			g.must(g.CoreV1().Events("ns").Create(context.Background(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns"}, InvolvedObject: corev1.ObjectReference{Namespace: "ns"}}, metav1.CreateOptions{}))
			g.must(g.EventsV1().Events("ns").Create(context.Background(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "f", Namespace: "ns"}, EventTime: metav1.NowMicro(), ReportingController: "a.b/c", ReportingInstance: "i", Action: "x", Reason: "y", Type: "Normal", Regarding: corev1.ObjectReference{Namespace: "ns"}}, metav1.CreateOptions{}))
		}, []string{"CREATE f"}},
		"scope": {func(w *regv1.ValidatingWebhook) {
			w.Rules = rules("*", "*", "*", "CREATE")
			w.Rules[0].Scope = ptr.To(regv1.ClusterScope)
		}, func(g *gate) {
			g.must(g.create("ns", configMap("a")))
			g.must(g.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "third"}}, metav1.CreateOptions{}))
		}, []string{"CREATE third"}},
		"never their own kind": {func(w *regv1.ValidatingWebhook) { w.Rules = rules("*", "*", "*/*", "*") }, func(g *gate) {
			g.must(nil, g.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), "x", metav1.DeleteOptions{}))
		}, nil},
		"subresources": {func(w *regv1.ValidatingWebhook) { w.Rules = rules("apps", "v1", "deployments/scale", "UPDATE") }, func(g *gate) {
			ctx := context.Background()
			g.must(g.AppsV1().Deployments("ns").Create(ctx, deployment("d"), metav1.CreateOptions{}))
			g.must(g.AppsV1().Deployments("ns").UpdateScale(ctx, "d", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "ns"}, Spec: autoscalingv1.ScaleSpec{Replicas: 4}}, metav1.UpdateOptions{}))
		}, []string{"UPDATE d as autoscaling/v1 Scale 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			hook := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return yes() })
			g.register("x", []regv1.ValidatingWebhook{validating(hook, c.change)})
			c.act(g)
			var got []string
			for _, review := range hook.calls() {
				if s := describe(review.Request); !strings.Contains(s, "marker") {
					got = append(got, s)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func describe(r *admissionv1.AdmissionRequest) string {
	out := string(r.Operation) + " " + r.Name
	if r.Kind.Kind == "Scale" {
		var s autoscalingv1.Scale
		if err := json.Unmarshal(r.Object.Raw, &s); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s as %s %s %d", out, s.APIVersion, s.Kind, s.Spec.Replicas)
	}
	if r.Kind != *r.RequestKind {
		var meta metav1.TypeMeta
		if err := json.Unmarshal(r.Object.Raw, &meta); err != nil {
			return err.Error()
		}
		out += " as " + meta.APIVersion
	}
	return out
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}

func TestMutatingWebhooksInOrderAndAgain(t *testing.T) {
	g := newGate(t)
	add := func(key, when string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var c corev1.ConfigMap
			if err := json.Unmarshal(r.Object.Raw, &c); err != nil {
				t.Error(err)
			}
			if _, is := c.Data[key]; is || when != "" && c.Data[when] == "" {
				return yes()
			}
			return patch(fmt.Sprintf(`[{"op":"add","path":"/data/%s","value":"%d"}]`, key, len(c.Data)))
		}
	}
	// "late" only acts after "second" did, which comes after it: it must be called again.
	late, second, never := newRemote(t, add("late", "second")), newRemote(t, add("second", "")), newRemote(t, add("never", "late"))
	ifNeeded := func(name string) func(*regv1.MutatingWebhook) {
		return func(w *regv1.MutatingWebhook) {
			w.Name, w.ReinvocationPolicy = name+".example.com", ptr.To(regv1.IfNeededReinvocationPolicy)
		}
	}
	g.register("b", []regv1.MutatingWebhook{mutating(second, func(w *regv1.MutatingWebhook) { w.Name = "second.example.com" })})
	g.register("a", []regv1.MutatingWebhook{mutating(late, ifNeeded("late")), mutating(never, func(w *regv1.MutatingWebhook) { w.Name = "never.example.com" })})
	got, err := g.create("ns", configMap("c", func(c *corev1.ConfigMap) { c.Data = map[string]string{"first": "0"} }))
	g.must(got, err)
	if d := cmp.Diff(map[string]string{"first": "0", "second": "1", "late": "2"}, got.Data); d != "" {
		t.Error(d)
	}
	stored, err := g.CoreV1().ConfigMaps("ns").Get(context.Background(), "c", metav1.GetOptions{})
	g.must(stored, err)
	if d := cmp.Diff(got, stored); d != "" {
		t.Error(d)
	}
	if n := len(late.calls()) - len(never.calls()); n != 1 {
		t.Errorf("late was called %d times more than never, want 1", n)
	}
	notes := g.annotations()
	if s := notes["mutation.webhook.admission.k8s.io/round_1_index_1"]; s != `{"configuration":"a","webhook":"late.example.com","mutated":true}` {
		t.Errorf("audit %v", notes)
	}
}

func TestAPatchedPodIsDefaultedAndKeepsItsIdentity(t *testing.T) {
	g := newGate(t)
	hook := newRemote(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patch(`[{"op":"add","path":"/spec/initContainers","value":[{"name":"added","image":"webhook"}]},
			{"op":"replace","path":"/metadata/uid","value":"forged"},{"op":"add","path":"/status","value":{"phase":"Succeeded"}},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)
	})
	g.register("a", []regv1.MutatingWebhook{mutating(hook, func(w *regv1.MutatingWebhook) {
		w.Rules = append(w.Rules, regv1.RuleWithOperations{Operations: []regv1.OperationType{"CREATE"}, Rule: regv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}})
	})})
	pod, err := g.CoreV1().Pods("ns").Create(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	g.must(pod, err)
	if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].TerminationMessagePolicy != corev1.TerminationMessageReadFile || pod.Spec.InitContainers[0].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("the added container: %+v", pod.Spec.InitContainers)
	}
	// The service account's volume is mounted by a built-in plugin, which must have run again.
	if len(pod.Spec.InitContainers[0].VolumeMounts) != 1 {
		t.Errorf("mounts of the added container: %v", pod.Spec.InitContainers[0].VolumeMounts)
	}
	if pod.UID == "forged" || pod.Status.Phase != corev1.PodPending || pod.Labels["a"] != "b" {
		t.Errorf("uid %s, phase %s, labels %v", pod.UID, pod.Status.Phase, pod.Labels)
	}
}

func TestWhenAWebhookFails(t *testing.T) {
	nobody := httptest.NewTLSServer(http.NotFoundHandler())
	nobody.Close()
	ignore := func(w *regv1.ValidatingWebhook) { w.FailurePolicy = ptr.To(regv1.Ignore) }
	slow := func(w *regv1.ValidatingWebhook) { w.TimeoutSeconds = ptr.To(int32(1)) }
	down := func(w *regv1.ValidatingWebhook) { w.ClientConfig.URL = ptr.To(nobody.URL) }
	stranger := func(w *regv1.ValidatingWebhook) { w.ClientConfig.CABundle = nil }
	broken := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }
	ok := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return yes() }
	patches := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return patch(`[]`) }
	for name, c := range map[string]struct {
		answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
		change []func(*regv1.ValidatingWebhook)
		want   string // empty: the request goes on
	}{
		"closed, unreachable":  {ok, []func(*regv1.ValidatingWebhook){down}, `Internal error occurred: failed calling webhook "check.example.com": failed to call webhook: Post "` + nobody.URL + `/?timeout=10s": dial tcp`},
		"open, unreachable":    {ok, []func(*regv1.ValidatingWebhook){down, ignore}, ""},
		"closed, broken":       {broken, nil, `failed to call webhook: an error on the server (`},
		"open, broken":         {broken, []func(*regv1.ValidatingWebhook){ignore}, ""},
		"closed, slow":         {nil, []func(*regv1.ValidatingWebhook){slow}, `/hook?timeout=1s": context deadline exceeded`},
		"open, slow":           {nil, []func(*regv1.ValidatingWebhook){slow, ignore}, ""},
		"unknown certificate":  {ok, []func(*regv1.ValidatingWebhook){stranger}, "certificate signed by unknown authority"},
		"validating, patching": {patches, nil, "received invalid webhook response: validating webhook may not return response.patch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			answer := c.answer
			stuck := make(chan struct{})
			if answer == nil { // never, within the webhook's time
				answer = func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { <-stuck; return yes() }
			}
			hook := newRemote(t, answer)
			t.Cleanup(func() { close(stuck) })
			g.register("x", []regv1.ValidatingWebhook{validating(hook, append(c.change, func(w *regv1.ValidatingWebhook) {
				w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
			})...)})
			_, err := g.create("ns", configMap("a"))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v\nwant %q", err, c.want)
			}
			if c.want == "" && g.annotations()["failed-open.validating.webhook.admission.k8s.io/round_0_index_0"] != "check.example.com" {
				t.Errorf("audit %v", g.annotations())
			}
		})
	}
}

func TestDryRunsReachOnlyWebhooksWithoutSideEffects(t *testing.T) {
	g := newGate(t)
	hook := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return yes() })
	g.register("x", []regv1.ValidatingWebhook{validating(hook)})
	g.must(g.create("ns", configMap("a"), metav1.DryRunAll))
	calls := hook.calls()
	if r := calls[len(calls)-1].Request; r.DryRun == nil || !*r.DryRun {
		t.Errorf("the webhook was not told: %v", r.DryRun)
	}
	if _, err := g.CoreV1().ConfigMaps("ns").Get(context.Background(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run was stored: %v", err)
	}
}

func TestReviewsOfAnOldVersion(t *testing.T) {
	g := newGate(t)
	hook := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"add","path":"/data","value":{"a":"b"}}]`)}
	})
	g.register("x", []regv1.MutatingWebhook{mutating(hook, func(w *regv1.MutatingWebhook) { w.AdmissionReviewVersions = []string{"v7", "v1beta1", "v1"} })})
	got, err := g.create("ns", configMap("a"))
	g.must(got, err)
	if v := hook.calls()[0].APIVersion; v != "admission.k8s.io/v1beta1" || got.Data["a"] != "b" {
		t.Errorf("asked in %s, got %v", v, got.Data)
	}
}

func TestARemovedWebhookIsAskedNoMore(t *testing.T) {
	g := newGate(t)
	hook := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{}
	})
	g.register("x", []regv1.ValidatingWebhook{validating(hook)})
	if _, err := g.create("ns", configMap("a")); err == nil || err.Error() != `admission webhook "check.example.com" denied the request without explanation` {
		t.Errorf("%v", err)
	}
	g.must(nil, g.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), "x", metav1.DeleteOptions{}))
	g.eventually("the webhook is gone", func() bool { _, err := g.create("ns", configMap("a")); return err == nil })
}
