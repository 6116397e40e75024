package server_test

import (
	"bytes"
	"context"
	"io"
	"math/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/randfill"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/yaretest"
)

// TestEveryKindInEveryMedia fills each kind at random and sends it through the codecs of the API server, all four.
func TestEveryKindInEveryMedia(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	own := func(serializer.CodecFactory) []any {
		return []any{
			func(r *runtime.RawExtension, c randfill.Continue) {
				r.Raw = []byte(`{"b":"` + string(rune('a'+c.Intn(26))) + `"}`)
			},
			func(j *apiextensionsv1.JSON, c randfill.Continue) {
				j.Raw = []byte(`{"a":` + string(rune('0'+c.Intn(10))) + `}`)
			},
			func(p *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
				p.Type, p.Description = c.String(8), c.String(8)
			},
		}
	}
	f := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, own), rand.NewSource(seed), serializer.NewCodecFactory(runtime.NewScheme())).NumElements(1, 2)
	n := 0
	for _, g := range kinds.Groups() {
		for _, k := range g.Kinds {
			for i := range k.Versions {
				v := &k.Versions[i]
				obj := v.New()
				f.Fill(obj)
				obj.GetObjectKind().SetGroupVersionKind(v.GroupVersionKind)
				for _, media := range []codec.Media{codec.JSON, codec.YAML, codec.CBOR} {
					n++
					doc, err := codec.Encode(obj.DeepCopyObject(), v.GroupVersionKind, media)
					if err != nil {
						t.Fatalf("%s as %s: %v", v.GroupVersionKind, media.ContentType(), err)
					}
					back, warnings, err := codec.Decode(doc, media, codec.Target{Kind: v.GroupVersionKind, New: v.New}, metav1.FieldValidationStrict)
					if err != nil || len(warnings) > 0 {
						t.Fatalf("%s as %s: %v %v", v.GroupVersionKind, media.ContentType(), err, warnings)
					}
					if !equality.Semantic.DeepEqual(obj, back) {
						t.Fatalf("%s as %s (-sent +came back):\n%s", v.GroupVersionKind, media.ContentType(), cmp.Diff(obj, back))
					}
				}
			}
		}
	}
	if n < 150 {
		t.Errorf("%d round trips: kinds are missing", n)
	}
}

// sniffer counts media types on their way.
type sniffer struct {
	http.RoundTripper
	sent, got map[string]int
}

func (s *sniffer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent[r.Header.Get("Content-Type")]++
	resp, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		s.got[resp.Header.Get("Content-Type")]++
	}
	return resp, err
}

var boats = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "boats"}

func boatCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "boats.example.org"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.org", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "boats", Singular: "boat", Kind: "Boat", ListKind: "BoatList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"masts": {Type: "integer"}, "length": {Type: "number"}, "name": {Type: "string"}}}}}}}}}}
}

// TestTheDynamicClientSpeaksCBOR is client-go with its feature gates for CBOR on: it sends and wants nothing else, for built-in and custom resources.
func TestTheDynamicClientSpeaksCBOR(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	s := yaretest.Start(t, yaretest.CRDObjects(boatCRD()))
	config := s.Config()
	seen := &sniffer{sent: map[string]int{}, got: map[string]int{}}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { seen.RoundTripper = rt; return seen })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cm := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "tide"}, "data": map[string]any{"high": "at four"}}}
	throughItsLife(t, client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default"), cm, []string{"data", "high"}, "at five")
	boat := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Boat", "metadata": map[string]any{"name": "tide"},
		"spec": map[string]any{"masts": int64(2), "length": 9.5, "name": "dinghy"}}}
	throughItsLife(t, client.Resource(boats).Namespace("default"), boat, []string{"spec", "name"}, "pram")
	for _, types := range []map[string]int{seen.sent, seen.got} {
		for typ := range types {
			if typ != "" && !strings.HasPrefix(typ, "application/cbor") && !strings.Contains(typ, "patch") {
				t.Errorf("something was %s: %v", typ, types)
			}
		}
	}
	if seen.got["application/cbor"] < 10 || seen.got["application/cbor-seq"] != 2 || seen.sent["application/apply-patch+cbor"] != 2 {
		t.Errorf("sent %v, got %v", seen.sent, seen.got)
	}
}

