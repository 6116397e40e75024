package dynamic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	regv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func choose(group, resource string, ops ...regv1.OperationType) *regv1.MatchResources {
	return &regv1.MatchResources{ResourceRules: []regv1.NamedRuleWithOperations{{RuleWithOperations: regv1.RuleWithOperations{Operations: ops,
		Rule: regv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}}}}}}
}

// enforce stores a policy named p and a binding named b, and waits until they count: an object named marker is refused.
func (g *gate) enforce(spec regv1.ValidatingAdmissionPolicySpec, b regv1.ValidatingAdmissionPolicyBindingSpec) {
	g.t.Helper()
	ctx := context.Background()
	if spec.MatchConstraints == nil {
		spec.MatchConstraints = choose("", "configmaps", "CREATE", "UPDATE", "DELETE")
	}
	if b.ValidationActions == nil {
		b.ValidationActions = []regv1.ValidationAction{regv1.Deny}
	}
	b.PolicyName = "p"
	api := g.AdmissionregistrationV1()
	g.must(api.ValidatingAdmissionPolicies().Create(ctx, &regv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec}, metav1.CreateOptions{}))
	g.must(api.ValidatingAdmissionPolicyBindings().Create(ctx, &regv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: b}, metav1.CreateOptions{}))
	marker := &regv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a-marker"}, Spec: regv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: choose("", "configmaps", "CREATE"), Validations: []regv1.Validation{{Expression: `object.metadata.name != "marker"`, Message: "policies count"}}}}
	g.must(api.ValidatingAdmissionPolicies().Create(ctx, marker, metav1.CreateOptions{}))
	g.must(api.ValidatingAdmissionPolicyBindings().Create(ctx, &regv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "a-marker"},
		Spec: regv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "a-marker", ValidationActions: []regv1.ValidationAction{regv1.Deny}}}, metav1.CreateOptions{}))
	g.eventually("policies count", func() bool {
		_, err := g.create("other", configMap("marker"), metav1.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "policies count")
	})
}

