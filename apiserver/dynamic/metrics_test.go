package dynamic_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	regv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// counted reads the counters, and how often histograms were told of something, of the metrics that begin so; those about markers are left out.
func (g *gate) counted(prefix string) []string {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if name, ok := strings.CutPrefix(f.GetName(), prefix); ok {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				n := m.GetCounter().GetValue()
				if h := m.GetHistogram(); h != nil {
					n = float64(h.GetSampleCount())
				}
				if line := fmt.Sprintf("%s{%s} %v", name, strings.Join(labels, ","), n); !strings.Contains(line, "marker") {
					out = append(out, line)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestWebhooksAreCounted(t *testing.T) {
	g := newGate(t)
	answer := func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		switch {
		case strings.HasPrefix(r.Name, "refused"):
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 418}}
		case strings.HasPrefix(r.Name, "broken"):
			return nil
		}
		return yes()
	}
	condition := []regv1.MatchCondition{{Name: "c", Expression: `object.metadata.name != "excluded"`}}
	red := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	g.register("a", []regv1.ValidatingWebhook{validating(newRemote(t, answer), func(w *regv1.ValidatingWebhook) { w.MatchConditions, w.NamespaceSelector = condition, red })})
	g.register("b", []regv1.MutatingWebhook{mutating(newRemote(t, answer), func(w *regv1.MutatingWebhook) {
		w.MatchConditions, w.NamespaceSelector, w.FailurePolicy = []regv1.MatchCondition{{Name: "c", Expression: `object.metadata.name.startsWith("broken")`}}, red, ptr.To(regv1.Ignore)
	})})
	for _, name := range []string{"fine", "refused", "broken", "excluded"} {
		_, _ = g.create("ns", configMap(name)) // what becomes of them is counted
	}
	want := []string{
		"match_condition_evaluation_seconds{kind=webhook,name=change.example.com,operation=CREATE,type=admit} 4",
		"match_condition_evaluation_seconds{kind=webhook,name=check.example.com,operation=CREATE,type=validating} 4",
		"match_condition_exclusions_total{kind=webhook,name=change.example.com,operation=CREATE,type=admit} 3",
		"match_condition_exclusions_total{kind=webhook,name=check.example.com,operation=CREATE,type=validating} 1",
		"webhook_admission_duration_seconds{name=change.example.com,operation=CREATE,rejected=false,type=admit} 1",
		"webhook_admission_duration_seconds{name=check.example.com,operation=CREATE,rejected=false,type=validating} 1",
		"webhook_admission_duration_seconds{name=check.example.com,operation=CREATE,rejected=true,type=validating} 2",
		"webhook_fail_open_count{name=change.example.com,type=admit} 1",
		"webhook_rejection_count{error_type=calling_webhook_error,name=check.example.com,operation=CREATE,rejection_code=500,type=validating} 1",
		"webhook_rejection_count{error_type=no_error,name=check.example.com,operation=CREATE,rejection_code=418,type=validating} 1",
		"webhook_request_total{code=200,name=check.example.com,operation=CREATE,rejected=false,type=validating} 1",
		"webhook_request_total{code=418,name=check.example.com,operation=CREATE,rejected=true,type=validating} 1",
		"webhook_request_total{code=500,name=change.example.com,operation=CREATE,rejected=false,type=admit} 1",
		"webhook_request_total{code=500,name=check.example.com,operation=CREATE,rejected=true,type=validating} 1",
	}
	got := slices.DeleteFunc(g.counted("apiserver_admission_"), func(s string) bool { return strings.HasPrefix(s, "step") || strings.HasPrefix(s, "controller") })
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestPoliciesAreCounted(t *testing.T) {
	g := newGate(t)
	ctx := context.Background()
	g.must(g.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, &regv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: regv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &regv1.MatchResources{ResourceRules: []regv1.NamedRuleWithOperations{{RuleWithOperations: anyConfigMap[0]}}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}},
		Validations:      []regv1.Validation{{Expression: `!has(object.data) || object.data["missing"] == "never"`}, {Expression: `object.metadata.name != "refused"`}},
	}}, metav1.CreateOptions{}))
	g.must(g.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, &regv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: regv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p", ValidationActions: []regv1.ValidationAction{regv1.Deny, regv1.Audit}}}, metav1.CreateOptions{}))
	g.eventually("the policy counts", func() bool { _, err := g.create("ns", configMap("refused"), metav1.DryRunAll); return err != nil })
	before := len(g.counted("apiserver_validating_admission_policy_check_total"))
	if _, err := g.create("ns", configMap("a", func(c *corev1.ConfigMap) { c.Data = map[string]string{"x": "y"} })); err == nil {
		t.Error("an expression that fails refused nothing")
	}
	want := []string{
		"{enforcement_action=audit,error_type=invalid_error,policy=p,policy_binding=b} 1", "{enforcement_action=audit,error_type=no_error,policy=p,policy_binding=b} 1",
		"{enforcement_action=deny,error_type=invalid_error,policy=p,policy_binding=b} 1", "{enforcement_action=deny,error_type=no_error,policy=p,policy_binding=b} 1",
	}
	if d := cmp.Diff(want, g.counted("apiserver_validating_admission_policy_check_total")); d != "" || before != 2 {
		t.Errorf("%d before; %s", before, d)
	}
}

// TestPluginsAreTimedOnceSomebodyReads: the first reading finds nothing, and what comes after it is all there.
func TestPluginsAreTimedOnceSomebodyReads(t *testing.T) {
	g := newGate(t)
	g.must(g.create("ns", configMap("before")))
	if got := g.counted("apiserver_admission_step"); len(got) != 0 {
		t.Errorf("counted for nobody: %v", got)
	}
	g.must(g.create("ns", configMap("after")))
	_, err := g.create("nowhere", configMap("refused"))
	if err == nil {
		t.Fatal("created in nowhere")
	}
	want := []string{"_admission_duration_seconds{operation=CREATE,rejected=false,type=admit} 1", "_admission_duration_seconds{operation=CREATE,rejected=false,type=validate} 1",
		"_admission_duration_seconds{operation=CREATE,rejected=true,type=admit} 1"}
	if d := cmp.Diff(want, g.counted("apiserver_admission_step")); d != "" {
		t.Error(d)
	}
	plugins := strings.Join(g.counted("apiserver_admission_controller_admission_duration_seconds"), "\n")
	for _, line := range []string{"{name=LimitRanger,operation=CREATE,rejected=false,type=admit} 1", "{name=ResourceQuota,operation=CREATE,rejected=false,type=validate} 1",
		"{name=NamespaceLifecycle,operation=CREATE,rejected=true,type=admit} 1"} {
		if !strings.Contains(plugins, line) {
			t.Errorf("no %s in\n%s", line, plugins)
		}
	}
}

func TestWebhooksCanBeSwitchedOff(t *testing.T) {
	no := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{}
	}
	g := newGate(t, "ValidatingAdmissionWebhook")
	ctx := context.Background()
	g.must(g.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &regv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Webhooks: []regv1.ValidatingWebhook{validating(newRemote(t, no))}}, metav1.CreateOptions{}))
	// A mutating webhook that counts shows that the validating one would, too.
	g.register("b", []regv1.MutatingWebhook{mutating(newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return yes() }))})
	g.must(g.create("ns", configMap("a")))
}
