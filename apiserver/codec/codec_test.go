package codec_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver/codec"
)

func TestNegotiate(t *testing.T) {
	all := codec.Offer{Protobuf: true, Transform: true}
	list, watch := all, all
	list.List, watch.Watch = true, true
	tbl := "application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, c := range []struct {
		header string
		offer  codec.Offer
		want   codec.Accept
	}{
		{"", all, codec.Accept{}},
		{"*/*", all, codec.Accept{}},
		{"application/*", all, codec.Accept{}},
		{"application/vnd.kubernetes.protobuf,application/json", all, codec.Accept{Media: codec.Protobuf}},
		{"application/vnd.kubernetes.protobuf,application/json", codec.Offer{}, codec.Accept{}},
		{"application/json;q=0.1,application/yaml;q=0.9", all, codec.Accept{Media: codec.YAML}},
		{"application/yaml,application/json", watch, codec.Accept{}},
		{tbl, all, codec.Accept{As: codec.AsTable, MetaVersion: "v1"}},
		{tbl + "beta1," + tbl, all, codec.Accept{As: codec.AsTable, MetaVersion: "v1beta1"}},
		{"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1," + tbl, all, codec.Accept{As: codec.AsTable, MetaVersion: "v1"}},
		{"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", all, codec.Accept{As: codec.AsMetadata, MetaVersion: "v1"}},
		{"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", list, codec.Accept{Media: codec.Protobuf, As: codec.AsMetadata, MetaVersion: "v1"}},
		{"application/vnd.kubernetes.protobuf;stream=watch", watch, codec.Accept{Media: codec.Protobuf}},
		{"application/json;stream=watch", watch, codec.Accept{}},
		{"application/json;stream=watch", all, codec.Accept{}},
		{"*/*, application/yaml", all, codec.Accept{Media: codec.YAML}},
		{"application/*;q=0.9, application/yaml;q=0.9, application/vnd.kubernetes.protobuf;q=0.2", all, codec.Accept{Media: codec.YAML}},
		{"nonsense;;;, application/json", all, codec.Accept{}},
	} {
		got, err := codec.Negotiate(c.header, c.offer)
		if err != nil || got != c.want {
			t.Errorf("%q: %+v %v, want %+v", c.header, got, err, c.want)
		}
	}
	for header, offer := range map[string]codec.Offer{
		"text/html": all, "application/yaml": watch, "application/json;as=Table;g=other;v=v1": all, "application/json;as=Table;g=meta.k8s.io;v=v2": all,
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1": all, tbl: {}, "application/json;stream=other": all,
	} {
		if got, err := codec.Negotiate(header, offer); !apierrors.IsNotAcceptable(err) {
			t.Errorf("%q: %+v %v, want 406", header, got, err)
		}
	}
}

var configMap = codec.Target{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), New: func() runtime.Object { return &corev1.ConfigMap{} }}

func TestDecodeStrictness(t *testing.T) {
	for _, c := range []struct {
		body, strict string
		media        codec.Media
		warnings     []string
		err          string
	}{
		{`{"data":{"a":"b"}}`, "Strict", codec.JSON, nil, ""},
		{`{"dota":{}}`, "Warn", codec.JSON, []string{`unknown field "dota"`}, ""},
		{`{"dota":{}}`, "Ignore", codec.JSON, nil, ""},
		{`{"dota":{}}`, "Strict", codec.JSON, nil, `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "dota"`},
		{`{"data":{},"data":{}}`, "Warn", codec.JSON, []string{`duplicate field "data"`}, ""},
		{`{"Data":{"a":"b"}}`, "Strict", codec.JSON, nil, `unknown field "Data"`},
		{"data: {a: b}\ndata: {c: d}\n", "Strict", codec.YAML, nil, `key "data" already set in map`},
		{"data: {a: b}\ndata: {c: d}\n", "Ignore", codec.YAML, nil, ""},
		{`{"kind":"Pod"}`, "Ignore", codec.JSON, nil, `Pod in version "v1" cannot be handled as a ConfigMap`},
		{`{"apiVersion":"v2","spec":[]}`, "Ignore", codec.JSON, nil, "the API version in the data (v2) does not match the expected API version (v1)"},
		{`{"data":[]}`, "Ignore", codec.JSON, nil, "cannot unmarshal array"},
		{`{`, "Ignore", codec.JSON, nil, "unexpected end of JSON input"},
		{"k8s\x00\xff\xff", "Ignore", codec.Protobuf, nil, "protobuf"},
		{"{}", "Ignore", codec.Protobuf, nil, "does not begin with k8s"},
	} {
		_, warnings, err := codec.Decode([]byte(c.body), c.media, configMap, c.strict)
		if d := cmp.Diff(c.warnings, warnings); d != "" {
			t.Errorf("%q %s: warnings\n%s", c.body, c.strict, d)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !apierrors.IsBadRequest(err)) {
			t.Errorf("%q %s: %v, want %q", c.body, c.strict, err, c.err)
		}
	}
}

// A body may come in an older version where that has the same fields; what it becomes is of the target's.
func TestDecodeOlder(t *testing.T) {
	to := configMap
	to.Older = []schema.GroupVersion{{Version: "v1beta1"}}
	for body, good := range map[string]bool{`{"apiVersion":"v1beta1","kind":"ConfigMap"}`: true, `{"apiVersion":"v1beta2","kind":"ConfigMap"}`: false, `{"apiVersion":"v1beta1","kind":"Pod"}`: false} {
		obj, _, err := codec.Decode([]byte(body), codec.JSON, to, "Strict")
		if (err == nil) != good || good && obj.GetObjectKind().GroupVersionKind() != to.Kind {
			t.Errorf("%s: %v, %v", body, obj, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"data":{"a":"b"}}`), uint8(0))
	f.Add([]byte("k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x00"), uint8(1))
	f.Add([]byte("data: {a: b}"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, media uint8) {
		obj, _, err := codec.Decode(data, codec.Media(media%3), configMap, metav1.FieldValidationWarn)
		if err == nil && obj.GetObjectKind().GroupVersionKind() != configMap.Kind {
			t.Fatalf("decoded a %v", obj.GetObjectKind().GroupVersionKind())
		}
	})
}

// A frame must be what the API's own types encode to.
func TestProtobufFrame(t *testing.T) {
	object := bytes.Repeat([]byte("x"), 300)
	want := must((&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: object}}).Marshal())
	want = append(binary.BigEndian.AppendUint32(nil, uint32(len(want))), want...)
	if got := codec.AppendEvent(nil, codec.Protobuf, "ADDED", object); !bytes.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{"": false, "gzip": true, "deflate, gzip ": true, "gzip;q=0": false, "x-gzip": false, "identity": false} {
		if got := codec.AcceptsGzip(header); got != want {
			t.Errorf("%q: %t, want %t", header, got, want)
		}
	}
}