func TestAValidatingPolicy(t *testing.T) {
	fail := []regv1.Validation{{Expression: `!has(object.data) || size(object.data) < 2`}}
	two := func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "1", "b": "2"} }
	for name, c := range map[string]struct {
		spec    regv1.ValidatingAdmissionPolicySpec
		binding regv1.ValidatingAdmissionPolicyBindingSpec
		object  func(*corev1.ConfigMap)
		want    string // empty: accepted
		code    int32
		warning string
		audit   map[string]string
	}{
		"accepts": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: fail}},
		"refuses": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: fail}, object: two, code: 422,
			want: `configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: !has(object.data) || size(object.data) < 2`},
		"in its own words, with its own reason": {spec: regv1.ValidatingAdmissionPolicySpec{
			Variables: []regv1.Variable{{Name: "n", Expression: `size(object.data)`}},
			Validations: []regv1.Validation{{Expression: `variables.n < 2`, MessageExpression: `"there are " + string(variables.n) + " in " + namespaceObject.metadata.labels.team`,
				Reason: ptr.To(metav1.StatusReasonForbidden)}}}, object: two, code: 403, want: "denied request: there are 2 in red"},
		"message when the expression for it fails": {spec: regv1.ValidatingAdmissionPolicySpec{
			Validations: []regv1.Validation{{Expression: `false`, MessageExpression: `string(object.data.missing)`, Message: "plain"}}}, object: two, code: 422, want: "denied request: plain"},
		"warns": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: fail}, object: two, binding: regv1.ValidatingAdmissionPolicyBindingSpec{ValidationActions: []regv1.ValidationAction{regv1.Warn, regv1.Audit}},
			warning: `Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: !has(object.data) || size(object.data) < 2`,
			audit:   map[string]string{"validation.policy.admission.k8s.io/validation_failure": `[{"message":"failed expression: !has(object.data) || size(object.data) \u003c 2","policy":"p","binding":"b","expressionIndex":0,"validationActions":["Warn","Audit"]}]`}},
		"notes": {spec: regv1.ValidatingAdmissionPolicySpec{AuditAnnotations: []regv1.AuditAnnotation{{Key: "who", ValueExpression: `request.userInfo.username + " " + request.operation`}, {Key: "none", ValueExpression: `null`}}},
			audit: map[string]string{"p/who": "tester CREATE"}},
		"an expression that fails refuses": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: []regv1.Validation{{Expression: `object.data.a == "1"`}}}, code: 422,
			want: `denied request: expression 'object.data.a == "1"' resulted in error: no such key: data`},
		"or is passed over": {spec: regv1.ValidatingAdmissionPolicySpec{FailurePolicy: ptr.To(regv1.Ignore), Validations: []regv1.Validation{{Expression: `object.data.a == "1"`}}}},
		"match conditions": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: []regv1.Validation{{Expression: `false`}},
			MatchConditions: []regv1.MatchCondition{{Name: "other", Expression: `object.metadata.name != "c"`}}}},
		"binding for other namespaces": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: []regv1.Validation{{Expression: `false`}}},
			binding: regv1.ValidatingAdmissionPolicyBindingSpec{MatchResources: &regv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}}}},
		"excluded by name": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: []regv1.Validation{{Expression: `false`}}},
			binding: regv1.ValidatingAdmissionPolicyBindingSpec{MatchResources: &regv1.MatchResources{ExcludeResourceRules: []regv1.NamedRuleWithOperations{{ResourceNames: []string{"c"},
				RuleWithOperations: choose("", "configmaps", "*").ResourceRules[0].RuleWithOperations}}}}},
		"asks what the user may do": {spec: regv1.ValidatingAdmissionPolicySpec{Validations: []regv1.Validation{
			{Expression: `authorizer.group("").resource("pods").namespace("ns").check("create").allowed() && authorizer.requestResource.check("delete").allowed()`}}}},
		"parameters that are missing": {spec: regv1.ValidatingAdmissionPolicySpec{ParamKind: &regv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, Validations: []regv1.Validation{{Expression: `false`}}},
			binding: regv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &regv1.ParamRef{Name: "gone", ParameterNotFoundAction: ptr.To(regv1.DenyAction)}}, code: 422,
			want: "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		"parameters that may be missing": {spec: regv1.ValidatingAdmissionPolicySpec{ParamKind: &regv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, Validations: []regv1.Validation{{Expression: `false`}}},
			binding: regv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &regv1.ParamRef{Name: "gone", ParameterNotFoundAction: ptr.To(regv1.AllowAction)}}},
		"parameters of an unknown kind": {spec: regv1.ValidatingAdmissionPolicySpec{ParamKind: &regv1.ParamKind{APIVersion: "x.y/v1", Kind: "Z"}, Validations: []regv1.Validation{{Expression: `false`}}},
			binding: regv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &regv1.ParamRef{Name: "z", ParameterNotFoundAction: ptr.To(regv1.DenyAction)}}, code: 422,
			want: "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'x.y/v1, Kind=Z'"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			g.enforce(c.spec, c.binding)
			object := configMap("c")
			if c.object != nil {
				c.object(object)
			}
			_, err := g.create("ns", object)
			var status *apierrors.StatusError
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v\nwant %q", err, c.want)
			} else if err != nil && asStatus(err, &status) && status.ErrStatus.Code != c.code {
				t.Errorf("code %d, want %d", status.ErrStatus.Code, c.code)
			}
			if g.warnings() != c.warning {
				t.Errorf("warned %q", g.warnings())
			}
			if d := cmp.Diff(c.audit, g.annotations()); d != "" {
				t.Error(d)
			}
		})
	}
}

func asStatus(err error, to **apierrors.StatusError) bool {
	s, ok := err.(*apierrors.StatusError)
	*to = s
	return ok
}

func TestParametersDecideByTheirContent(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	for namespace, limit := range map[string]string{"ns": "1", "other": "3"} {
		g.must(g.create(namespace, configMap("limit", func(c *corev1.ConfigMap) {
			c.Labels, c.Data = map[string]string{"limits": "yes"}, map[string]string{"max": limit}
		})))
	}
	spec := regv1.ValidatingAdmissionPolicySpec{ParamKind: &regv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, MatchConstraints: choose("apps", "deployments", "CREATE", "UPDATE"),
		Validations: []regv1.Validation{{Expression: `object.spec.replicas <= int(params.data.max)`, MessageExpression: `"at most " + params.data.max`}}}
	g.enforce(spec, regv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &regv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"limits": "yes"}}, ParameterNotFoundAction: ptr.To(regv1.DenyAction)}})
	try := func(namespace string, n int32) error {
		d := deployment("d")
		d.Namespace, d.Spec.Replicas = namespace, &n
		_, err := g.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{DryRun: []string{"All"}})
		return err
	}
	if err := try("ns", 2); err == nil || !strings.Contains(err.Error(), "at most 1") {
		t.Errorf("two in ns: %v", err)
	}
	if err := try("other", 3); err != nil {
		t.Errorf("three in other: %v", err)
	}
	g.must(g.CoreV1().ConfigMaps("ns").Update(ctx, configMap("limit", func(c *corev1.ConfigMap) {
		c.Labels, c.Data = map[string]string{"limits": "yes"}, map[string]string{"max": "2"}
	}), metav1.UpdateOptions{}))
	if err := try("ns", 2); err != nil { // parameters are read from the store: no delay
		t.Errorf("two in ns after the limit was raised: %v", err)
	}
}

