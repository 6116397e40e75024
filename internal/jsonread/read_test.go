package jsonread_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/yare-project/yare/internal/jsonread"
)

type (
	name  string
	odd   struct{ S string }
	inner struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	Embedded struct {
		X string `json:"x,omitempty"`
	}
	all struct {
		Embedded `json:",inline"`
		B        bool          `json:"b"`
		I8       int8          `json:"i8"`
		I32      int32         `json:"i32"`
		I64      int64         `json:"i64"`
		U8       uint8         `json:"u8"`
		U64      uint64        `json:"u64"`
		F32      float32       `json:"f32"`
		F64      float64       `json:"f64"`
		S        string        `json:"s"`
		N        name          `json:"n"`
		P        *int32        `json:"p"`
		PS       *string       `json:"ps"`
		PP       **inner       `json:"pp"`
		In       inner         `json:"in"`
		PI       *inner        `json:"pi"`
		Next     *all          `json:"next"`
		L        []all         `json:"l"`
		LI       []int32       `json:"li"`
		LS       []name        `json:"ls"`
		LP       []*inner      `json:"lp"`
		LL       [][]string    `json:"ll"`
		Bin      []byte        `json:"bin"`
		M        map[name]name `json:"m"`
		MB       map[string][]byte
		MQ       map[name]resource.Quantity `json:"mq"`
		MS       map[string]inner           `json:"ms"`
		MM       map[string]map[string]int  `json:"mm"`
		ML       map[string][]string        `json:"ml"`
		MP       map[string]*all            `json:"mp"`
		MT       map[string]metav1.Time     `json:"mt"`
		Any      any                        `json:"any"`
		T        metav1.Time                `json:"t"`
		PT       *metav1.Time               `json:"pt"`
		Mi       metav1.MicroTime           `json:"mi"`
		Q        resource.Quantity          `json:"q"`
		PQ       *resource.Quantity         `json:"pq"`
		IS       intstr.IntOrString         `json:"is"`
		PIS      *intstr.IntOrString        `json:"pis"`
		D        metav1.Duration            `json:"d"`
		F        metav1.FieldsV1            `json:"f"`
		PF       *metav1.FieldsV1           `json:"pf"`
		R        runtime.RawExtension       `json:"r"`
		LR       []runtime.RawExtension     `json:"lr"`
		O        odd                        `json:"o"`
		PO       *odd                       `json:"po"`
		LO       []odd                      `json:"lo"`
		Hidden   string                     `json:"-"`
	}
)

func (o *odd) UnmarshalJSON(b []byte) error { o.S += string(b); return nil }

var asDeep = cmp.Exporter(func(reflect.Type) bool { return true })

// agree fails unless what is read is what the API's own decoder reads without a word; it tells whether it was read.
func agree[T any](t testing.TB, data string) bool {
	t.Helper()
	var got, want T
	faults, err := kjson.UnmarshalStrict([]byte(data), &want)
	own := []byte(data)
	if !jsonread.Struct(own, &got) {
		return false
	}
	for i := range own { // the body's memory is used again
		own[i] = '!'
	}
	if err != nil || len(faults) > 0 {
		t.Errorf("read what is not plain: %v %v\n%s", faults, err, data)
	} else if !reflect.DeepEqual(want, got) {
		t.Errorf("%s (-theirs +here):\n%s", data, cmp.Diff(want, got, asDeep))
	}
	return true
}

var plain = []string{
	`{}`, ` { } `, "\n{\t\"s\" :\r\"x\" , \"b\" : true }\n", `{"b":true,"i8":-128,"i32":2147483647,"i64":-9223372036854775808,"u8":255,"u64":18446744073709551615}`,
	`{"f32":1.5,"f64":-1e300}`, `{"f64":5,"f32":0}`, `{"i32":0,"i8":-0}`, `{"s":"","n":"é<>&\u2028"}`, `{"s":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000"}`, `{"x":"embedded"}`,
	`{"p":5,"ps":"","pp":{"a":1},"pi":{},"in":{"b":2,"a":1}}`, `{"p":null,"ps":null,"pp":null,"pi":null,"in":null,"s":null,"i32":null,"b":null,"f64":null}`,
	`{"next":{"next":{"next":null,"s":"deep"}}}`, `{"l":[{},{"l":[]},null]}`, `{"l":null,"li":[],"ls":["a","","b"],"lp":[null,{"a":1}],"ll":[null,[],["x"]]}`, `{"li":[1,2,3,4,5,6,7,8,9,null]}`,
	`{"bin":""}`, `{"bin":"aGVsbG8="}`, `{"bin":null}`, `{"m":{}}`, `{"m":null}`, `{"m":{"b":"2","a":"1","":""}}`, `{"m":{"a":null}}`, `{"MB":{"a":"eA==","b":null,"c":""}}`,
	`{"mq":{"cpu":"100m","memory":"1Gi","x":5,"z":null}}`, `{"ms":{"x":{"a":1},"y":null}}`, `{"mm":{"x":{"y":1},"z":null}}`, `{"ml":{"x":["a"],"y":null,"z":[]}}`, `{"mp":{"x":{"s":"a"},"y":null}}`,
	`{"mt":{"x":"2026-01-02T03:04:05Z","y":null}}`, `{"any":null}`, `{"t":"2026-02-28T23:59:59Z","pt":"0001-01-01T00:00:00Z","mi":"2026-01-02T03:04:05.678901Z"}`,
	`{"t":"2026-12-31T23:59:59Z"}`, `{"t":"2024-02-29T00:00:00Z"}`, `{"t":"2026-01-02T03:04:05.5+01:00"}`, `{"t":null,"pt":null,"mi":null}`, `{"q":"1","pq":"-1.5"}`, `{"q":null,"pq":null}`, `{"q":12}`,
	`{"q":"12345678901234567890","pq":"12345678901234567890"}`, `{"is":5,"pis":"50%"}`, `{"is":"","pis":-5}`, `{"is":null,"pis":null}`, `{"d":"5s"}`, `{"f":{"f:a":{}},"pf":{ "f:b" : [ 1 , 2.5e+3 ] }}`,
	`{"f":null,"pf":null}`, `{"f":{"twice":1,"twice":2}}`, `{"r":{"a":[true,false,null,"x"]},"lr":[1,"x",null,{}]}`, `{"r":null}`, `{"o":{"S":1},"po":[ ],"lo":[null,5]}`, `{"o":null,"po":null}`,
}

