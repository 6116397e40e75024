package kind

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The precision that the wire has: RFC 3339 without fractions, and with six digits.
const (
	timePrecision  = time.Second
	microPrecision = time.Microsecond
)

var (
	timeType  = reflect.TypeFor[metav1.Time]()
	microType = reflect.TypeFor[metav1.MicroTime]()
)

// rounder cuts the times below a value of one type to what the wire can carry.
type rounder func(reflect.Value)

// rounderOf finds, once for a type, where times are in it. nil: there are none, so that nothing has to be looked at.
func rounderOf(t reflect.Type) rounder { return (&roundings{known: map[reflect.Type]*found{}}).of(t) }

// RoundTimes does for any object what Kind.Round does for those of its kind, looking for the times anew.
func RoundTimes(obj Object) {
	if v := reflect.ValueOf(obj).Elem(); v.Kind() == reflect.Struct {
		if round := rounderOf(v.Type()); round != nil {
			round(v)
		}
	}
}

// roundings are the types that were looked at; one that is still being looked at is part of itself.
type roundings struct{ known map[reflect.Type]*found }

type found struct {
	done  bool
	round rounder
}

func (r *roundings) of(t reflect.Type) rounder {
	if f := r.known[t]; f != nil {
		if f.done {
			return f.round
		}
		return func(v reflect.Value) {
			if f.round != nil {
				f.round(v)
			}
		}
	}
	f := &found{}
	r.known[t] = f
	f.round = r.look(t)
	f.done = true
	return f.round
}

func (r *roundings) look(t reflect.Type) rounder {
	switch {
	case t == timeType:
		return roundTime
	case t == microType:
		return roundMicro
	}
	switch t.Kind() {
	case reflect.Struct:
		return r.fields(t)
	case reflect.Pointer:
		if inner := r.of(t.Elem()); inner != nil && !r.onlyItself(t.Elem()) {
			return func(v reflect.Value) {
				if !v.IsNil() {
					inner(v.Elem())
				}
			}
		}
	case reflect.Slice, reflect.Array:
		if inner := r.of(t.Elem()); inner != nil && !r.onlyItself(t.Elem()) {
			return func(v reflect.Value) {
				for i := range v.Len() {
					inner(v.Index(i))
				}
			}
		}
	case reflect.Map:
		if inner := r.of(t.Elem()); inner != nil && !r.onlyItself(t.Elem()) {
			return roundMap(inner)
		}
	}
	return nil
}

// onlyItself tells a type that was met within itself: whether it has times its other fields tell.
func (r *roundings) onlyItself(t reflect.Type) bool { return !r.known[t].done }

func (r *roundings) fields(t reflect.Type) rounder {
	type part struct {
		at    int
		round rounder
	}
	var parts []part
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		if round := r.of(t.Field(i).Type); round != nil {
			parts = append(parts, part{i, round})
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return func(v reflect.Value) {
		for _, p := range parts {
			p.round(v.Field(p.at))
		}
	}
}

// roundMap works on copies: what is in a map cannot be changed in place.
func roundMap(inner rounder) rounder {
	return func(v reflect.Value) {
		for _, key := range v.MapKeys() {
			c := reflect.New(v.Type().Elem()).Elem()
			c.Set(v.MapIndex(key))
			inner(c)
			v.SetMapIndex(key, c)
		}
	}
}

func roundTime(v reflect.Value) {
	t := v.Addr().Interface().(*metav1.Time)
	if t.Nanosecond() != 0 {
		t.Time = t.Truncate(timePrecision)
	}
}

func roundMicro(v reflect.Value) {
	t := v.Addr().Interface().(*metav1.MicroTime)
	if t.Nanosecond()%int(microPrecision) != 0 {
		t.Time = t.Truncate(microPrecision)
	}
}
