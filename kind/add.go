package kind

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/internal/alike"
)

// AllVerbs are what a stored kind serves unless its Def says otherwise.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// Add erases def's type, appends it to the group and returns it. It panics on a definition that cannot be right: kinds are added while the
// program starts, and a wrong one must not start.
func Add[T any](group *Group, def Def[T]) *Kind {
	e := eraser[T]{}
	names := e.names(def.Names)
	version := def.Version
	if version == "" {
		version = group.Versions[0]
	}
	k := &Kind{
		Group:           group.Name,
		Hub:             schema.GroupVersionKind{Group: group.Name, Version: version, Kind: names.Kind},
		Names:           names,
		Scope:           def.Scope,
		Relaxed:         def.Relaxed,
		Verbs:           def.Verbs,
		Virtual:         def.Answer != nil,
		New:             func() Object { return e.object(new(T)) },
		Default:         e.one(def.Default),
		Prepare:         e.two(def.Prepare),
		PrepareStatus:   e.two(def.PrepareStatus),
		Validate:        e.check(def.Validate),
		ValidateStatus:  e.check(def.ValidateStatus),
		ValidateName:    def.ValidateName,
		Scale:           e.scale(def.Scale),
		OrphanByDefault: def.OrphanByDefault,
		OrphanWarning:   def.OrphanWarning,
		CreateOnUpdate:  def.CreateOnUpdate,
		RequireVersion:  def.RequireVersion,
		AnyFinalizer:    group.AnyFinalizer || def.AnyFinalizer,
		StatusOnCreate:  def.StatusOnCreate,
		OnDelete:        e.one(def.OnDelete),
		ReturnDeleted:   def.ReturnDeleted,
		Body:            def.Body,
		FieldRefusal:    def.FieldRefusal,
		AnyGenerateName: def.AnyGenerateName,
		TTL:             def.TTL,
	}
	if def.KeepDeleted != nil {
		k.KeepDeleted = func(o Object) bool { return def.KeepDeleted(e.typed(o)) }
	}
	if k.Virtual {
		k.Verbs = []string{"create"}
		k.Answer = func(ctx context.Context, env Env, obj Object) (Object, error) {
			answer, err := def.Answer(ctx, env, e.typed(obj))
			if err != nil {
				return nil, err
			}
			return e.object(answer), nil
		}
	}
	if k.Verbs == nil {
		k.Verbs = AllVerbs
	}
	equal := sync.OnceValue(func() func(a, b *T) bool { return alike.Equal[T]() })
	k.Equal = func(a, b Object) bool { return equal()(e.typed(a), e.typed(b)) }
	e.status(k, def)
	e.functions(k, def)
	if round := rounderOf(reflect.TypeFor[T]()); round != nil && !k.Virtual {
		k.Round = func(o Object) { round(reflect.ValueOf(e.typed(o)).Elem()) }
	}
	k.Versions = append(k.Versions, Version{
		GroupVersionKind: k.Hub, Names: names,
		New:     func() runtime.Object { return e.object(new(T)) },
		NewList: listOf(group, k.Hub),
		Columns: e.columns(def.Columns), NoAge: def.NoAge, NoName: def.NoName, Ordered: def.Ordered, Fields: e.fields(def.Fields), Warning: def.Warning,
	})
	for _, s := range def.Served {
		k.Versions = append(k.Versions, e.served(k, def, s))
	}
	for _, s := range def.Subs {
		k.Subs = append(k.Subs, e.sub(s))
	}
	group.Kinds = append(group.Kinds, k)
	return k
}

// eraser turns functions of *T into functions of Object.
type eraser[T any] struct{}

func (eraser[T]) object(t *T) Object {
	if t == nil {
		return nil
	}
	o, ok := any(t).(Object)
	if !ok {
		panic(fmt.Sprintf("kind: %T is not an API object with metadata", t))
	}
	return o
}

func (eraser[T]) typed(o Object) *T {
	if o == nil {
		return nil
	}
	return any(o).(*T)
}

func (eraser[T]) names(n Names) Names {
	if n.Kind == "" {
		n.Kind = reflect.TypeFor[T]().Name()
	}
	if n.Singular == "" {
		n.Singular = strings.ToLower(n.Kind)
	}
	if n.Plural == "" {
		panic("kind: " + n.Kind + " has no plural")
	}
	return n
}

func (e eraser[T]) one(f func(*T)) func(Object) {
	if f == nil {
		return nil
	}
	return func(o Object) { f(e.typed(o)) }
}

func (e eraser[T]) two(f func(a, b *T)) func(a, b Object) {
	if f == nil {
		return nil
	}
	return func(a, b Object) { f(e.typed(a), e.typed(b)) }
}

func (e eraser[T]) check(f func(a, b *T) field.ErrorList) func(a, b Object) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(a, b Object) field.ErrorList { return f(e.typed(a), e.typed(b)) }
}

func (e eraser[T]) functions(k *Kind, def Def[T]) {
	if def.Warn != nil {
		k.Warn = func(a, b Object) []string { return def.Warn(e.typed(a), e.typed(b)) }
	}
	if t := def.Template; t != nil {
		k.TemplateKey = func(o Object) uint64 { return t.Key(e.typed(o)) }
		k.Share = func(obj, like Object) bool { return t.Share(e.typed(obj), e.typed(like)) }
	}
	if def.Assign != nil {
		k.Assign = func(env Env, taken func(pool, value string) bool, a, b Object) field.ErrorList {
			return def.Assign(env, taken, e.typed(a), e.typed(b))
		}
	}
	if def.Claims != nil {
		k.Claims = func(o Object) []Claim { return def.Claims(e.typed(o)) }
	}
	if def.Attendants != nil {
		k.Attendants = func(o Object) []Attendant { return def.Attendants(e.typed(o)) }
	}
	if def.Grace != nil {
		k.Grace = func(o Object, opts *metav1.DeleteOptions) int64 { return def.Grace(e.typed(o), opts) }
	}
}