var refused = []string{
	``, `null`, `[]`, `"x"`, `{`, `}`, `{}}`, `{} {}`, `{"s"}`, `{"s":}`, `{"s":"a",}`, `{,}`, `{"s":"a" "n":"b"}`, `{s:"a"}`, `{"S":"a"}`, `{"unheardOf":1}`, `{"s":"a","s":"b"}`, `{"x":"a","x":"b"}`,
	`{"\u0073":"a"}`, `{"s":1}`, `{"s":true}`, `{"s":{}}`, `{"s":"a}`, "{\"s\":\"\n\"}", "{\"s\":\"\xff\"}", `{"s":"\ud800"}`, `{"s":"\udc00\ud800"}`, `{"s":"\x"}`, `{"s":"\u12g4"}`, `{"b":1}`, `{"b":tru}`,
	`{"b":"true"}`, `{"i8":128}`, `{"i32":1.0}`, `{"i32":1e2}`, `{"i32":01}`, `{"i32":+1}`, `{"i32":-}`, `{"i32":"5"}`, `{"i64":9223372036854775808}`, `{"u8":-1}`, `{"u8":256}`, `{"f32":1e300}`, `{"f64":.5}`,
	`{"f64":1.}`, `{"f64":1e}`, `{"p":"x"}`, `{"li":[1,]}`, `{"li":[1 2]}`, `{"li":[}`, `{"li":{}}`, `{"li":[1}`, `{"bin":"a"}`, `{"bin":[1]}`, `{"bin":"aG\nk="}`, `{"m":{"a":"1","a":"2"}}`, `{"m":[]}`, `{"m":{"a":1}}`,
	`{"ms":{"a":{},"a":{}}}`, `{"mm":{"a":{"b":1,"b":1}}}`, `{"any":1}`, `{"t":"x"}`, `{"t":5}`, `{"t":"2026-02-30T00:00:00Z"}`, `{"t":"2026-13-01T00:00:00Z"}`, `{"t":"2026-01-01T24:00:00Z"}`, `{"q":"x"}`, `{"q":{}}`,
	`{"is":1.5}`, `{"is":true}`, `{"d":"x"}`, `{"f":{"a":}}`, `{"r":{"a" 1}}`, `{"nul":nul}`, `{"s":nul}`, `{"in":{"a":1,"c":2}}`, `{"in":{"A":1}}`, `{"-":"x"}`, `{"Hidden":"x"}`, `{"s":"a"}x`, "{\"s\":\"a\"}\x00", "\ufeff{}",
}

func TestReadsWhatIsPlain(t *testing.T) {
	for _, d := range plain {
		if !agree[all](t, d) {
			t.Errorf("not read: %s", d)
		}
	}
}

func TestRefusesWhatIsNot(t *testing.T) {
	deep := `{"s":"x"}`
	for range 500 {
		deep = `{"next":` + deep + `}`
	}
	for _, d := range append(refused, deep, `{"r":`+strings.Repeat("[", 500)+strings.Repeat("]", 500)+`}`) {
		if agree[all](t, d) {
			t.Errorf("read: %s", d)
		}
	}
	for _, d := range refused {
		var left all
		if jsonread.Struct([]byte(d), &left); !reflect.ValueOf(left).IsZero() {
			t.Errorf("%s: left %+v", d, left)
		}
	}
	for _, v := range []any{nil, 5, &all{Embedded: Embedded{X: "full"}}, &all{LO: []odd{}}, new(int), all{}, (*all)(nil), &[]all{}, &map[string]any{}} {
		if jsonread.Struct([]byte(`{}`), v) {
			t.Errorf("read into a %T", v)
		}
	}
}

