package crd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas, priority: 1}
    - {name: Since, type: date, jsonPath: .spec.since}
    selectableFields: [{jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "!(self.size == 'big' && self.replicas > 3)", message: big ones are few}
            - {rule: "self.size == oldSelf.size || self.size == 'big'", message: it only grows}
            properties:
              size: {type: string, enum: [small, big]}
              code: {type: string, maxLength: 3}
              since: {type: string}
              replicas: {type: integer, default: 2}
              port: {x-kubernetes-int-or-string: true}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, value: {type: string}}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}
`

const one = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: {size: small}}`

func spec(u *unstructured.Unstructured) map[string]any {
	s, _, _ := unstructured.NestedMap(u.Object, "spec")
	return s
}

func TestObjectLivesByItsSchema(t *testing.T) {
	c := start(t)
	c.define(widgets)
	api := c.in("v1", "widgets")
	u := must(api.Create(ctxOf(t), parse(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one},
		spec: {size: small, bogus: 1, free: {any: thing}}, status: {phase: no}}`), metav1.CreateOptions{}))(t)
	if d := cmp.Diff(map[string]any{"size": "small", "replicas": int64(2), "free": map[string]any{"any": "thing"}}, spec(u)); d != "" {
		t.Fatalf("pruned and defaulted: %s", d)
	}
	if u.GetGeneration() != 1 || u.Object["status"] != nil || u.GetUID() == "" {
		t.Fatalf("a new object: %v", u.Object)
	}
	for name, change := range map[string]string{
		"enum":        `{"spec":{"size":"huge"}}`,
		"type":        `{"spec":{"replicas":"x"}}`,
		"expression":  `{"spec":{"size":"big","replicas":9}}`,
		"list map":    `{"spec":{"parts":[{"name":"a"},{"name":"a"}]}}`,
		"negative":    `{"spec":{"replicas":-1}}`,
		"required":    `{"spec":{"parts":[{"value":"a"}]}}`,
		"label value": `{"metadata":{"labels":{"a":"not valid!"}}}`,
	} {
		if _, err := api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(change), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	u = must(api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"spec":{"size":"big"}}`), metav1.PatchOptions{}))(t)
	if u.GetGeneration() != 2 {
		t.Fatalf("generation %d after a change of spec", u.GetGeneration())
	}
	if _, err := api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"spec":{"size":"small"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "it only grows") {
		t.Fatalf("a rule about the old state: %v", err)
	}
	if _, err := api.Patch(ctxOf(t), "one", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Fatalf("strategic merge: %v", err)
	}
	if _, err := api.Update(ctxOf(t), parse(t, one), metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("an update without resourceVersion: %v", err)
	}
}

func TestStrictFields(t *testing.T) {
	c := start(t)
	c.define(widgets)
	post := func(validation, body string) (int, string, []string) {
		resp := must(http.Post(c.url+"/apis/example.com/v1/namespaces/default/widgets?dryRun=All&fieldValidation="+validation, "application/json", strings.NewReader(body)))(t)
		defer resp.Body.Close()
		data := must(io.ReadAll(resp.Body))(t)
		return resp.StatusCode, string(data), resp.Header.Values("Warning")
	}
	body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","odd":1},"spec":{"size":"small","size":"small","bogus":1}}`
	if code, text, _ := post("Strict", body); code != 400 || !strings.Contains(text, `unknown field \"spec.bogus\"`) || !strings.Contains(text, `unknown field \"metadata.odd\"`) || !strings.Contains(text, `duplicate field \"spec.size\"`) {
		t.Fatalf("strict: %d %s", code, text)
	}
	if code, text, warnings := post("Warn", body); code != 201 || len(warnings) != 3 {
		t.Fatalf("warn: %d %s %q", code, text, warnings)
	}
	if code, _, warnings := post("Ignore", body); code != 201 || len(warnings) != 0 {
		t.Fatalf("ignore: %d %q", code, warnings)
	}
	if code, text, _ := post("Warn", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"a":1}}}`); code != 400 {
		t.Fatalf("a label that is a number: %d %s", code, text)
	}
}

// What was wrong before the schema became stricter may stay; what is changed must be right (KEP-4008).
func TestRatchetingAndDefaultsFromStorage(t *testing.T) {
	c := start(t)
	c.define(widgets)
	api := c.in("v1", "widgets")
	must(api.Create(ctxOf(t), parse(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: {size: small, code: abc}}`), metav1.CreateOptions{}))(t)
	c.define(strings.NewReplacer("maxLength: 3", "maxLength: 2", "since: {type: string}", "since: {type: string, default: ever}").Replace(widgets))
	u := must(api.Get(ctxOf(t), "one", metav1.GetOptions{}))(t)
	if spec(u)["since"] != "ever" {
		t.Fatalf("no default on read: %v", spec(u))
	}
	must(api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}))(t)
	if _, err := api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"spec":{"code":"xyz"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("a changed field: %v", err)
	}
	c.define(strings.Replace(widgets, "code: {type: string, maxLength: 3}", "cipher: {type: string}", 1))
	if u := must(api.Get(ctxOf(t), "one", metav1.GetOptions{}))(t); spec(u)["code"] != nil {
		t.Fatalf("a field that the schema lost is shown: %v", spec(u))
	}
}

