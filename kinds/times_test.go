package kinds_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/kinds"
)

// Every time of every stored kind comes back from the wire as it was stored, whatever fraction of a second a loop wrote.
func TestTimesAreWhatTheWireCarries(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	total := 0
	for _, g := range kinds.Groups() {
		for _, k := range g.Kinds {
			if k.Virtual {
				continue
			}
			obj := k.New()
			if n := fillTimes(reflect.ValueOf(obj).Elem(), at, nil); n < 3 {
				t.Errorf("%s: only %d times found: metadata alone has three", k.Resource(), n)
			} else {
				total += n
			}
			k.Round(obj)
			checkTimes(t, k.Resource().String(), reflect.ValueOf(obj).Elem())
			doc, err := json.Marshal(times(reflect.ValueOf(obj).Elem()))
			if err != nil {
				t.Fatal(err)
			}
			var back []metav1.MicroTime
			if err := json.Unmarshal(doc, &back); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(times(reflect.ValueOf(obj).Elem()), back, cmp.Comparer(func(a, b metav1.MicroTime) bool { return a.Equal(&b) })); d != "" {
				t.Errorf("%s: %s", k.Resource(), d)
			}
		}
	}
	if total < 300 {
		t.Errorf("only %d times found in all kinds", total)
	}
}

// fillTimes puts a time wherever one may be, making what is on the way there. It returns how many.
func fillTimes(v reflect.Value, at time.Time, within []reflect.Type) int {
	for _, t := range within {
		if t == v.Type() {
			return 0
		}
	}
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		x.Time = at
		return 1
	case *metav1.MicroTime:
		x.Time = at
		return 1
	}
	n := 0
	switch v.Kind() {
	case reflect.Struct:
		within = append(within[:len(within):len(within)], v.Type())
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				n += fillTimes(v.Field(i), at, within)
			}
		}
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if n = fillTimes(p.Elem(), at, within); n > 0 {
			v.Set(p)
		}
	case reflect.Slice:
		s := reflect.MakeSlice(v.Type(), 1, 1)
		if n = fillTimes(s.Index(0), at, within); n > 0 {
			v.Set(s)
		}
	case reflect.Map:
		e := reflect.New(v.Type().Elem()).Elem()
		if n = fillTimes(e, at, within); n > 0 {
			m := reflect.MakeMap(v.Type())
			m.SetMapIndex(reflect.Zero(v.Type().Key()), e)
			v.Set(m)
		}
	}
	return n
}

// times lists what is in v; those of whole seconds as MicroTimes too.
func times(v reflect.Value) []metav1.MicroTime {
	switch x := v.Interface().(type) {
	case metav1.Time:
		return []metav1.MicroTime{{Time: x.Time}}
	case metav1.MicroTime:
		return []metav1.MicroTime{x}
	}
	var out []metav1.MicroTime
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out = append(out, times(v.Field(i))...)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out = times(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, times(v.Index(i))...)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			out = append(out, times(v.MapIndex(key))...)
		}
	}
	return out
}

// checkTimes finds a metav1.Time with a fraction.
func checkTimes(t *testing.T, where string, v reflect.Value) {
	t.Helper()
	switch x := v.Interface().(type) {
	case metav1.Time:
		if x.Nanosecond() != 0 || x.IsZero() {
			t.Errorf("%s: %v is no whole second", where, x.Time)
		}
		return
	case metav1.MicroTime:
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				checkTimes(t, where+"."+f.Name, v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			checkTimes(t, where, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			checkTimes(t, where, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			checkTimes(t, where, v.MapIndex(key))
		}
	}
}