func throughItsLife(t *testing.T, r dynamic.ResourceInterface, obj *unstructured.Unstructured, field []string, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events, err := r.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=tide"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	made, err := r.Create(ctx, obj, metav1.CreateOptions{FieldValidation: "Strict"})
	if err != nil {
		t.Fatal(err)
	}
	body := func(u *unstructured.Unstructured) map[string]any {
		c := u.DeepCopy().Object
		delete(c, "metadata")
		return c
	}
	if d := cmp.Diff(body(obj), body(made)); d != "" {
		t.Errorf("made otherwise (-sent +made):\n%s", d)
	}
	if e := <-events.ResultChan(); e.Type != watch.Added || cmp.Diff(made, e.Object) != "" {
		t.Errorf("the watch says %v: %s", e.Type, cmp.Diff(made, e.Object))
	}
	got, err := r.Get(ctx, "tide", metav1.GetOptions{})
	if err != nil || cmp.Diff(made, got) != "" {
		t.Errorf("read: %v, %s", err, cmp.Diff(made, got))
	}
	if err := unstructured.SetNestedField(got.Object, value, field...); err != nil {
		t.Fatal(err)
	}
	if got, err = r.Update(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := r.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=tide"})
	if err != nil || len(list.Items) != 1 || list.GetResourceVersion() == "" {
		t.Fatalf("list: %v, %v", list, err)
	}
	if d := cmp.Diff(body(got), body(&list.Items[0])); d != "" {
		t.Errorf("listed otherwise:\n%s", d)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(), "metadata": map[string]any{"name": "tide", "labels": map[string]any{"a": "b"}}}}
	if got, err = r.Apply(ctx, "tide", applied, metav1.ApplyOptions{FieldManager: "harbour"}); err != nil || got.GetLabels()["a"] != "b" {
		t.Errorf("apply: %v, %v", got, err)
	}
	if got, err = r.Patch(ctx, "tide", types.MergePatchType, []byte(`{"metadata":{"labels":{"c":"d"}}}`), metav1.PatchOptions{}); err != nil || got.GetLabels()["c"] != "d" {
		t.Errorf("patch: %v, %v", got, err)
	}
	uid := got.GetUID()
	if err := r.Delete(ctx, "tide", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := r.Get(ctx, "tide", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), `"tide" not found`) {
		t.Errorf("what is gone: %v", err)
	}
}

// TestFormsInCBOR asks for tables and metadata.
func TestFormsInCBOR(t *testing.T) {
	s := yaretest.Start(t)
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	for accept, want := range map[string]string{
		"application/cbor;as=Table;v=v1;g=meta.k8s.io":                     "Table",
		"application/cbor;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io": "PartialObjectMetadataList",
		"application/cbor": "NamespaceList",
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Config().Host+"/api/v1/namespaces", nil)
		req.Header.Set("Accept", accept)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var doc map[string]any
		if err == nil {
			err = direct.Unmarshal(body, &doc)
		}
		if err != nil || doc["kind"] != want || resp.Header.Get("Content-Type") != "application/cbor" || !bytes.HasPrefix(body, []byte{0xd9, 0xd9, 0xf7}) {
			t.Errorf("%s: %v, a %v as %s", accept, err, doc["kind"], resp.Header.Get("Content-Type"))
		}
		rows, _ := doc["rows"].([]any)
		items, _ := doc["items"].([]any)
		if len(rows)+len(items) < 4 {
			t.Errorf("%s: %d rows, %d items", accept, len(rows), len(items))
		}
	}
}
