package apiserver_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
)

func TestPatchTypes(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().AppsV1().Deployments("ns")
	must(c.Create(ctx, deployment("d", 1), metav1.CreateOptions{}))
	for _, p := range []struct {
		name  string
		typ   types.PatchType
		body  string
		check func(*appsv1.Deployment) bool
	}{
		{"json", types.JSONPatchType, `[{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/replicas","value":4}]`,
			func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 4 }},
		{"merge", types.MergePatchType, `{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":5}}`,
			func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 5 && d.Labels["a"] == "b" }},
		{"strategic merges lists by key", types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"F","value":"2"}]},{"name":"c2","image":"j"}]}}}}`,
			func(d *appsv1.Deployment) bool {
				for _, c := range d.Spec.Template.Spec.Containers {
					if c.Name == "c" && (c.Image != "i" || len(c.Env) != 2) {
						return false
					}
				}
				return len(d.Spec.Template.Spec.Containers) == 2
			}},
		{"strategic deletes", types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"c2","$patch":"delete"}]}}}}`,
			func(d *appsv1.Deployment) bool { return len(d.Spec.Template.Spec.Containers) == 1 }},
		{"defaults come back", types.MergePatchType, `{"spec":{"replicas":null}}`,
			func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 }},
		{"merge replaces lists", types.MergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"x","image":"y"}]}}}}`,
			func(d *appsv1.Deployment) bool {
				return len(d.Spec.Template.Spec.Containers) == 1 && len(d.Spec.Template.Spec.Containers[0].Env) == 0
			}},
	} {
		d, err := c.Patch(ctx, "d", p.typ, []byte(p.body), metav1.PatchOptions{})
		if err != nil || !p.check(d) {
			t.Errorf("%s: %v %+v", p.name, err, d)
		}
	}
	d := must(c.Patch(ctx, "d", types.MergePatchType, []byte(`{"status":{"replicas":3},"spec":{"replicas":9}}`), metav1.PatchOptions{}, "status"))
	if d.Status.Replicas != 3 || *d.Spec.Replicas != 1 {
		t.Errorf("a status patch made %d/%d", *d.Spec.Replicas, d.Status.Replicas)
	}
}

func TestPatchRefusals(t *testing.T) {
	h := start(t)
	ctx := within(t)
	must(h.client().CoreV1().ConfigMaps("ns").Create(ctx, configMap("a", map[string]string{"k": "v"}), metav1.CreateOptions{}))
	for _, p := range []struct {
		name, typ, body string
		code            int
		text            string
	}{
		{"unknown type", "application/x-patch", `{}`, 415, "accepted media types include"},
		{"no JSON", "application/merge-patch+json", `{`, 400, "error decoding patch"},
		{"failed test", "application/json-patch+json", `[{"op":"test","path":"/data/k","value":"other"}]`, 422, "testing value"},
		{"missing path", "application/json-patch+json", `[{"op":"remove","path":"/data/none"}]`, 422, "Unable to remove nonexistent key"},
		{"another kind", "application/merge-patch+json", `{"kind":"Secret"}`, 422, "cannot change the kind"},
		{"no name", "application/json-patch+json", `[{"op":"remove","path":"/metadata/name"}]`, 400, "the name of the object (a based on URL) was undeterminable: name must be provided"},
		{"another identity", "application/merge-patch+json", `{"metadata":{"uid":"x"}}`, 422, "metadata.uid: Invalid value: \\\"x\\\": field is immutable"},
		{"rename", "application/merge-patch+json", `{"metadata":{"name":"b"}}`, 400, "does not match the name on the URL"},
		{"wrong type", "application/merge-patch+json", `{"data":{"k":{}}}`, 422, `"message":"Invalid value: json: cannot unmarshal object into Go struct field ConfigMap.data of type string","field":"patch"`},
		{"stale", "application/merge-patch+json", `{"metadata":{"resourceVersion":"7777"},"data":{"k":"w"}}`, 409, "the object has been modified"},
		{"force without apply", "application/merge-patch+json", `{}`, 422, "may not be specified for non-apply patch"},
	} {
		path := "/api/v1/namespaces/ns/configmaps/a"
		if strings.HasPrefix(p.name, "force") {
			path += "?force=true"
		}
		if a := h.do("PATCH", path, p.body, "Content-Type", p.typ); a.code != p.code || !strings.Contains(a.body, p.text) {
			t.Errorf("%s: want %d with %q, got %d %s", p.name, p.code, p.text, a.code, a.body)
		}
	}
	replaced := h.do("PATCH", "/api/v1/namespaces/ns/configmaps/a", `{"$patch":"replace","metadata":{"name":"a"}}`, "Content-Type", "application/strategic-merge-patch+json")
	if replaced.code != 200 || strings.Contains(replaced.body, `"data"`) || !strings.Contains(replaced.body, `"kind":"ConfigMap"`) {
		t.Errorf("a patch that replaces all: %+v", replaced)
	}
	if a := h.do("PATCH", "/api/v1/namespaces/ns/configmaps/none", `{}`, "Content-Type", "application/merge-patch+json"); a.code != 404 {
		t.Errorf("a patch of nothing: %+v", a)
	}
}

// Patches that name no resourceVersion never conflict: each is tried again on the newest state.
func TestConcurrentPatchesAllCount(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			body := `{"data":{"k` + string(rune('a'+i)) + `":"v"}}`
			if _, err := c.Patch(ctx, "a", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := must(c.Get(ctx, "a", metav1.GetOptions{})); len(got.Data) != 20 {
		t.Fatalf("%d of 20 patches are there", len(got.Data))
	}
}

func TestServerSideApply(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().AppsV1().Deployments("ns")
	config := func(replicas int32, env string) *appsapply.DeploymentApplyConfiguration {
		labels := map[string]string{"app": "d"}
		return appsapply.Deployment("d", "ns").WithSpec(appsapply.DeploymentSpec().WithReplicas(replicas).
			WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().WithContainers(
				coreapply.Container().WithName("c").WithImage("i").WithEnv(coreapply.EnvVar().WithName(env).WithValue("1"))))))
	}
	made, err := c.Apply(ctx, config(2, "A"), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil || *made.Spec.Replicas != 2 || made.Generation != 1 {
		t.Fatalf("apply made %+v %v", made, err)
	}
	again, err := c.Apply(ctx, config(2, "A"), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil || again.ResourceVersion != made.ResourceVersion {
		t.Fatalf("the same apply made a change: %v", err)
	}
	_, err = c.Apply(ctx, appsapply.Deployment("d", "ns").WithSpec(appsapply.DeploymentSpec().WithReplicas(3)), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "one": .spec.replicas`) {
		t.Fatalf("a conflicting apply: %v", err)
	}
	status := err.(apierrors.APIStatus).Status()
	if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != metav1.CauseTypeFieldManagerConflict || status.Details.Causes[0].Field != ".spec.replicas" {
		t.Fatalf("causes %+v", status.Details)
	}
	forced := must(c.Apply(ctx, appsapply.Deployment("d", "ns").WithSpec(appsapply.DeploymentSpec().WithReplicas(3)), metav1.ApplyOptions{FieldManager: "two", Force: true}))
	if *forced.Spec.Replicas != 3 {
		t.Fatal("force did not")
	}
	// What a manager no longer applies, and nobody else owns, goes.
	swapped := must(c.Apply(ctx, appsapply.Deployment("d", "ns").WithSpec(config(3, "B").Spec), metav1.ApplyOptions{FieldManager: "one"}))
	if env := swapped.Spec.Template.Spec.Containers[0].Env; len(env) != 1 || env[0].Name != "B" {
		t.Fatalf("env %+v", env)
	}
	if _, err := c.Apply(ctx, config(1, "A"), metav1.ApplyOptions{}); err == nil {
		t.Fatal("an apply without a manager went through")
	}
	st := must(c.ApplyStatus(ctx, appsapply.Deployment("d", "ns").WithStatus(appsapply.DeploymentStatus().WithReadyReplicas(2)), metav1.ApplyOptions{FieldManager: "ctl"}))
	if st.Status.ReadyReplicas != 2 || *st.Spec.Replicas != 3 {
		t.Fatalf("status apply made %+v", st.Status)
	}
}

