package crd_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// FuzzDefinition posts schemas and objects as anybody may write them. Whatever is taken must be served without a fault: read, listed as a table, described.
func FuzzDefinition(f *testing.F) {
	c := startFor(f)
	handler := c.gate.Handler()
	document := func(text string) string {
		doc, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		return string(doc)
	}
	for _, schema := range []string{
		`{type: object, properties: {spec: {type: object, x-kubernetes-validations: [{rule: "self.a == oldSelf.a", optionalOldSelf: false}], properties: {a: {type: string, maxLength: 3, default: x}}}}}`,
		`{type: object, x-kubernetes-preserve-unknown-fields: true}`, `{type: object, properties: {spec: {x-kubernetes-int-or-string: true}}}`,
		`{type: object, properties: {spec: {type: array, items: {type: array, items: {type: number, multipleOf: 0.1}}}}}`,
		`{type: object, properties: {spec: {type: string, pattern: "(a+)+$", format: date-time}}}`, `{type: object, properties: {metadata: {type: object, properties: {name: {type: string, pattern: "^a"}}}}}`,
		`{type: object, properties: {spec: {type: object, additionalProperties: {type: string, nullable: true}, minProperties: 1}}, not: {required: [spec]}, anyOf: [{}]}`,
		`{type: object, properties: {spec: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: integer}}}}}}`,
		`{type: object, properties: {spec: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}`,
	} {
		for _, object := range []string{`{spec: {a: abc}}`, `{spec: 1}`, `{spec: [[1, 2.5]]}`, `{spec: [{k: 1}, {k: 1}]}`, `{spec: null, metadata: {labels: {a: 1}}}`, `{spec: {apiVersion: v1, kind: A, metadata: {name: 1}}}`} {
			f.Add(document(schema), document(object), ".spec.a")
		}
	}
	f.Fuzz(func(t *testing.T, schema, object, path string) {
		send := func(method, path, body string) int {
			w := httptest.NewRecorder()
			req := httptest.NewRequest(method, path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
			handler.ServeHTTP(w, req)
			if w.Code == http.StatusInternalServerError {
				t.Errorf("%s %s: %s\nschema %s\nobject %s", method, path, w.Body, schema, object)
			}
			return w.Code
		}
		column, err := json.Marshal(path)
		if err != nil {
			t.Fatal(err)
		}
		const definitions, objects = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/fuzz.example.com/v1/namespaces/default/fuzzes"
		if send("POST", definitions, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"fuzzes.fuzz.example.com"},"spec":{"group":"fuzz.example.com",
			"scope":"Namespaced","names":{"plural":"fuzzes","kind":"Fuzz"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":`+schema+`},
			"additionalPrinterColumns":[{"name":"C","type":"string","jsonPath":`+string(column)+`}]}]}}`) != http.StatusCreated {
			return
		}
		until(t, "served", func() (bool, error) { return send("GET", objects, "") == http.StatusOK, nil })
		send("POST", objects+"?fieldValidation=Strict", object)
		send("POST", objects, `{"apiVersion":"fuzz.example.com/v1","kind":"Fuzz","metadata":{"name":"a"}}`)
		send("PATCH", objects+"/a", object)
		send("GET", objects+"/a", "")
		send("GET", objects, "")
		send("GET", "/openapi/v3/apis/fuzz.example.com/v1", "")
		send("DELETE", definitions+"/fuzzes.fuzz.example.com", "")
		until(t, "gone", func() (bool, error) {
			return send("GET", definitions+"/fuzzes.fuzz.example.com", "") == http.StatusNotFound && send("GET", objects, "") == http.StatusNotFound, nil
		})
	})
}
