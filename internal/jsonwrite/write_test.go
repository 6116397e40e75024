package jsonwrite_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yare-project/yare/internal/jsonwrite"
)

// same fails unless v is written, or refused, as encoding/json does.
func same(t *testing.T, v any) {
	t.Helper()
	want, failed := json.Marshal(v)
	head := []byte("head ")
	got, err := jsonwrite.Append(bytes.Clone(head), v)
	if (err == nil) != (failed == nil) || err != nil && err.Error() != failed.Error() {
		t.Errorf("%T %+v: error %v, encoding/json says %v", v, v, err, failed)
		return
	}
	if d := cmp.Diff("head "+string(want), string(got)); d != "" {
		t.Errorf("%T (-encoding/json +here):\n%s", v, d)
	}
	own, err := jsonwrite.Marshal(v)
	if (err == nil) != (failed == nil) || !bytes.Equal(own, want) {
		t.Errorf("%T: Marshal says %s, %v", v, own, err)
	}
}

type (
	text     string
	inner    struct{ A, B int }
	Embedded struct {
		X string `json:"x,omitempty"`
		Y int
	}
	Deeper struct {
		*Embedded
		Z []string `json:"z"`
	}
	hiding struct {
		Embedded
		X string `json:"x"`
	}
	twice struct {
		Embedded
		Deeper
	}
	node struct {
		Name     string           `json:"name"`
		Next     *node            `json:"next,omitempty"`
		Children []node           `json:"children,omitempty"`
		ByName   map[string]node  `json:"byName,omitempty"`
		Shared   map[string]*node `json:"shared,omitempty"`
	}
	lists   []lists
	maps    map[string]maps
	onValue struct{ s string }
	onPtr   struct{ S string }
	spoken  struct{ s string }
	spokenP struct{ S string }
	zeroed  struct{ N int }
	key     struct{ A, B int }
	textKey string
	byte2   uint8
)

func (v onValue) MarshalJSON() ([]byte, error) { return []byte(v.s), nil }
func (v *onPtr) MarshalJSON() ([]byte, error)  { return []byte(`{"ptr" : "<` + v.S + `>"}`), nil }
func (v spoken) MarshalText() ([]byte, error) {
	if v.s == "bad" {
		return nil, errors.New("no text")
	}
	return []byte(v.s), nil
}
func (v *spokenP) MarshalText() ([]byte, error) { return []byte("*" + v.S), nil }
func (v *zeroed) IsZero() bool                  { return v.N == 7 }
func (k key) MarshalText() ([]byte, error)      { return []byte{byte('a' + k.A), byte('a' + k.B)}, nil }
func (k textKey) MarshalText() ([]byte, error)  { return []byte("T" + string(k)), nil }
func (b byte2) MarshalText() ([]byte, error)    { return []byte{'b', '0' + byte(b)}, nil }

type all struct {
	B    bool
	I    int
	I8   int8 `json:"i8,omitempty"`
	I16  int16
	I32  int32 `json:",omitempty"`
	I64  int64
	U    uint
	U8   uint8
	U16  uint16 `json:"u16,omitempty"`
	U32  uint32
	U64  uint64
	UP   uintptr
	F32  float32 `json:"f32,omitempty"`
	F64  float64 `json:"f64,omitempty"`
	S    string
	T    text `json:"t,omitempty"`
	P    *int
	PP   **int `json:"pp,omitempty"`
	Bin  []byte
	Bin2 []byte2
	Arr  [2]inner
	None [0]int         `json:"none,omitempty"`
	Any  any            `json:"any,omitempty"`
	Err  error          `json:"err,omitempty"`
	M    map[string]int `json:"m,omitempty"`
	MI   map[int]string
	MK   map[key]int
	MT   map[textKey]textKey
	MA   map[string]any
	MS   map[text]text
	MB   map[string][]byte
	MP   map[string]onPtr
	ME   map[string]spoken
	MN   map[string]json.Number
	Num  json.Number
	Raw  json.RawMessage
	V    onValue
	VP   *onValue
	Q    onPtr
	QP   *onPtr  `json:"qp"`
	QS   []onPtr `json:"qs"`
	Sp   spoken
	SpP  spokenP
	Skip string `json:"-"`
	Dash string `json:"-,"`
	priv int
	Ad   netip.Addr
	At   time.Time
	ZT   time.Time `json:"zt,omitzero"`
	Z    zeroed    `json:"z,omitzero"`
	ZP   *zeroed   `json:"zp,omitzero"`
	ZS   inner     `json:"zs,omitzero"`
	ZE   []int     `json:"ze,omitempty,omitzero"`
	Deeper
}