func TestStatusAndScale(t *testing.T) {
	c := start(t)
	c.define(widgets)
	api := c.in("v1", "widgets")
	must(api.Create(ctxOf(t), parse(t, one), metav1.CreateOptions{}))(t)
	u := must(api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"size":"big"},"status":{"phase":"Up","replicas":1,"selector":"x=y"}}`), metav1.PatchOptions{}, "status"))(t)
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	if phase != "Up" || spec(u)["size"] != "small" || u.GetLabels() != nil || u.GetGeneration() != 1 {
		t.Fatalf("a write of the status: %v", u.Object)
	}
	if _, err := api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"status":{"replicas":"x"}}`), metav1.PatchOptions{}, "status"); !apierrors.IsInvalid(err) {
		t.Fatalf("a status of the wrong type: %v", err)
	}
	scale := must(api.Get(ctxOf(t), "one", metav1.GetOptions{}, "scale"))(t)
	if d := cmp.Diff(map[string]any{"spec": map[string]any{"replicas": int64(2)}, "status": map[string]any{"replicas": int64(1), "selector": "x=y"}},
		map[string]any{"spec": scale.Object["spec"], "status": scale.Object["status"]}); d != "" {
		t.Fatal(d)
	}
	must(api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{}, "scale"))(t)
	// A Scale, unlike the object, may be written without saying which version of it is known.
	scale.SetResourceVersion("")
	scale.Object["spec"] = map[string]any{"replicas": int64(7)}
	must(api.Update(ctxOf(t), scale, metav1.UpdateOptions{}, "scale"))(t)
	if _, err := api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"kind":"Gadget"}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `kind: Invalid value: "Gadget": must be Widget`) {
		t.Fatalf("another kind: %v", err)
	}
	u = must(api.Get(ctxOf(t), "one", metav1.GetOptions{}))(t)
	if spec(u)["replicas"] != int64(7) || u.GetGeneration() != 2 {
		t.Fatalf("scaled: %v", u.Object)
	}
}

func TestApply(t *testing.T) {
	c := start(t)
	c.define(widgets)
	api := c.in("v1", "widgets")
	apply := func(manager string, force bool, spec string) (*unstructured.Unstructured, error) {
		return api.Apply(ctxOf(t), "one", parse(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: `+spec+`}`), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	must(apply("a", false, `{size: small, parts: [{name: x, value: "1"}]}`))(t)
	u := must(apply("b", false, `{parts: [{name: z, value: "2"}]}`))(t)
	if parts, _, _ := unstructured.NestedSlice(u.Object, "spec", "parts"); len(parts) != 2 {
		t.Fatalf("a list by key was not merged: %v", parts)
	}
	if _, err := apply("b", false, `{parts: [{name: x, value: "3"}]}`); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `.spec.parts[name="x"].value`) {
		t.Fatalf("no conflict: %v", err)
	}
	must(apply("b", true, `{parts: [{name: x, value: "3"}]}`))(t)
	u = must(apply("a", false, `{size: small}`))(t)
	if d := cmp.Diff([]any{map[string]any{"name": "x", "value": "3"}}, spec(u)["parts"]); d != "" {
		t.Fatalf("after each gave up a part: %s", d)
	}
	if _, err := apply("a", false, `{bogus: 1}`); err == nil || !strings.Contains(err.Error(), "field not declared in schema") {
		t.Fatalf("an unknown field: %v", err)
	}
	// A plain write takes ownership too.
	must(api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"spec":{"size":"big"}}`), metav1.PatchOptions{FieldManager: "c"}))(t)
	if _, err := apply("a", false, `{size: small}`); !apierrors.IsConflict(err) {
		t.Fatalf("no conflict with a plain write: %v", err)
	}
}