// A configuration that does not fit is told by the field's path, whatever the client wants to be told of unknown fields, and before anything else.
func TestApplyOfWhatDoesNotFit(t *testing.T) {
	h := start(t)
	const path = "/apis/apps/v1/namespaces/ns/deployments/d?fieldManager=x"
	for _, c := range []struct{ query, body, want string }{
		{"&fieldValidation=Strict", "spec: {foo: 1}\n", "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema"},
		{"", "spec: {foo: 1}\n", "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema"},
		{"&fieldValidation=Ignore", "spec: {foo: 1}\n", "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema"},
		{"", "spec: {replicas: x}\n", "failed to create typed patch object (ns/d; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string"},
	} {
		got := h.do("PATCH", path+c.query, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: ns}\n"+c.body, "Content-Type", "application/apply-patch+yaml")
		if got.code != 400 || !strings.Contains(got.body, c.want) || got.header.Get("Warning") != "" {
			t.Errorf("%s%s: %d, warning %q, %s; want %s", c.query, c.body, got.code, got.header.Get("Warning"), got.body, c.want)
		}
	}
	must(h.client().AppsV1().Deployments("ns").Create(within(t), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "e"}}, metav1.CreateOptions{}))
	other := h.do("PATCH", strings.Replace(path, "/d?", "/e?", 1), "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: e, namespace: ns, uid: abc}\n", "Content-Type", "application/apply-patch+yaml")
	if other.code != 422 || !strings.Contains(other.body, "metadata.uid") || !strings.Contains(other.body, "field is immutable") {
		t.Errorf("one that was made anew: %+v", other)
	}
	gone := h.do("PATCH", path, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: ns, uid: abc}\n", "Content-Type", "application/apply-patch+yaml")
	if gone.code != 409 || !strings.Contains(gone.body, "uid mismatch: the provided object specified uid abc, and no existing object was found") {
		t.Errorf("one that was deleted: %+v", gone)
	}
}