func full() all {
	n := 5
	pn := &n
	return all{B: true, I: -1, I8: 8, I16: -16, I32: 32, I64: math.MinInt64, U: 1, U8: 255, U16: 3, U32: 4, U64: math.MaxUint64, UP: 9, F32: 0.1, F64: 1e21,
		S: "a", T: "<&>", P: pn, PP: &pn, Bin: []byte("hello?"), Bin2: []byte2{1, 2}, Arr: [2]inner{{1, 2}, {3, 4}}, Any: &inner{1, 2}, Err: &testError{"e"},
		M: map[string]int{"b": 1, "a": 2, "é<": 3}, MI: map[int]string{10: "a", 9: "b"}, MK: map[key]int{{1, 2}: 1, {0, 1}: 2},
		MT: map[textKey]textKey{"b": "x", "a": "y"}, MA: map[string]any{"z": nil, "a": []any{1, "x", nil, map[string]any{}, 2.5, inner{}, text("n")}},
		MS: map[text]text{"k": "v", "\xff": "w"}, MB: map[string][]byte{"a": nil, "b": {}, "c": {1}}, MP: map[string]onPtr{"a": {"x"}},
		ME: map[string]spoken{"a": {"x"}}, MN: map[string]json.Number{"a": "1.5"}, Num: "12", Raw: json.RawMessage(` { "a" : "<" } `), V: onValue{"[ 1 ]"},
		VP: &onValue{"true"}, Q: onPtr{"q"}, QP: &onPtr{"qp"}, QS: []onPtr{{"1"}, {"2"}}, Sp: spoken{"<sp\x00>"}, SpP: spokenP{"p"}, Dash: "d", priv: 1,
		Ad: netip.MustParseAddr("10.0.0.1"), At: time.Unix(1, 5).UTC(), ZT: time.Unix(2, 0), Z: zeroed{7}, ZP: &zeroed{8}, ZS: inner{A: 1},
		Deeper: Deeper{Embedded: &Embedded{"x", 1}}}
}

type testError struct{ S string }

func (e *testError) Error() string { return e.S }

func TestWritesWhatEncodingJSONWrites(t *testing.T) {
	v, empty := full(), all{V: onValue{"1"}}
	loop := &node{Name: "loop"}
	loop.Next = loop
	deep := map[string]any{}
	for range 700 {
		deep = map[string]any{"d": deep}
	}
	x := "x"
	for _, v := range []any{
		nil, v, &v, empty, &empty, []all{v}, map[string]all{"a": v}, map[string]*all{"a": &v, "b": nil}, [1]all{v}, &[1]all{v}, (*all)(nil),
		true, 1, int8(2), "s", text("t"), 1.5, float32(1.5), []byte(nil), []byte("x"), [3]byte{1, 2, 3}, &x, map[string]string(nil), map[string]string{},
		map[string]any(nil), []any(nil), []any{}, []string(nil), []string{}, struct{}{}, &struct{}{}, []struct{}{{}, {}}, lists{{}, nil, {{}}}, maps{"a": {"b": nil}},
		&node{Name: "a", Next: &node{Name: "b"}, Children: []node{{Name: "c"}}, ByName: map[string]node{"d": {Name: "d", Next: &node{}}, "c": {}},
			Shared: map[string]*node{"x": nil, "e": {}}},
		hiding{X: "out"}, &hiding{Embedded: Embedded{X: "in"}, X: "out"}, twice{}, &twice{Deeper: Deeper{Embedded: &Embedded{}}}, Deeper{}, &Deeper{},
		struct {
			N int      `json:",string"`
			S string   `json:"s,string"`
			P *float64 `json:"p,string,omitempty"`
			B *bool    `json:",string"`
		}{N: 5, S: `a"<`},
		struct {
			A int `json:"<a>"`
			B int `json:"é"`
			C int `json:"b\\ad"`
			D int `json:"with space"`
		}{},
		struct{ onPtr }{}, &struct{ spoken }{spoken{"x"}}, struct{ *Embedded }{}, struct{ text }{"x"}, struct{ error }{}, &struct{ I any }{1},
		struct{ Embedded any }{}, onPtr{"a"}, &onPtr{"a"}, []onPtr{{"x"}}, [1]onPtr{{"x"}}, map[string]onPtr{"m": {}}, []any{onPtr{"i"}, &onPtr{"j"}},
		struct{ M json.Marshaler }{}, struct{ M json.Marshaler }{&onPtr{"i"}}, struct{ M json.Marshaler }{(*panicky)(nil)},
		onValue{"{"}, onValue{""}, onValue{"1 2"}, onValue{"\"\xff\u2028<\""}, []onValue{{"1"}, {"x"}}, spoken{"bad"}, map[string]spoken{"a": {"bad"}},
		math.NaN(), []float64{math.Inf(1)}, map[string]any{"a": math.NaN()}, make(chan int), func() {}, complex(1, 2), map[bool]int{}, map[string]chan int{},
		struct{ C chan int }{}, struct {
			C chan int `json:",omitempty"`
		}{},
		json.Number(""), json.Number("1e5"), json.Number("x"), map[json.Number]json.Number{"2": "1"}, loop, map[string]any{"a": loop}, deep,
		map[int8]string{-1: "a"}, map[uint64]bool{1: true}, map[key]bool{{1, 1}: true}, errors.New("e"), &testError{"x"}, json.RawMessage(nil), json.RawMessage("[1, 2]"),
		math.Copysign(0, -1), struct {
			F float64 `json:",omitempty"`
		}{math.Copysign(0, -1)},
		map[text]int{"b": 1, "a": 2}, uint8(3), uintptr(4), []text{"<"}, []*string{nil, &x}, struct {
			A [0]int `json:",omitempty"`
			S struct{}
		}{},
	} {
		same(t, v)
	}
}

