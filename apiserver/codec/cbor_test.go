package codec_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"

	"github.com/yare-project/yare/apiserver/codec"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFromCBOR has examples of RFC 8949, appendix A, and what is Kubernetes' own.
func TestFromCBOR(t *testing.T) {
	for in, want := range map[string]string{
		"00": "0", "17": "23", "1818": "24", "1903e8": "1000", "1b000000e8d4a51000": "1000000000000", "1b7fffffffffffffff": "9223372036854775807",
		"20": "-1", "3903e7": "-1000", "3b7fffffffffffffff": "-9223372036854775808",
		"f90000": "0.0", "f98000": "-0.0", "f93c00": "1.0", "fb3ff199999999999a": "1.1", "f93e00": "1.5", "f97bff": "65504.0", "fa47c35000": "100000.0",
		"f90001": "5.960464477539063e-08", "f90400": "6.103515625e-05", "fb7e37e43c8800759c": "1e+300",
		"f4": "false", "f5": "true", "f6": "null",
		"60": `""`, "6161": `"a"`, "62225c": `"\"\\"`, "62c3bc": `"ü"`, "4161": `"a"`,
		"80": "[]", "83010203": "[1,2,3]", "a0": "{}", "a26161016162820203": `{"a":1,"b":[2,3]}`, "a141610a": `{"a":10}`,
		"9fff": "[]", "9f018202039f0405ffff": "[1,[2,3],[4,5]]", "bf61610161629f0203ffff": `{"a":1,"b":[2,3]}`, "7f657374726561646d696e67ff": `"streaming"`,
		"d9d9f7 01": "1", "d6 43010203": `"AQID"`, "d5 42fbff": `"-_8"`, "d7 42abcd": `"abcd"`, "d6 6161": `"a"`,
		"c0 74323031332d30332d32315432303a30343a30305a": `"2013-03-21T20:04:00Z"`, "c1 1a514b67b0": `"2013-03-21T20:04:00Z"`, "c1 fb41d452d9ec200000": `"2013-03-21T20:04:00.5Z"`,
		"d8 20 6161": `"a"`,
	} {
		got, err := codec.FromCBOR(unhex(t, in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "unexpected EOF", "18": "unexpected EOF", "81": "unexpected EOF", "9f": "unexpected EOF", "62 61": "unexpected EOF", "a1 6161": "unexpected EOF",
		"9bffffffffffffffff": "unexpected EOF", "5bffffffffffffffff": "unexpected EOF", "bbffffffffffffffff": "unexpected EOF",
		"00 00": "extraneous data", "1bffffffffffffffff": "64 bits", "3bffffffffffffffff": "64 bits", "c2 4101": "arbitrary precision",
		"f97e00": "NaN", "f97c00": "+Inf", "f7": "simple value", "e0": "simple value", "f8ff": "simple value", "1c": "additional information", "ff": "nothing was begun",
		"61 ff": "UTF-8", "a1 01 02": "keys are strings", "a2 6161 01 4161 02": `duplicate map key "a"`, "7f 4161 ff": "a piece of a string", "5f 5f ff ff": "a piece of a string",
		"c0 6161": "time", "c0 01": "time", "c1 6161": "time", "1f": "indefinite", "df": "indefinite",
		strings.Repeat("81", 20000) + "00": "nested", strings.Repeat("c3", 20000) + "00": "arbitrary", strings.Repeat("d9d9f7", 20000) + "00": "nested",
	} {
		if got, err := codec.FromCBOR(unhex(t, in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %.40s, %v; want %s", in, got, err, want)
		}
	}
	keys := unhex(t, "b8 40")
	for i := range 64 {
		keys = append(keys, 0x62, byte('0'+i/10), byte('0'+i%9), 0xf6)
	}
	if _, err := codec.FromCBOR(keys); err == nil || !strings.Contains(err.Error(), "duplicate map key") {
		t.Errorf("many keys, one of them twice: %v", err)
	}
}

// TestShortItemsAreBounded sends what is short in CBOR and long in JSON: what an object costs goes by the latter.
func TestShortItemsAreBounded(t *testing.T) {
	body := append(unhex(t, "a1 4473706563 a1 4a636f6e7461696e657273 9f"), bytes.Repeat([]byte{0xa0}, 2<<20)...)
	body = append(body, 0xff)
	_, _, err := codec.Decode(body, codec.CBOR, codec.Target{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), New: func() runtime.Object { return &corev1.Pod{} }}, "Strict")
	if !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%v, want 413", err)
	}
}

func TestObjectsInCBOR(t *testing.T) {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "n", Generation: 5, CreationTimestamp: metav1.Unix(1700000000, 0),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{}}`)}}}},
		Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0, 1, 255}}}
	doc, err := codec.Encode(obj, configMap.Kind, codec.CBOR)
	if err != nil {
		t.Fatal(err)
	}
	if obj.Kind != "" {
		t.Error("the object was changed")
	}
	want := obj.DeepCopy()
	want.SetGroupVersionKind(configMap.Kind)
	got, warnings, err := codec.Decode(doc, codec.CBOR, configMap, "Strict")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("read back here (-sent +came back):\n%s", d)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	theirs, gvk, err := cbor.NewSerializer(scheme, scheme, cbor.Strict(true)).Decode(doc, nil, nil)
	if err != nil || *gvk != configMap.Kind {
		t.Fatal(err, gvk)
	}
	if d := cmp.Diff(want, theirs); d != "" {
		t.Errorf("read by Kubernetes (-sent +came back):\n%s", d)
	}
	var back bytes.Buffer
	if err := cbor.NewSerializer(scheme, scheme).Encode(want, &back); err != nil {
		t.Fatal(err)
	}
	if got, _, err := codec.Decode(back.Bytes(), codec.CBOR, configMap, "Strict"); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("what Kubernetes wrote: %v, %s", err, cmp.Diff(want, got))
	}
}

func TestFaultsInCBOR(t *testing.T) {
	unknown, err := direct.Marshal(map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "colour": "red"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := codec.Decode(unknown, codec.CBOR, configMap, "Strict"); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "colour"`) {
		t.Errorf("an unknown field: %v", err)
	}
	if _, warnings, err := codec.Decode(unknown, codec.CBOR, configMap, "Warn"); err != nil || len(warnings) != 1 {
		t.Errorf("an unknown field with a warning: %v, %q", err, warnings)
	}
	if _, _, err := codec.Decode([]byte("{}"), codec.CBOR, configMap, "Strict"); !apierrors.IsBadRequest(err) {
		t.Errorf("JSON said to be CBOR: %v", err)
	}
}

