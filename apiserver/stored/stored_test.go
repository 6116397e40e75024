package stored_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

var group = kind.Group{Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{corev1.AddToScheme}}
var configMaps = kind.Add(&group, kind.Def[corev1.ConfigMap]{Names: kind.Names{Plural: "configmaps"}})

func object() *stored.Object {
	return stored.New(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "<y>"}}, Data: map[string]string{"k": "v"}}).Stamp(42)
}

func TestDiskRoundTrip(t *testing.T) {
	o := object()
	data := must(o.Encode())
	back, err := stored.Decoder(configMaps)("a", 43, data)
	if err != nil {
		t.Fatal(err)
	}
	got := back.(*stored.Object)
	if got.Revision() != 43 || got.Hub().GetResourceVersion() != "43" {
		t.Errorf("revision %d %s", got.Revision(), got.Hub().GetResourceVersion())
	}
	got.Hub().SetResourceVersion("42")
	if d := cmp.Diff(o.Hub(), got.Hub()); d != "" {
		t.Error(d)
	}
	if _, err := stored.Decoder(configMaps)("a", 1, data[:len(data)-9]); err == nil || !strings.Contains(err.Error(), `configmaps "a"`) {
		t.Errorf("half an object: %v", err)
	}
}

// Our envelope is read and written by Kubernetes' own serializer.
func TestEnvelopeIsKubernetes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	theirs := protobuf.NewSerializer(scheme, scheme)
	o := object()
	ours := must(o.As(&configMaps.Versions[0], stored.Protobuf))
	decoded, gvk, err := theirs.Decode(ours.Whole, nil, nil)
	if err != nil || *gvk != configMaps.Hub {
		t.Fatal(gvk, err)
	}
	decoded.GetObjectKind().SetGroupVersionKind(configMaps.Hub)
	if d := cmp.Diff(runtime.Object(o.Hub()), decoded); d != "" {
		t.Error(d)
	}
	var buf bytes.Buffer
	if err := codecs.EncoderForVersion(theirs, corev1.SchemeGroupVersion).Encode(o.Hub().DeepCopyObject(), &buf); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), ours.Whole) {
		t.Errorf("theirs %x\nours   %x", buf.Bytes(), ours.Whole)
	}
}

func TestJSONItemsAreBare(t *testing.T) {
	b := must(object().As(&configMaps.Versions[0], stored.JSON))
	if !bytes.HasPrefix(b.Whole, []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata"`)) {
		t.Errorf("whole: %s", b.Whole)
	}
	item := itemOf(b)
	if !bytes.HasPrefix(item, []byte(`{"metadata":{"name":"a"`)) || !json.Valid(item) || len(item) != b.ItemLen() {
		t.Errorf("item: %s", item)
	}
	meta := must(object().As(&configMaps.Versions[0], stored.MetaJSON))
	if item := itemOf(meta); !bytes.Contains(item, []byte("PartialObjectMetadata")) || bytes.Contains(item, []byte(`"data"`)) {
		t.Errorf("metadata: %s", item)
	}
}

func TestEncodedOnceForAll(t *testing.T) {
	o := object()
	v := &configMaps.Versions[0]
	var wg sync.WaitGroup
	results := make([][]byte, 16)
	for i := range results {
		wg.Go(func() { results[i] = must(o.As(v, stored.JSON)).Whole })
	}
	wg.Wait()
	for _, r := range results {
		if &r[0] != &results[0][0] {
			t.Fatal("two readers got two encodings")
		}
	}
}

func TestDeletedLeavesTheObjectAlone(t *testing.T) {
	o := object()
	gone := o.Deleted(50)
	if o.Hub().GetResourceVersion() != "42" || gone.Hub().GetResourceVersion() != "50" || gone.Hub().GetName() != "a" {
		t.Fatal(o.Hub().GetResourceVersion(), gone.Hub().GetResourceVersion())
	}
	if n := o.Size(); n <= 0 || n != o.Size() {
		t.Fatal("the size is not settled")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestCBORIsEncodedOnce shares bytes among readers, and makes list items of them.
func TestCBORIsEncodedOnce(t *testing.T) {
	v := &configMaps.Versions[0]
	o := stored.New(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}})
	first, err := o.As(v, stored.CBOR)
	if err != nil {
		t.Fatal(err)
	}
	again, err := o.As(v, stored.CBOR)
	if err != nil || &first.Whole[0] != &again.Whole[0] {
		t.Errorf("encoded twice: %v", err)
	}
	item := itemOf(first)
	if len(item) != first.ItemLen() || len(item) >= len(first.Whole) {
		t.Errorf("an item of %d bytes, said to be %d, of a document of %d", len(item), first.ItemLen(), len(first.Whole))
	}
	var bare map[string]any
	if err := direct.Unmarshal(item, &bare); err != nil || bare["kind"] != nil || bare["data"] == nil {
		t.Errorf("an item of a list: %v, %v", bare, err)
	}
}

// itemOf is an object as it stands in a list.
func itemOf(b stored.Bytes) []byte {
	if b.Braced() {
		return append([]byte{b.Brace()}, b.Inner()...)
	}
	return b.Inner()
}