// panicky must not be asked for its JSON when it is nil, though its method could answer.
type panicky struct{}

func (p *panicky) MarshalJSON() ([]byte, error) { return []byte(`"nil is fine"`), nil }

func TestNumbers(t *testing.T) {
	for _, f := range []float64{0, 1, -1, 0.1, 1e-6, 9.99e-7, 1e-7, 1e-10, 1e20, 1e21, 1.5e300, 5e-324, math.MaxFloat64, 123456789.125, 1e6, 3e-9} {
		same(t, f)
		same(t, -f)
		same(t, float32(f))
		same(t, []float32{float32(f)})
	}
}

func TestTypesOfTheAPI(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.FixedZone("x", 3600))
	for _, at := range []time.Time{{}, now, now.UTC(), time.Unix(0, 0), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(12345, 1, 1, 0, 0, 0, 999999999, time.UTC),
		time.Date(2000, 2, 29, 23, 59, 59, 999, time.UTC), time.Date(1900, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)} {
		same(t, metav1.Time{Time: at})
		same(t, &metav1.MicroTime{Time: at})
		same(t, map[string]metav1.Time{"a": {Time: at}})
		same(t, &metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: at}, DeletionTimestamp: &metav1.Time{Time: at}})
	}
	for _, s := range []string{"0", "1", "100m", "1Gi", "1500Mi", "1.5", "1e3", "1E9", "-5", "0.1", "12345678901234567890", "1.5Gi", "1Ki", "1023", "1k", "3n", "1e-5", ".5", "+1"} {
		q := resource.MustParse(s)
		same(t, q)
		same(t, &q)
		same(t, map[string]resource.Quantity{"b": q, "a": {}})
		sum := q.DeepCopy()
		sum.Add(q)
		same(t, []*resource.Quantity{&sum, nil, resource.NewQuantity(1<<40, resource.BinarySI), resource.NewMilliQuantity(1500, resource.DecimalSI)})
	}
	for _, n := range []int64{0, 1, 999, 1000, 1023, 1024, 1025, 2048, 1536, 1 << 20, 1 << 60, math.MaxInt64, 1e18, 1e17 + 1, 1 << 57, 72057594037927937} {
		for scale := resource.Scale(-12); scale < 22; scale++ {
			for _, format := range []resource.Format{resource.BinarySI, resource.DecimalSI, resource.DecimalExponent, ""} {
				q, minus := resource.NewScaledQuantity(n, scale), resource.NewScaledQuantity(-n, scale)
				q.Format, minus.Format = format, format
				same(t, []*resource.Quantity{q, minus})
			}
		}
	}
	for _, v := range []any{
		intstr.FromInt32(-5), intstr.FromString("<50%>"), &intstr.IntOrString{Type: 9}, metav1.Duration{Duration: time.Second},
		metav1.FieldsV1{}, metav1.FieldsV1{Raw: []byte(`{"f:a":{}}`)}, &metav1.FieldsV1{Raw: []byte("{\"a\" : \"<\u2028\"}")}, metav1.FieldsV1{Raw: []byte(`{"a"}`)},
		metav1.FieldsV1{Raw: []byte("null")}, metav1.FieldsV1{Raw: []byte("5")}, metav1.FieldsV1{Raw: []byte("\xa1aa\x01")},
		runtime.RawExtension{}, runtime.RawExtension{Raw: []byte{}}, runtime.RawExtension{Raw: []byte(`{"a":1}`)}, runtime.RawExtension{Raw: []byte(`"x" `)},
		runtime.RawExtension{Raw: []byte(`{`)}, &runtime.RawExtension{Object: &metav1.Status{Status: "Failure"}}, runtime.RawExtension{Object: (*metav1.Status)(nil)},
		&unstructured.Unstructured{}, &unstructured.Unstructured{Object: map[string]any{"kind": "X", "n": int64(5), "f": 1.5, "l": []any{nil, true, "<", int32(1)}}},
		unstructured.Unstructured{Object: map[string]any{"a": "b"}}, &unstructured.UnstructuredList{Items: []unstructured.Unstructured{{Object: map[string]any{"a": "b"}}}},
		&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{}}},
		&metav1.LabelSelector{MatchLabels: map[string]string{"b": "1", "a": "2"}}, &metav1.Table{Rows: []metav1.TableRow{{Cells: []any{"a", int64(1), nil, 1.5}}}},
	} {
		same(t, v)
	}
}