func TestTypeChecking(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	g.enforce(regv1.ValidatingAdmissionPolicySpec{MatchConstraints: choose("apps", "deployments", "CREATE"), Variables: []regv1.Variable{{Name: "r", Expression: "object.spec.replicas"}},
		Validations: []regv1.Validation{{Expression: `object.spec.replicas > '1'`}, {Expression: `variables.r > 1`, MessageExpression: `'wanted, not ' + variables.r`}, {Expression: `object.spec.template.spec.containers.all(c, c.nothing == 1)`}}},
		regv1.ValidatingAdmissionPolicyBindingSpec{})
	var checked *regv1.ValidatingAdmissionPolicy
	g.eventually("the status is written", func() bool {
		p, err := g.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "p", metav1.GetOptions{})
		g.must(p, err)
		checked = p
		return p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil
	})
	want := []string{"spec.validations[0].expression found no matching overload for '_>_' applied to '(int, string)'",
		"spec.validations[1].messageExpression found no matching overload for '_+_' applied to '(string, int)'", "spec.validations[2].expression undefined field 'nothing'"}
	if len(checked.Status.TypeChecking.ExpressionWarnings) != len(want) {
		t.Fatalf("%+v", checked.Status.TypeChecking)
	}
	for i, w := range checked.Status.TypeChecking.ExpressionWarnings {
		ref, text, _ := strings.Cut(want[i], " ")
		if w.FieldRef != ref || !strings.Contains(w.Warning, text) || !strings.Contains(w.Warning, "apps/v1, Kind=Deployment") {
			t.Errorf("got %s %s\nwant %s", w.FieldRef, w.Warning, want[i])
		}
	}
}

// mutateBy stores a mutating policy with the mutations, and waits until it counts.
func (g *gate) mutateBy(name string, spec regv1.MutatingAdmissionPolicySpec) {
	g.t.Helper()
	ctx := context.Background()
	if spec.ReinvocationPolicy == "" {
		spec.ReinvocationPolicy = regv1.NeverReinvocationPolicy
	}
	spec.Mutations = append(spec.Mutations, regv1.Mutation{PatchType: regv1.PatchTypeJSONPatch, JSONPatch: &regv1.JSONPatch{
		Expression: `object.metadata.name == "marker" ? [JSONPatch{op: "add", path: "/metadata/labels", value: object.metadata.labels}, JSONPatch{op: "add", path: "/metadata/labels/marked-` + name + `", value: "yes"}] : []`}})
	api := g.AdmissionregistrationV1()
	g.must(api.MutatingAdmissionPolicies().Create(ctx, &regv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}))
	g.must(api.MutatingAdmissionPolicyBindings().Create(ctx, &regv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: regv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}, metav1.CreateOptions{}))
	g.eventually("policy "+name+" counts", func() bool {
		d := deployment("marker")
		d.Labels = map[string]string{"a": "b"}
		out, err := g.AppsV1().Deployments("ns").Create(ctx, d, metav1.CreateOptions{DryRun: []string{"All"}})
		if err != nil {
			g.t.Fatal(err)
		}
		return out.Labels["marked-"+name] != ""
	})
}

func apply(text string) regv1.Mutation {
	return regv1.Mutation{PatchType: regv1.PatchTypeApplyConfiguration, ApplyConfiguration: &regv1.ApplyConfiguration{Expression: text}}
}

func jsonPatch(text string) regv1.Mutation {
	return regv1.Mutation{PatchType: regv1.PatchTypeJSONPatch, JSONPatch: &regv1.JSONPatch{Expression: text}}
}