// status derives how status and spec are told apart from T's fields.
func (e eraser[T]) status(k *Kind, def Def[T]) {
	t := reflect.TypeFor[T]()
	statusField, hasStatus := t.FieldByName("Status")
	specField, hasSpec := t.FieldByName("Spec")
	if hasStatus && !def.NoStatus && !k.Virtual {
		k.HasStatus = true
		at := statusField.Index
		value := func(o Object) reflect.Value { return reflect.ValueOf(e.typed(o)).Elem().FieldByIndex(at) }
		k.CopyStatus = func(dst, src Object) {
			part := k.New() // with nothing but the status: only that is copied
			value(part).Set(value(src))
			value(dst).Set(value(part.DeepCopyObject().(Object)))
		}
		k.MoveStatus = func(dst, src Object) { value(dst).Set(value(src)) }
		k.ResetStatus = func(o Object) { value(o).SetZero() }
	}
	if hasSpec && !def.NoGeneration && def.SpecOf == nil && specField.Type.Kind() == reflect.Struct {
		same := sync.OnceValue(func() func(a, b *T) bool { return alike.EqualPart[T]("Spec", def.SpecWithout...) }) // most kinds never ask
		k.SameSpec = func(a, b Object) bool { return same()(e.typed(a), e.typed(b)) }
	}
	switch {
	case def.NoGeneration:
	case def.SpecOf != nil:
		k.Spec = func(o Object) any { return def.SpecOf(e.typed(o)) }
	case hasSpec && !k.Virtual:
		k.Spec = func(o Object) any { return reflect.ValueOf(e.typed(o)).Elem().FieldByName("Spec").Addr().Interface() }
	}
}

func (e eraser[T]) columns(columns []Column[T]) []ErasedColumn {
	var out []ErasedColumn
	for _, c := range columns {
		typ := c.Type
		if typ == "" {
			typ = "string"
		}
		out = append(out, ErasedColumn{
			TableColumnDefinition: metav1.TableColumnDefinition{Name: c.Name, Type: typ, Format: c.Format, Description: c.Description, Priority: c.Priority},
			Value:                 func(o Object, now time.Time) any { return c.Value(e.typed(o), now) },
		})
	}
	return out
}

func (e eraser[T]) fields(fields map[string]func(*T) string) map[string]func(Object) string {
	out := make(map[string]func(Object) string, len(fields))
	for name, f := range fields {
		out[name] = func(o Object) string { return f(e.typed(o)) }
	}
	return out
}

func (e eraser[T]) scale(s *Scale[T]) *ErasedScale {
	if s == nil {
		return nil
	}
	return &ErasedScale{
		Replicas:       func(o Object) int32 { return s.Replicas(e.typed(o)) },
		SetReplicas:    func(o Object, n int32) { s.SetReplicas(e.typed(o), n) },
		StatusReplicas: func(o Object) int32 { return s.StatusReplicas(e.typed(o)) },
		Selector:       func(o Object) string { return s.Selector(e.typed(o)) },
	}
}

func (e eraser[T]) sub(s Sub[T]) ErasedSub {
	out := ErasedSub{Name: s.Name, Body: s.Body, New: s.New, Methods: slices.Clone(s.Methods), Verb: s.Verb, Also: s.Also, Named: s.Named, Older: s.Older, BodyNamed: s.BodyNamed, NoPatch: s.NoPatch,
		Replace: e.two(s.Replace), Validate: e.check(s.Validate)}
	if s.Create != nil {
		out.Create = func(ctx context.Context, env Env, parent Object, body runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
			return s.Create(ctx, env, e.typed(parent), body, opts)
		}
	}
	if s.Connect != nil {
		out.Connect = func(ctx context.Context, env Env, parent Object, path string, query url.Values) (Target, error) {
			return s.Connect(ctx, env, e.typed(parent), path, query)
		}
	}
	return out
}

func (e eraser[T]) served(k *Kind, def Def[T], s Served[T]) Version {
	names := k.Names
	if s.Names.Plural != "" {
		names = s.Names
	}
	if names.Kind == "" {
		names.Kind, names.Singular = k.Names.Kind, k.Names.Singular
	}
	columns, fields := def.Columns, def.Fields
	if s.Columns != nil {
		columns = s.Columns
	}
	if s.Fields != nil {
		fields = s.Fields
	}
	return Version{
		GroupVersionKind: s.GroupVersion.WithKind(names.Kind), Names: names, New: s.New, NewList: s.NewList,
		To:      func(hub Object) (runtime.Object, error) { return s.To(e.typed(hub)) },
		From:    func(o runtime.Object) (Object, error) { t, err := s.From(o); return e.object(t), err },
		Columns: e.columns(columns), NoAge: def.NoAge, NoName: def.NoName, Ordered: def.Ordered, Fields: e.fields(fields), Validate: e.check(s.Validate),
	}
}

// listOf finds a kind's list type in the group's scheme. Kinds without one (reviews) have no list.
func listOf(group *Group, gvk schema.GroupVersionKind) func() runtime.Object {
	list := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	scheme := group.Scheme()
	if !scheme.Recognizes(list) {
		return nil
	}
	obj, err := scheme.New(list)
	if err != nil {
		panic(fmt.Sprintf("kind: %s: %v", list, err))
	}
	t := reflect.TypeOf(obj).Elem()
	return func() runtime.Object { return reflect.New(t).Interface().(runtime.Object) }
}
