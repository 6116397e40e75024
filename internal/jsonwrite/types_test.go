package jsonwrite_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var leaves = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[int](),
	reflect.TypeFor[uint8](), reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](),
	reflect.TypeFor[string](), reflect.TypeFor[text](), reflect.TypeFor[[]byte](), reflect.TypeFor[any](), reflect.TypeFor[error](), reflect.TypeFor[json.Number](),
	reflect.TypeFor[onPtr](), reflect.TypeFor[spokenP](), reflect.TypeFor[zeroed](), reflect.TypeFor[key](), reflect.TypeFor[byte2](), reflect.TypeFor[textKey](),
	reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](),
	reflect.TypeFor[time.Time](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[Embedded](), reflect.TypeFor[Deeper](), reflect.TypeFor[struct{}](), reflect.TypeFor[small](),
}

var keys = []reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[text](), reflect.TypeFor[textKey](), reflect.TypeFor[int16](), reflect.TypeFor[key]()}

// small has the alignment of half a word and ends in the middle of one.
type small struct {
	A, B int32 `json:",omitempty"`
	C    bool  `json:",omitempty"`
}

// randomType makes a type that is at most depth levels deep.
func randomType(r *rand.Rand, depth int) reflect.Type {
	if depth == 0 {
		return leaves[r.IntN(len(leaves))]
	}
	switch r.IntN(7) {
	case 0:
		return reflect.PointerTo(randomType(r, depth-1))
	case 1:
		return reflect.SliceOf(randomType(r, depth-1))
	case 2:
		return reflect.MapOf(keys[r.IntN(len(keys))], randomType(r, depth-1))
	case 3:
		return reflect.ArrayOf(r.IntN(3), randomType(r, depth-1))
	case 4:
		return leaves[r.IntN(len(leaves))]
	}
	fields := make([]reflect.StructField, r.IntN(6))
	for i := range fields {
		options := []string{"", ",omitempty", ",omitzero", ",omitempty,omitzero", ",string"}[r.IntN(33)/8]
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: randomType(r, depth-1), Tag: reflect.StructTag(fmt.Sprintf(`json:"f%d%s"`, i, options))}
	}
	return reflect.StructOf(fields)
}

// fill sets v to something, often to nothing.
func fill(r *rand.Rand, v reflect.Value) {
	if r.IntN(3) == 0 {
		return
	}
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		x.Time = time.Unix(r.Int64N(1<<34), 0)
		return
	case *metav1.MicroTime:
		x.Time = time.Unix(r.Int64N(1<<34), r.Int64N(1e9))
		return
	case *time.Time:
		*x = time.Unix(r.Int64N(1<<34), r.Int64N(1e9)).UTC()
		return
	case *netip.Addr:
		*x = netip.AddrFrom4([4]byte{10, 0, 0, byte(r.Uint32())})
		return
	case *resource.Quantity:
		*x = *resource.NewScaledQuantity(r.Int64N(1<<50), resource.Scale(r.IntN(12)-6))
		x.Format = []resource.Format{resource.BinarySI, resource.DecimalSI, resource.DecimalExponent}[r.IntN(3)]
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(r.Int32())
		return
	case *json.Number:
		*x = "1.5e3"
		return
	case *error:
		*x = &testError{"e"}
		return
	case *any:
		*x = []any{"s", 1, 2.5, onPtr{"x"}, &onPtr{"y"}, map[string]any{"b": nil, "a": int64(1)}, []string{"l"}, map[string]string{"k": "v"}}[r.IntN(8)]
		return
	}
	fillKind(r, v)
}

func fillKind(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat((r.Float64() - 0.5) * []float64{1, 1e-8, 1e22, 1000}[r.IntN(4)])
	case reflect.String:
		v.SetString([]string{"a", "<&>", "long enough for two words", "é\xff\n"}[r.IntN(4)])
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			if k.Type() == reflect.TypeFor[key]() {
				k.Field(0).SetInt(r.Int64N(20))
			} else {
				fill(r, k)
			}
			fill(r, e)
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(r, v.Field(i))
			}
		}
	}
}

// TestRandomTypes holds values of types that nobody would write to encoding/json.
func TestRandomTypes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		typ := randomType(r, 4)
		for range 4 {
			v := reflect.New(typ)
			fill(r, v.Elem())
			same(t, v.Interface())
			same(t, v.Elem().Interface())
		}
		if t.Failed() {
			t.Fatalf("type %v", typ)
		}
	}
}