func TestWhatClientsSee(t *testing.T) {
	c := start(t)
	c.define(widgets)
	api := c.in("v1", "widgets")
	for name, size := range map[string]string{"one": "small", "two": "big"} {
		u := parse(t, one)
		u.SetName(name)
		u.Object["spec"] = map[string]any{"size": size, "since": "2020-01-01T00:00:00Z"}
		must(api.Create(ctxOf(t), u, metav1.CreateOptions{}))(t)
	}
	if l := must(api.List(ctxOf(t), metav1.ListOptions{FieldSelector: "spec.size=big"}))(t); len(l.Items) != 1 || l.Items[0].GetName() != "two" || l.GetKind() != "WidgetList" {
		t.Fatalf("selected %v", l)
	}
	if _, err := api.List(ctxOf(t), metav1.ListOptions{FieldSelector: "spec.code=x"}); !apierrors.IsBadRequest(err) {
		t.Fatalf("a field that is not selectable: %v", err)
	}
	req := must(http.NewRequest("GET", c.url+"/apis/example.com/v1/widgets?fieldSelector=spec.size%3Dbig", nil))(t)
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp := must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(resp.Body).Decode(&table); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range table.ColumnDefinitions {
		names = append(names, d.Name)
	}
	if d := cmp.Diff([]string{"Name", "Size", "Replicas", "Since"}, names); d != "" || len(table.Rows) != 1 {
		t.Fatalf("columns: %s, %d rows", d, len(table.Rows))
	}
	cells := table.Rows[0].Cells
	if cells[0] != "two" || cells[1] != "big" || cells[2] != float64(2) || !strings.HasSuffix(cells[3].(string), "y") && !strings.HasSuffix(cells[3].(string), "d") {
		t.Fatalf("cells %v", cells)
	}
	partial := must(must(metadata.NewForConfig(c.config()))(t).Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).
		Namespace("default").List(ctxOf(t), metav1.ListOptions{}))(t)
	if len(partial.Items) != 2 {
		t.Fatalf("metadata of %d objects", len(partial.Items))
	}
	lists := must(c.definitions().Discovery().ServerResourcesForGroupVersion("example.com/v1"))(t)
	if d := cmp.Diff([]string{"widgets", "widgets/scale", "widgets/status"}, []string{lists.APIResources[0].Name, lists.APIResources[1].Name, lists.APIResources[2].Name}); d != "" {
		t.Fatal(d)
	}
	doc := get(t, c.url+"/openapi/v3/apis/example.com/v1")
	if !strings.Contains(doc, `"com.example.v1.Widget"`) || !strings.Contains(doc, "big ones are few") {
		t.Fatal("the schema is not published")
	}
	if !strings.Contains(doc, `"port":{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}`) {
		t.Fatal("the published schema does not say what a port may be")
	}
	if doc := get(t, c.url+"/openapi/v2"); !strings.Contains(doc, `"com.example.v1.Widget"`) {
		t.Fatal("the schema is not published in version 2")
	}
}

func get(t *testing.T, url string) string {
	resp := must(http.Get(url))(t)
	defer resp.Body.Close()
	return string(must(io.ReadAll(resp.Body))(t))
}

