package dynamic_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	regv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestNewObjectsHaveNoIdentityYet: mutating webhooks see an object before it is given a uid, a time and a generated name; validating ones after.
func TestNewObjectsHaveNoIdentityYet(t *testing.T) {
	g := newGate(t)
	before := newRemote(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if strings.Contains(string(r.Object.Raw), "named-by-webhook") {
			return patch(`[{"op":"add","path":"/metadata/name","value":"chosen"}]`)
		}
		return yes()
	})
	after := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return yes() })
	g.register("a", []regv1.MutatingWebhook{mutating(before)})
	g.register("b", []regv1.ValidatingWebhook{validating(after)})
	seen := func(r *remote) (*admissionv1.AdmissionRequest, *corev1.ConfigMap) {
		calls := r.calls()
		request, obj := calls[len(calls)-1].Request, &corev1.ConfigMap{}
		if err := json.Unmarshal(request.Object.Raw, obj); err != nil {
			t.Fatal(err)
		}
		return request, obj
	}
	got, err := g.create("ns", configMap("", func(c *corev1.ConfigMap) {
		c.GenerateName, c.UID, c.Generation, c.CreationTimestamp = "g-", "mine", 7, metav1.NewTime(time.Unix(1, 0))
	}))
	g.must(got, err)
	request, obj := seen(before)
	if request.Name != "" || obj.Name != "" || obj.GenerateName != "g-" || obj.UID != "" || !obj.CreationTimestamp.IsZero() {
		t.Errorf("a mutating webhook saw %q: %+v", request.Name, obj.ObjectMeta)
	}
	request, obj = seen(after)
	if request.Name != got.Name || obj.Name != got.Name || obj.UID != got.UID || obj.CreationTimestamp.IsZero() || got.UID == "mine" || !strings.HasPrefix(got.Name, "g-") {
		t.Errorf("a validating webhook saw %q: %+v, stored %+v", request.Name, obj.ObjectMeta, got.ObjectMeta)
	}
	chosen, err := g.create("ns", configMap("", func(c *corev1.ConfigMap) {
		c.GenerateName, c.Labels = "g-", map[string]string{"a": "named-by-webhook"}
	}))
	g.must(chosen, err)
	if request, _ := seen(after); chosen.Name != "chosen" || request.Name != "chosen" {
		t.Errorf("the name that a webhook chose: %q, validated as %q", chosen.Name, request.Name)
	}
	stored, err := g.CoreV1().ConfigMaps("ns").Get(context.Background(), got.Name, metav1.GetOptions{})
	g.must(stored, err)
	if d := cmp.Diff(got, stored); d != "" {
		t.Error(d)
	}
}

func TestPatchesThatCannotBe(t *testing.T) {
	typed := func(kind admissionv1.PatchType, text string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			a := &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(text)}
			if kind != "" {
				a.PatchType = ptr.To(kind)
			}
			return a
		}
	}
	with := func(text string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return typed("JSONPatch", text)
	}
	ignore := func(w *regv1.MutatingWebhook) { w.FailurePolicy = ptr.To(regv1.Ignore) }
	for name, c := range map[string]struct {
		answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
		change []func(*regv1.MutatingWebhook)
		want   string // empty: the request goes on
	}{
		"empty list":             {with(`[]`), nil, ""},
		"changes nothing":        {with(`[{"op":"test","path":"/kind","value":"ConfigMap"}]`), nil, ""},
		"no JSON":                {with(`{{`), nil, `failed calling webhook "change.example.com": received undecodable patch in webhook response`},
		"no JSON, open":          {with(`{{`), []func(*regv1.MutatingWebhook){ignore}, ""},
		"no list":                {with(`{"op":"remove"}`), nil, "received undecodable patch"},
		"does not apply":         {with(`[{"op":"remove","path":"/data/missing"}]`), nil, `the patch of admission webhook "change.example.com" does not apply`},
		"does not apply, open":   {with(`[{"op":"remove","path":"/data/missing"}]`), []func(*regv1.MutatingWebhook){ignore}, `does not apply`},
		"not an object after it": {with(`[{"op":"replace","path":"/metadata","value":7}]`), nil, "cannot be read"},
		"another namespace":      {with(`[{"op":"replace","path":"/metadata/namespace","value":"other"}]`), nil, "the namespace of the provided object does not match"},
		"no type":                {typed("", `[]`), nil, "webhook returned response.patch but not response.patchType"},
		"unknown type":           {typed("MergePatch", `{}`), nil, `webhook returned invalid response.patchType of "MergePatch"`},
		"type without a patch":   {typed("JSONPatch", ""), nil, "webhook returned response.patchType but not response.patch"},
		"made invalid":           {with(`[{"op":"add","path":"/data","value":{"no spaces":"x"}}]`), nil, `data[no spaces]: Invalid value`},
		"refused and patched": {func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			a := patch(`[]`)
			a.Allowed = false
			return a
		}, nil, "denied the request without explanation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			g.register("x", []regv1.MutatingWebhook{mutating(newRemote(t, c.answer), append(c.change, func(w *regv1.MutatingWebhook) {
				w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
			})...)})
			_, err := g.create("ns", configMap("a"))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v\nwant %q", err, c.want)
			}
		})
	}
}

