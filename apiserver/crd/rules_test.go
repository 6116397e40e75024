package crd_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {plural: gadgets, kind: Gadget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .spec.count}, {jsonPath: .spec.lit}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "!has(self.max) || self.count <= self.max", messageExpression: "self.max == 2 ? 'at most 2 of them' : 'fewer'", fieldPath: .count, reason: FieldValueForbidden}
            - {rule: "oldSelf.hasValue() || self.count < 100", optionalOldSelf: true, message: new ones are small}
            properties:
              count: {type: integer, default: 1}
              max: {type: integer}
              lit: {type: boolean}
              port: {x-kubernetes-int-or-string: true}
              note: {type: string, nullable: true, default: none}
              tags: {type: array, maxItems: 8, x-kubernetes-list-type: set, items: {type: string, maxLength: 8}}
              inner: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              fixed: {type: string, x-kubernetes-validations: [{rule: "self == oldSelf", message: it stays}]}
              short: {type: string, maxLength: 20}
`

func gadget(spec string) string {
	return `{apiVersion: example.com/v1, kind: Gadget, metadata: {name: g}, spec: ` + spec + `}`
}

func TestRulesOfASchema(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	api := c.in("v1", "gadgets")
	for name, test := range map[string]struct{ spec, want string }{ // want: part of the refusal, or nothing
		"a number or a text":     {`{port: http}`, ""},
		"neither":                {`{port: [1]}`, "spec.port"},
		"null where it may be":   {`{note: null}`, ""},
		"a set":                  {`{tags: [a, b]}`, ""},
		"a set with a double":    {`{tags: [a, a]}`, `spec.tags[1]: Duplicate value: "a"`},
		"whole object":           {`{inner: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {x: 1}}}`, ""},
		"object without kind":    {`{inner: {apiVersion: v1}}`, "spec.inner.kind: Required value"},
		"object with a bad name": {`{inner: {apiVersion: v1, kind: Pod, metadata: {name: a/b}}}`, "spec.inner.metadata.name"},
		"own message and path":   {`{count: 3, max: 2}`, "spec.count: Forbidden: at most 2 of them"},
		"optional old self":      {`{count: 100}`, "new ones are small"},
		"too long":               {`{short: "` + strings.Repeat("x", 21) + `"}`, "may not be more than 20"},
	} {
		_, err := api.Create(ctxOf(t), parse(t, gadget(test.spec)), metav1.CreateOptions{DryRun: []string{"All"}})
		if test.want == "" && err != nil || test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: want %q, got %v", name, test.want, err)
		}
	}
	u := must(api.Create(ctxOf(t), parse(t, gadget(`{note: null, fixed: a, lit: true, count: 7, short: `+strings.Repeat("x", 20)+`}`)), metav1.CreateOptions{}))(t)
	if note, has := spec(u)["note"]; !has || note != nil {
		t.Errorf("a null that may be was defaulted to %v", note)
	}
	patch := func(change string) error {
		_, err := api.Patch(ctxOf(t), "g", types.MergePatchType, []byte(change), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"spec":{"fixed":"b"}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "it stays") {
		t.Errorf("a transition rule: %v", err)
	}
	if err := patch(`{"spec":{"count":100}}`); err != nil {
		t.Errorf("a rule for new objects only: %v", err)
	}
	for selector, want := range map[string]int{"spec.count=100": 1, "spec.count=7": 0, "spec.lit=true": 1, "spec.lit!=true": 0, "spec.count=100,metadata.name=g": 1} {
		list := must(api.List(ctxOf(t), metav1.ListOptions{FieldSelector: selector}))(t)
		if len(list.Items) != want {
			t.Errorf("%s selects %d", selector, len(list.Items))
		}
	}
	if _, err := api.List(ctxOf(t), metav1.ListOptions{FieldSelector: "spec.port=1"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that cannot be selected: %v", err)
	}
}

// A rule that the object breaks since the definition has it does not keep other fields from being changed (KEP-4008).
func TestRatchetingOfExpressions(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	api := c.in("v1", "gadgets")
	must(api.Create(ctxOf(t), parse(t, gadget(`{short: long, fixed: a}`)), metav1.CreateOptions{}))(t)
	c.define(strings.Replace(gadgets, "short: {type: string, maxLength: 20}", `short: {type: string, maxLength: 20, x-kubernetes-validations: [{rule: "self.size() < 3"}]}`, 1))
	if _, err := api.Patch(ctxOf(t), "g", types.MergePatchType, []byte(`{"spec":{"count":2}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a change beside the fault: %v", err)
	}
	if _, err := api.Patch(ctxOf(t), "g", types.MergePatchType, []byte(`{"spec":{"short":"also long"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a change of the fault: %v", err)
	}
}

func TestDefinitionsThatAreRefused(t *testing.T) {
	c := start(t)
	api := c.definitions().ApiextensionsV1().CustomResourceDefinitions()
	for name, test := range map[string]struct{ from, to, want string }{
		"not structural":      {"port: {x-kubernetes-int-or-string: true}", "port: {}", "must not be empty for specified object fields"},
		"a default that lies": {"default: 1}", "default: x}", "default"},
		"costly rule":         {"tags: {type: array, maxItems: 8,", `tags: {type: array, x-kubernetes-validations: [{rule: "self.all(x, self.all(y, x == y || x != y))"}],`, "estimated rule cost"},
		"rule with a fault":   {`"self == oldSelf"`, `"self == 1"`, "compilation failed"},
		"path to nowhere":     {"fieldPath: .count", "fieldPath: .none", "fieldPath"},
		"set of anything":     {"items: {type: string, maxLength: 8}", "items: {type: object}", "x-kubernetes-"},
		"two stored versions": {"  versions:\n", "  versions:\n  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n", "must have exactly one version marked as storage version"},
		"wrong name":          {"name: gadgets.example.com", "name: gadget.example.com", `must be spec.names.plural+"."+spec.group`},
	} {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal([]byte(strings.Replace(gadgets, test.from, test.to, 1)), d); err != nil {
			t.Fatal(name, err)
		}
		if _, err := api.Create(ctxOf(t), d, metav1.CreateOptions{DryRun: []string{"All"}}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: want %q, got %v", name, test.want, err)
		}
	}
}

// Custom objects have no protobuf form.
func TestProtobufIsRefusedForCustomObjects(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	const protobuf = "application/vnd.kubernetes.protobuf"
	do := func(method, contentType, accept, body string) (int, string) {
		req := must(http.NewRequestWithContext(ctxOf(t), method, c.url+"/apis/example.com/v1/namespaces/default/gadgets", strings.NewReader(body)))(t)
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Accept", accept)
		resp := must(http.DefaultClient.Do(req))(t)
		defer resp.Body.Close()
		return resp.StatusCode, string(must(io.ReadAll(resp.Body))(t))
	}
	if code, text := do("GET", "", protobuf, ""); code != http.StatusNotAcceptable {
		t.Errorf("a list in protobuf: %d %s", code, text)
	}
	if code, text := do("GET", "", protobuf+",application/json", ""); code != http.StatusOK || !strings.HasPrefix(text, "{") {
		t.Errorf("a list in protobuf or JSON: %d %s", code, text)
	}
	if code, text := do("POST", protobuf, "application/json", "k8s\x00"); code != http.StatusUnsupportedMediaType {
		t.Errorf("a protobuf body: %d %s", code, text)
	}
}

// A version leaves the definition only when no object can be stored in it any more.
func TestStoredVersionsAreKept(t *testing.T) {
	c := start(t)
	d := c.define(gadgets)
	api := c.definitions().ApiextensionsV1().CustomResourceDefinitions()
	if len(d.Status.StoredVersions) != 1 || d.Status.StoredVersions[0] != "v1" {
		t.Fatalf("stored versions %v", d.Status.StoredVersions)
	}
	two := strings.Replace(gadgets, "    storage: true", "    storage: false", 1)
	two = strings.Replace(two, "  versions:\n", "  versions:\n  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n", 1)
	d = c.define(two)
	if len(d.Status.StoredVersions) != 2 {
		t.Fatalf("stored versions %v", d.Status.StoredVersions)
	}
	d.Spec.Versions = d.Spec.Versions[:1]
	if _, err := api.Update(ctxOf(t), d, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "v1 was previously a storage version") {
		t.Fatalf("a version with objects was dropped: %v", err)
	}
	until(t, "the old version taken from the status", func() (bool, error) {
		now := must(api.Get(ctxOf(t), d.Name, metav1.GetOptions{}))(t)
		now.Status.StoredVersions = []string{"v2"}
		_, err := api.UpdateStatus(ctxOf(t), now, metav1.UpdateOptions{})
		return err == nil, err
	})
	d = must(api.Get(ctxOf(t), d.Name, metav1.GetOptions{}))(t)
	d.Spec.Versions = d.Spec.Versions[:1]
	must(api.Update(ctxOf(t), d, metav1.UpdateOptions{}))(t)
}