func TestNegotiateCBOR(t *testing.T) {
	all := codec.Offer{Protobuf: true, Transform: true}
	watch := codec.Offer{Protobuf: true, Transform: true, Watch: true}
	for _, c := range []struct {
		header string
		offer  codec.Offer
		want   codec.Accept
	}{
		{"application/cbor", all, codec.Accept{Media: codec.CBOR}},
		{"application/json;q=0.9,application/cbor;q=1", all, codec.Accept{Media: codec.CBOR}},
		{"application/cbor;q=0.5,application/json", all, codec.Accept{}},
		{"application/cbor", watch, codec.Accept{Media: codec.CBOR}},
		{"application/cbor-seq", watch, codec.Accept{Media: codec.CBOR}},
		{"application/cbor;as=Table;g=meta.k8s.io;v=v1", all, codec.Accept{Media: codec.CBOR, As: codec.AsTable, MetaVersion: "v1"}},
	} {
		if got, err := codec.Negotiate(c.header, c.offer); err != nil || got != c.want {
			t.Errorf("%q: %+v %v, want %+v", c.header, got, err, c.want)
		}
	}
	_, err := codec.Negotiate("application/cbor-seq", all)
	if !apierrors.IsNotAcceptable(err) || err.Error() != "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor" {
		t.Errorf("a sequence where there is one document: %v", err)
	}
	if got := codec.CBOR.Stream(); got != "application/cbor-seq" {
		t.Errorf("a watch is %s", got)
	}
	if _, err := codec.BodyMedia("text/html"); !apierrors.IsUnsupportedMediaType(err) || !strings.HasSuffix(err.Error(), "application/vnd.kubernetes.protobuf, application/cbor") {
		t.Errorf("415: %v", err)
	}
}