type (
	hiding struct {
		Embedded
		X string `json:"x"`
	}
	pointing struct{ *Embedded }
	quoted   struct {
		N int `json:",string"`
	}
	textKey  string
	foreign1 struct{ M map[int]string }
	foreign2 struct{ M map[textKey]string }
	foreign3 struct{ N json.Number }
	foreign4 struct{ A [2]int }
	foreign5 struct{ C chan int }
)

func (*textKey) UnmarshalText([]byte) error { return nil }

func TestTypesThatOthersMustRead(t *testing.T) {
	for _, x := range []struct {
		read func(testing.TB, string) bool
		doc  string
	}{
		{agree[hiding], `{"x":"a"}`}, {agree[pointing], `{"x":"a"}`}, {agree[quoted], `{"N":"5"}`}, {agree[foreign1], `{"M":{"5":"a"}}`}, {agree[foreign2], `{"M":{"5":"a"}}`},
		{agree[foreign3], `{"N":5}`}, {agree[foreign3], `{"N":"x"}`}, {agree[foreign4], `{"A":[1,2]}`}, {agree[foreign5], `{"C":5}`},
	} {
		if x.read(t, x.doc) {
			t.Errorf("read: %s", x.doc)
		}
	}
}

// TestSharedStringsDoNotMix reads many documents with one reader's memory of strings and quantities.
func TestSharedStringsDoNotMix(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	word := func() string {
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = "ab"[r.IntN(2)]
		}
		return string(b)
	}
	for range 3000 {
		q := resource.NewScaledQuantity(r.Int64N(50), resource.Scale(r.IntN(25)-3)).String()
		doc := must(json.Marshal(map[string]any{"s": word(), "n": word(), "ls": []string{word(), word()}, "m": map[string]string{word(): word()}, "q": q, "mq": map[string]string{word(): q}}))
		if !agree[all](t, string(doc)) {
			t.Errorf("not read: %s", doc)
		}
	}
	// What one object's owner does to a quantity is not seen in another's.
	var a, b, c all
	doc := []byte(`{"q":"12345678901234567890","pq":"7"}`)
	if !jsonread.Struct(doc, &a) || !jsonread.Struct(doc, &b) {
		t.Fatal("not read")
	}
	for _, q := range []*resource.Quantity{&a.Q, a.PQ, &b.Q, b.PQ} {
		q.Add(resource.MustParse("1"))
	}
	if !jsonread.Struct(doc, &c) {
		t.Fatal("not read")
	}
	if d := cmp.Diff([]string{"12345678901234567890", "7"}, []string{c.Q.String(), c.PQ.String()}); d != "" {
		t.Error(d)
	}
}

func TestEachByteAtEachPlaceOfAString(t *testing.T) {
	for c := range 256 {
		for n := 1; n < 20; n++ {
			b := []byte(strings.Repeat("x", 20))
			b[n] = byte(c)
			agree[all](t, `{"s":"`+string(b)+`"}`)
			agree[all](t, `{"s":"`+string(b))
		}
	}
}

func TestStructsOfManyFields(t *testing.T) {
	for n, ok := range map[int]bool{100: true, 128: true, 129: false} {
		var fields []reflect.StructField
		doc := ""
		for i := range n {
			fields = append(fields, reflect.StructField{Name: fmt.Sprint("F", i), Type: reflect.TypeFor[int]()})
			doc += fmt.Sprintf(`,"F%d":%d`, i, i+1)
		}
		typ := reflect.StructOf(fields)
		v := reflect.New(typ)
		if jsonread.Struct([]byte("{"+doc[1:]+"}"), v.Interface()) != ok {
			t.Errorf("%d fields: read %v", n, !ok)
		} else if last := v.Elem().Field(n - 1).Int(); ok && last != int64(n) {
			t.Errorf("%d fields: the last is %d", n, last)
		}
		for i := range n {
			if jsonread.Struct(fmt.Appendf(nil, `{"F%d":1,"F%d":1}`, i, i), reflect.New(typ).Interface()) {
				t.Errorf("%d fields: number %d read twice", n, i)
			}
		}
	}
}

func TestTimesAtEachPlace(t *testing.T) {
	for at := time.Date(1999, 12, 25, 1, 2, 3, 0, time.UTC); at.Year() < 2002; at = at.Add(13*time.Hour + 7*time.Minute) {
		agree[all](t, `{"t":"`+at.Format(time.RFC3339)+`"}`)
	}
	for i := range 20 {
		for c := range 128 {
			b := []byte("2026-01-02T03:04:05Z")
			b[i] = byte(c)
			agree[all](t, `{"t":"`+string(b)+`"}`)
		}
	}
}

func FuzzStruct(f *testing.F) {
	for _, d := range append(append([]string{}, plain...), refused...) {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, d string) {
		agree[all](t, d)
		agree[corev1.Pod](t, d)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