func TestNamesAreTakenOnce(t *testing.T) {
	c := start(t)
	c.define(widgets)
	d := parse(t, strings.NewReplacer("widgets", "gadgets", "Widget", "Gadget").Replace(widgets))
	api := must(dynamic.NewForConfig(c.config()))(t).Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	must(api.Create(ctxOf(t), d, metav1.CreateOptions{}))(t) // its short name is wd as well
	condition := func(typ string) string {
		u, err := c.definitions().ApiextensionsV1().CustomResourceDefinitions().Get(ctxOf(t), "gadgets.example.com", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range u.Status.Conditions {
			if string(c.Type) == typ {
				return string(c.Status) + " " + c.Reason
			}
		}
		return ""
	}
	until(t, "refused", func() (bool, error) { return condition("NamesAccepted") == "False ShortNamesConflict", nil })
	if got := condition("Established"); got != "False NotAccepted" {
		t.Fatal(got)
	}
	if err := c.definitions().ApiextensionsV1().CustomResourceDefinitions().Delete(ctxOf(t), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "established once the name is free", func() (bool, error) { return strings.HasPrefix(condition("Established"), "True"), nil })
}

func TestBuiltInResourceIsNotReplaced(t *testing.T) {
	c := start(t)
	r := strings.NewReplacer("widgets", "networkpolicies", "Widget", "NetworkPolicy", "example.com", "networking.k8s.io",
		"metadata: {name", "metadata: {annotations: {api-approved.kubernetes.io: unapproved}, name")
	api := must(dynamic.NewForConfig(c.config()))(t).Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	must(api.Create(ctxOf(t), parse(t, r.Replace(widgets)), metav1.CreateOptions{}))(t)
	until(t, "refused", func() (bool, error) {
		d, err := c.definitions().ApiextensionsV1().CustomResourceDefinitions().Get(ctxOf(t), "networkpolicies.networking.k8s.io", metav1.GetOptions{})
		return err == nil && len(d.Status.Conditions) > 0 && d.Status.Conditions[0].Reason == "PluralConflict", err
	})
	r2, _ := c.gate.Registry().Resource(schema.GroupResource{Group: "networking.k8s.io", Resource: "networkpolicies"})
	if r2.Kind.Dynamic {
		t.Fatal("the built-in kind was replaced")
	}
}

func TestDeletionTakesTheObjects(t *testing.T) {
	c := start(t)
	c.define(widgets)
	api := c.in("v1", "widgets")
	u := parse(t, one)
	u.SetFinalizers([]string{"example.com/hold"})
	must(api.Create(ctxOf(t), u, metav1.CreateOptions{}))(t)
	w := must(api.Watch(ctxOf(t), metav1.ListOptions{}))(t)
	defer w.Stop()
	definitions := c.definitions().ApiextensionsV1().CustomResourceDefinitions()
	if err := definitions.Delete(ctxOf(t), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the object is marked", func() (bool, error) {
		u, err := api.Get(ctxOf(t), "one", metav1.GetOptions{})
		return err == nil && u.GetDeletionTimestamp() != nil, err
	})
	d := must(definitions.Get(ctxOf(t), "widgets.example.com", metav1.GetOptions{}))(t)
	if d.DeletionTimestamp == nil || len(d.Finalizers) != 1 {
		t.Fatalf("a definition that waits: %+v", d.ObjectMeta)
	}
	second := parse(t, one)
	second.SetName("second")
	if _, err := api.Create(ctxOf(t), second, metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Fatalf("a create under a definition that ends: %v", err)
	}
	if _, err := api.Patch(ctxOf(t), "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the definition is gone", func() (bool, error) {
		_, err := definitions.Get(ctxOf(t), "widgets.example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	until(t, "nothing is served", func() (bool, error) {
		_, err := api.List(ctxOf(t), metav1.ListOptions{})
		return apierrors.IsNotFound(err), err
	})
	for e := range w.ResultChan() { // it ends with the resource
		if e.Type == watch.Error {
			t.Fatalf("watch: %v", e.Object)
		}
	}
	c.define(widgets)
	if l := must(api.List(ctxOf(t), metav1.ListOptions{}))(t); len(l.Items) != 0 {
		t.Fatalf("defined again it has %d objects", len(l.Items))
	}
}

func TestObjectsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	c := startOn(t, onDisk(t, dir))
	c.define(widgets)
	before := must(c.in("v1", "widgets").Create(ctxOf(t), parse(t, one), metav1.CreateOptions{}))(t)
	c.stop()
	c = startOn(t, onDisk(t, dir))
	after := must(c.in("v1", "widgets").Get(ctxOf(t), "one", metav1.GetOptions{}))(t) // served before anything else
	if d := cmp.Diff(before, after); d != "" {
		t.Fatal(d)
	}
}