func TestMutatingPolicies(t *testing.T) {
	notMarker := `object.metadata.name == "marker" ? `
	for name, c := range map[string]struct {
		mutations []regv1.Mutation
		want      func(*appsv1.Deployment)
		refused   string
	}{
		"apply configuration": {mutations: []regv1.Mutation{apply(`Object{metadata: Object.metadata{annotations: {"a": "b"}}, spec: Object.spec{replicas: 3, template: Object.spec.template{spec: Object.spec.template.spec{
			containers: [Object.spec.template.spec.containers{name: "c", workingDir: "/w"}, Object.spec.template.spec.containers{name: "side", image: "s"}]}}}}`)}, want: func(d *appsv1.Deployment) {
			d.Annotations, d.Spec.Replicas = map[string]string{"a": "b"}, ptr.To(int32(3))
			spec := &d.Spec.Template.Spec
			spec.Containers[0].WorkingDir = "/w"
			side := spec.Containers[0]
			side.Name, side.Image, side.WorkingDir = "side", "s", ""
			spec.Containers = append(spec.Containers, side)
		}},
		"JSON patch, after another mutation": {mutations: []regv1.Mutation{apply(`Object{spec: Object.spec{replicas: 3}}`),
			jsonPatch(`[JSONPatch{op: "test", path: "/spec/replicas", value: 3}, JSONPatch{op: "add", path: "/metadata/annotations", value: {"a": "b"}}, JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("x/y"), value: string(object.spec.replicas)}]`)}, want: func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Annotations = ptr.To(int32(3)), map[string]string{"a": "b", "x/y": "3"}
		}},
		"a test that fails changes nothing": {mutations: []regv1.Mutation{jsonPatch(`[JSONPatch{op: "test", path: "/spec/replicas", value: 9}, JSONPatch{op: "replace", path: "/spec/replicas", value: 8}]`)}, want: func(*appsv1.Deployment) {}},
		"status is not its to write":        {mutations: []regv1.Mutation{jsonPatch(`[JSONPatch{op: "add", path: "/status", value: {"replicas": 4}}]`)}, want: func(*appsv1.Deployment) {}},
		"unknown field":                     {mutations: []regv1.Mutation{jsonPatch(notMarker + `[] : [JSONPatch{op: "add", path: "/spec/nonsense", value: 1}]`)}, refused: `policy 'm' with binding 'm' denied request: the changed object cannot be read: unknown field "spec.nonsense"`},
		"atomic list": {mutations: []regv1.Mutation{apply(notMarker + `Object{} : Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{tolerations: [Object.spec.template.spec.tolerations{key: "k"}]}}}}`)},
			refused: "may not mutate atomic arrays, maps or structs: .spec.template.spec.tolerations"},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := newGate(t), context.Background()
			plain, err := g.AppsV1().Deployments("ns").Create(ctx, deployment("d"), metav1.CreateOptions{DryRun: []string{"All"}})
			g.must(plain, err)
			g.mutateBy("m", regv1.MutatingAdmissionPolicySpec{MatchConstraints: choose("apps", "deployments", "CREATE"), Mutations: c.mutations})
			got, err := g.AppsV1().Deployments("ns").Create(ctx, deployment("d"), metav1.CreateOptions{})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %v\nwant %s", err, c.refused)
				}
				return
			}
			g.must(got, err)
			want := plain.DeepCopy()
			c.want(want)
			if d := cmp.Diff([]any{want.Labels, want.Annotations, want.Spec, want.Status}, []any{got.Labels, got.Annotations, got.Spec, got.Status}); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestPoliciesAreInvokedAgain(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	count := func(key, when string) []regv1.Mutation {
		return []regv1.Mutation{jsonPatch(fmt.Sprintf(`has(object.metadata.annotations) && %q in object.metadata.annotations && !(%q in object.metadata.annotations) ?
			[JSONPatch{op: "add", path: "/metadata/annotations/%s", value: string(size(object.metadata.annotations))}] : []`, when, key, key))}
	}
	match := choose("apps", "deployments", "CREATE")
	g.mutateBy("a", regv1.MutatingAdmissionPolicySpec{MatchConstraints: match, Mutations: count("late", "early"), ReinvocationPolicy: regv1.IfNeededReinvocationPolicy})
	g.mutateBy("b", regv1.MutatingAdmissionPolicySpec{MatchConstraints: match, Mutations: count("early", "given")})
	g.mutateBy("c", regv1.MutatingAdmissionPolicySpec{MatchConstraints: match, Mutations: count("never", "late")})
	d := deployment("d")
	d.Annotations = map[string]string{"given": "0"}
	got, err := g.AppsV1().Deployments("ns").Create(ctx, d, metav1.CreateOptions{})
	g.must(got, err)
	if d := cmp.Diff(map[string]string{"given": "0", "early": "1", "late": "2"}, got.Annotations); d != "" {
		t.Error(d)
	}
}