// TestEventsInCBOR reads a sequence of events with Kubernetes' own framer and decoder.
func TestEventsInCBOR(t *testing.T) {
	var stream []byte
	for i := range 3 {
		doc, err := codec.Encode(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 100*i+1)}}, configMap.Kind, codec.CBOR)
		if err != nil {
			t.Fatal(err)
		}
		stream = codec.AppendEvent(stream, codec.CBOR, "ADDED", doc)
	}
	frames := cbor.NewFramer().NewFrameReader(io.NopCloser(bytes.NewReader(stream)))
	buf := make([]byte, 4096)
	for i := range 3 {
		n, err := frames.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		var event metav1.WatchEvent
		if err := direct.Unmarshal(buf[:n], &event); err != nil {
			t.Fatal(err)
		}
		obj, _, err := codec.Decode(event.Object.Raw, codec.CBOR, configMap, "Strict")
		if err != nil || event.Type != "ADDED" || len(obj.(*corev1.ConfigMap).Name) != 100*i+1 {
			t.Errorf("event %d: %s %v %v", i, event.Type, obj, err)
		}
	}
}

// FuzzFromCBOR: what is taken is what Kubernetes' own decoder reads, as JSON, and costs little more than its length.
func FuzzFromCBOR(f *testing.F) {
	for _, s := range []string{"00", "3903e7", "fb3ff199999999999a", "f93e00", "a26161016162820203", "bf61610161629f0203ffff", "7f657374726561646d696e67ff", "d9d9f7a0", "d643010203",
		"c074323031332d30332d32315432303a30343a30305a", "c11a514b67b0", "a1414181f6", strings.Repeat("81", 100) + "00"} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := codec.FromCBOR(data)
		if err != nil {
			return
		}
		if len(doc) > 8*len(data)+32 {
			t.Errorf("%d bytes became %d", len(data), len(doc))
		}
		if !json.Valid(doc) {
			t.Fatalf("%x became %q, which is no JSON", data, doc)
		}
		var ours, theirs any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &ours); err != nil {
			t.Fatalf("%q: %v", doc, err)
		}
		if err := direct.Unmarshal(data, &theirs); err != nil {
			t.Skip() // stricter about what is none of JSON's business, such as tags in wrong places
		}
		theirs = utf8Only(theirs)
		if !reflect.DeepEqual(theirs, ours) { // go-cmp takes very long over deep arrays
			t.Errorf("%x: Kubernetes reads %v, here it is %v", data, theirs, ours)
		}
	})
}

// utf8Only replaces what no JSON can say: each byte that is no UTF-8.
func utf8Only(v any) any {
	switch x := v.(type) {
	case string:
		return string([]rune(x))
	case []any:
		for i := range x {
			x[i] = utf8Only(x[i])
		}
	case map[string]any:
		for k, e := range x {
			delete(x, k)
			x[string([]rune(k))] = utf8Only(e)
		}
	}
	return v
}