// kubectl apply --server-side on what kubectl apply made takes the fields over from client-side apply.
func TestClientSideApplyMigrates(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	last := `{"apiVersion":"v1","data":{"a":"1","b":"1"},"kind":"ConfigMap","metadata":{"annotations":{},"name":"m","namespace":"ns"}}`
	cm := configMap("m", map[string]string{"a": "1", "b": "1"})
	cm.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: last}
	must(c.Create(ctx, cm, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}))
	got, err := c.Apply(ctx, coreapply.ConfigMap("m", "ns").WithData(map[string]string{"a": "2", "b": "1"}), metav1.ApplyOptions{FieldManager: "kubectl"})
	if err != nil {
		t.Fatalf("the same user's server-side apply conflicts: %v", err)
	}
	if got.Data["a"] != "2" {
		t.Fatal(got.Data)
	}
}

// Several who apply an object that is not there yet all succeed: one makes it, the others change it.
func TestApplyOfANewObjectByMany(t *testing.T) {
	h := start(t)
	maps := h.jsonClient().CoreV1().ConfigMaps("ns")
	for round := range 10 {
		name := fmt.Sprint("new-", round)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k%d":"v"}}`, name, i)
				_, err := maps.Patch(within(t), name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: fmt.Sprint("m", i)})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := must(maps.Get(within(t), name, metav1.GetOptions{})); len(got.Data) != 8 || len(got.ManagedFields) != 8 {
			t.Errorf("%v, %d managers", got.Data, len(got.ManagedFields))
		}
	}
}