// TestSelectorsOfNamespacesAndOtherClusterKinds: a namespace is judged by its own labels, old and new; other kinds without a namespace always match.
func TestSelectorsOfNamespacesAndOtherClusterKinds(t *testing.T) {
	g := newGate(t)
	hook := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return yes() })
	g.register("x", []regv1.ValidatingWebhook{validating(hook, func(w *regv1.ValidatingWebhook) {
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
		w.Rules = append(w.Rules, regv1.RuleWithOperations{Operations: []regv1.OperationType{regv1.OperationAll}, Rule: regv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"namespaces", "priorityclasses"}}})
	})})
	ctx := context.Background()
	ns := func(name, team string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
	}
	g.must(g.CoreV1().Namespaces().Create(ctx, ns("fresh-red", "red"), metav1.CreateOptions{}))
	g.must(g.CoreV1().Namespaces().Create(ctx, ns("fresh-blue", "blue"), metav1.CreateOptions{}))
	g.must(g.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1}, metav1.CreateOptions{}))
	g.must(nil, g.CoreV1().Namespaces().Delete(ctx, "fresh-red", metav1.DeleteOptions{}))
	g.must(nil, g.CoreV1().Namespaces().Delete(ctx, "fresh-blue", metav1.DeleteOptions{}))
	var got []string
	for _, c := range hook.calls() {
		got = append(got, string(c.Request.Operation)+" "+c.Request.Resource.Resource+"/"+c.Request.Name)
	}
	if d := cmp.Diff([]string{"CREATE namespaces/fresh-red", "CREATE priorityclasses/high", "DELETE namespaces/fresh-red"}, got); d != "" {
		t.Error(d)
	}
}

// TestAWebhookIsToldHowLongItHas: never longer than the request has itself.
func TestAWebhookIsToldHowLongItHas(t *testing.T) {
	g := newGate(t)
	hook := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return yes() })
	g.register("x", []regv1.ValidatingWebhook{validating(hook, func(w *regv1.ValidatingWebhook) { w.TimeoutSeconds = ptr.To(int32(30)) })})
	told := func() int {
		hook.mu.Lock()
		defer hook.mu.Unlock()
		n, err := strconv.Atoi(strings.TrimSuffix(hook.timeouts[len(hook.timeouts)-1], "s"))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	g.must(g.create("ns", configMap("a")))
	if n := told(); n != 30 {
		t.Errorf("with a minute left: %d s", n)
	}
	g.must(g.CoreV1().RESTClient().Post().Namespace("ns").Resource("configmaps").Param("timeout", "5s").Body(configMap("b")).Do(context.Background()).Get())
	if n := told(); n > 5 {
		t.Errorf("with five seconds left: %d s", n)
	}
}

// TestAMutatingWebhookThatFails: the object of a request that goes on is as it was.
func TestAMutatingWebhookThatFails(t *testing.T) {
	broken := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }
	g := newGate(t)
	g.register("x", []regv1.MutatingWebhook{mutating(newRemote(t, broken), func(w *regv1.MutatingWebhook) {
		w.FailurePolicy, w.NamespaceSelector = ptr.To(regv1.Ignore), &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	})})
	got, err := g.create("ns", configMap("a", func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "b"} }))
	g.must(got, err)
	notes := g.annotations()
	if got.Data["a"] != "b" || notes["failed-open.mutation.webhook.admission.k8s.io/round_0_index_1"] != "change.example.com" {
		t.Errorf("%v, audit %v", got.Data, notes)
	}
	g.register("y", []regv1.MutatingWebhook{mutating(newRemote(t, broken), func(w *regv1.MutatingWebhook) {
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	})})
	if _, err := g.create("ns", configMap("b")); !apierrors.IsInternalError(err) {
		t.Errorf("%v", err)
	}
}