// FuzzDecodeEveryMedia gives any bytes to every decoder: they end in an object or in words for a client.
func FuzzDecodeEveryMedia(f *testing.F) {
	pod := codec.Target{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), New: func() runtime.Object { return &corev1.Pod{} }}
	medias := []codec.Media{codec.JSON, codec.YAML, codec.Protobuf, codec.CBOR}
	example := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for i, m := range medias {
		doc, err := codec.Encode(example.DeepCopy(), pod.Kind, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), doc)
		f.Add(byte(i), doc[:len(doc)/2])
	}
	f.Add(byte(1), []byte("a: &a [*a]"))
	f.Add(byte(0), []byte(strings.Repeat("[", 20000)))
	f.Add(byte(3), bytes.Repeat([]byte{0x81}, 20000))
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		for _, strict := range []string{"Strict", "Warn", "Ignore"} {
			obj, _, err := codec.Decode(data, medias[int(which)%len(medias)], pod, strict)
			if err == nil && obj.GetObjectKind().GroupVersionKind() != pod.Kind {
				t.Errorf("decoded into %v", obj.GetObjectKind().GroupVersionKind())
			}
			var api apierrors.APIStatus
			if err != nil && !errorsAs(err, &api) {
				t.Errorf("an error that no client can read: %v", err)
			}
		}
	})
}

func errorsAs(err error, api *apierrors.APIStatus) bool {
	s, ok := err.(apierrors.APIStatus)
	if ok {
		*api = s
	}
	return ok && s.Status().Code >= 400 && s.Status().Code < 500
}

// TestEmptyElementsAreBounded: a body of a megabyte must not become a gigabyte, and a large one that says something is taken.
func TestEmptyElementsAreBounded(t *testing.T) {
	pod := codec.Target{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), New: func() runtime.Object { return &corev1.Pod{} }}
	list := func(n int, element string) []byte {
		return []byte(`{"spec":{"containers":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}}`)
	}
	for _, media := range []codec.Media{codec.JSON, codec.YAML} {
		if _, _, err := codec.Decode(list(100<<10, "{}"), media, pod, "Strict"); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s: %v, want 413", media.ContentType(), err)
		}
	}
	if _, _, err := codec.Decode(append(append([]byte("\xa1\x44spec\xa1\x4acontainers\x9f"), bytes.Repeat([]byte{0xa0}, 100<<10)...), 0xff), codec.CBOR, pod, "Strict"); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("CBOR: %v, want 413", err)
	}
	proto := func(n int, c corev1.Container) []byte {
		p := &corev1.Pod{}
		for range n {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		doc, err := codec.Encode(p, pod.Kind, codec.Protobuf)
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	empty, err := inEnvelope("\x12", bytes.Repeat([]byte{0x12, 0}, 100<<10))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := codec.Decode(empty, codec.Protobuf, pod, "Strict"); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("protobuf: %v, want 413", err)
	}
	if _, _, err := codec.Decode(proto(20000, corev1.Container{Name: "container", Image: "example.org/a"}), codec.Protobuf, pod, "Strict"); err != nil {
		t.Errorf("many containers in protobuf: %v", err)
	}
	if _, _, err := codec.Decode(list(20000, `{"name":"container","image":"example.org/a"}`), codec.JSON, pod, "Strict"); err != nil {
		t.Errorf("many containers: %v", err)
	}
	labels := map[string]string{}
	for i := range 20000 {
		labels[strings.Repeat("{\"", i%7)+string(rune('a'+i%26))+strings.Repeat("x", i%50)] = "{"
	}
	var doc []byte
	doc, err = json.Marshal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("{", 1<<20)}}, Data: labels, BinaryData: map[string][]byte{"b": bytes.Repeat([]byte("{"), 100<<10)}})
	if err == nil {
		_, _, err = codec.Decode(doc, codec.JSON, configMap, "Strict")
	}
	if err != nil {
		t.Errorf("a large ConfigMap: %v", err)
	}
}

// inEnvelope is a Pod's envelope around a message with one field.
func inEnvelope(tag string, field []byte) ([]byte, error) {
	message := binary.AppendUvarint([]byte(tag), uint64(len(field)))
	doc, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: append(message, field...)}).Marshal()
	return append([]byte("k8s\x00"), doc...), err
}
