package crd_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// words is the description of one field: operators' schemas are mostly such text.
var words = strings.Repeat("what this field is for and what it does when it is not set ", 3)

// schemaOf makes a schema of about so many fields, nested as operators' are, with some rules.
func schemaOf(fields int) *apiextensionsv1.JSONSchemaProps {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	maxItems, maxLength := int64(32), int64(64)
	for i := 0; i < fields; i += 10 {
		inner := apiextensionsv1.JSONSchemaProps{Type: "object", Description: words, Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		if i < 100 {
			inner.XValidations = apiextensionsv1.ValidationRules{{Rule: "!has(self.f0) || self.f0.size() < 60", Message: "too long"}}
		}
		for j := range 8 {
			inner.Properties[fmt.Sprintf("f%d", j)] = apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: &maxLength, Description: words}
		}
		inner.Properties["list"] = apiextensionsv1.JSONSchemaProps{Type: "array", MaxItems: &maxItems, Description: words,
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer"}}}
		spec.Properties[fmt.Sprintf("part%d", i)] = inner
	}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}}
}

func definitionOf(i int, group string, fields int) *apiextensionsv1.CustomResourceDefinition {
	plural := fmt.Sprintf("things%d", i)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: fmt.Sprintf("thing%d", i), Kind: fmt.Sprintf("Thing%d", i),
				ListKind: fmt.Sprintf("Thing%dList", i)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schemaOf(fields)}}}},
	}
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// add creates a definition and waits until it is served.
func (c *cluster) add(t testing.TB, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if _, err := c.definitions().ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "served", func() (bool, error) {
		_, ok := c.gate.Registry().Resource(schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural})
		return ok, nil
	})
}

// A definition more costs the same however many there are, in a group of its own or in one that all share, and little more than its own size.
func TestManyDefinitionsStayCheap(t *testing.T) {
	const batch = 40
	for _, shared := range []bool{false, true} {
		c := startFor(t)
		group := func(i int) string {
			if shared {
				return "example.com"
			}
			return fmt.Sprintf("g%d.example.com", i)
		}
		c.add(t, definitionOf(-1, "warm.example.com", 50)) // what is made once
		size := int64(len(must(json.Marshal(definitionOf(0, group(0), 50)))(t)))
		before := heap()
		var made [3]int64
		for b := range made {
			begin := allocated()
			for i := b * batch; i < (b+1)*batch; i++ {
				c.add(t, definitionOf(i, group(i), 50))
			}
			made[b] = (allocated() - begin) / batch
		}
		each := (heap() - before) / (batch * int64(len(made)))
		t.Logf("one group %v: a definition of %d bytes holds %d; the first %d allocated %d each, the last %d", shared, size, each, batch, made[0], made[2])
		if each > 10*size {
			t.Errorf("a definition of %d bytes holds %d", size, each)
		}
		if made[2] > made[0]*3/2 {
			t.Errorf("the last of them allocated %d each, the first %d: the cost grows with their number", made[2], made[0])
		}
		c.stop()
	}
}

// A definition of 5 MB is taken, served and used.
func TestHugeDefinition(t *testing.T) {
	c := startFor(t)
	c.add(t, definitionOf(-1, "warm.example.com", 50))
	d := definitionOf(0, "example.com", 21500)
	size := int64(len(must(json.Marshal(d))(t)))
	before := heap()
	c.add(t, d)
	var unused int64
	until(t, "the states on the way to being established are gone", func() (bool, error) {
		unused = heap() - before
		return unused <= 9*size, fmt.Errorf("%d bytes are held for a definition of %d", unused, size)
	})
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing0", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"part0": map[string]any{"f0": "x", "unknown": "y"}}}}
	got := must(c.in("v1", "things0").Create(ctxOf(t), u, metav1.CreateOptions{}))(t)
	if value, _, _ := unstructured.NestedStringMap(got.Object, "spec", "part0"); value["f0"] != "x" || len(value) != 1 {
		t.Errorf("stored %v", got.Object)
	}
	t.Logf("a definition of %d bytes holds %d unused, %d used", size, unused, heap()-before)
	if size < 5_000_000 {
		t.Errorf("the definition has %d bytes only", size)
	}
}

// BenchmarkDefinition is the whole way of one definition among a thousand: over HTTP, validated, its rules compiled, until it is served.
func BenchmarkDefinition(b *testing.B) {
	c := startFor(b)
	for i := range 1000 {
		c.add(b, definitionOf(i, fmt.Sprintf("g%d.example.com", i), 50))
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		c.add(b, definitionOf(1000+i, fmt.Sprintf("n%d.example.com", i), 50))
	}
}
