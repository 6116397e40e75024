package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// jsonPatchOf turns what an expression gave, a list of JSONPatch, into a patch.
func jsonPatchOf(result any) (jsonpatch.Patch, error) {
	list, ok := result.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	out := jsonpatch.Patch{}
	for it := list.Iterator(); it.HasNext() == celtypes.True; {
		op, err := operationOf(it.Next())
		if err != nil {
			return nil, err
		}
		out = append(out, op)
	}
	return out, nil
}

func operationOf(v ref.Val) (jsonpatch.Operation, error) {
	native, err := v.ConvertToNative(reflect.TypeFor[*mutation.JSONPatchVal]())
	if err != nil {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: %w", err)
	}
	p, ok := native.(*mutation.JSONPatchVal)
	if !ok {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %T", native)
	}
	op := jsonpatch.Operation{}
	set := func(key string, content any) error {
		text, err := json.Marshal(content)
		raw := json.RawMessage(text)
		op[key] = &raw
		return err
	}
	errs := []error{set("op", p.Op), set("path", p.Path)}
	if p.From != "" {
		errs = append(errs, set("from", p.From))
	}
	if p.Val != nil {
		content, err := jsonOf(p.Val)
		errs = append(errs, err, set("value", content))
	}
	return op, errors.Join(errs...)
}

// jsonOf makes a CEL value something that encodes as JSON.
func jsonOf(v ref.Val) (any, error) {
	if err := wellNamed(v); err != nil {
		return nil, err
	}
	out, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	return out, nil
}

// wellNamed refuses an Object whose types are not named after the fields that they are in, such as Object.spec{selector: Object.spec.other{}}.
func wellNamed(v any) error {
	if obj, ok := v.(*dynamic.ObjectVal); ok {
		if err := obj.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return fmt.Errorf("type mismatch: %w", err)
		}
	}
	return nil
}

// applied merges the Object that an expression gave into obj, as server-side apply does, but for ownership.
func (m *mutator) applied(in *input, obj runtime.Object, result any) ([]byte, error) {
	config, ok := result.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %T", result)
	}
	if err := wellNamed(config); err != nil {
		return nil, err
	}
	content, ok := config.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", config.Value())
	}
	patch := &unstructured.Unstructured{Object: content}
	patch.SetGroupVersionKind(in.target.Kind)
	types, err := m.converter(in)
	if err != nil {
		return nil, err
	}
	merged, err := merge(types, obj, patch)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return json.Marshal(merged)
}

func (m *mutator) converter(in *input) (managedfields.TypeConverter, error) {
	if in.request.Kind.Merge != nil && in.request.Body == nil {
		return in.request.Kind.Merge()
	}
	if m.types == nil {
		return nil, errors.New("this server does not merge apply configurations")
	}
	return m.types(), nil
}

func merge(types managedfields.TypeConverter, obj runtime.Object, patch *unstructured.Unstructured) (runtime.Object, error) {
	config, err := types.ObjectToTyped(patch)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if atomic := atomics(nil, config.Schema(), config.TypeRef(), config.AsValue()); len(atomic) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(atomic, ", "))
	}
	live, err := types.ObjectToTyped(obj, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := live.Merge(config)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	return managedfields.NewDeducedTypeConverter().TypedToObject(merged)
}

// atomics lists what of an apply configuration would replace something whole: whoever wrote it likely meant to change a part only.
func atomics(path fieldpath.Path, s *schema.Schema, of schema.TypeRef, v value.Value) []string {
	atom, ok := s.Resolve(of)
	if !ok {
		return nil
	}
	var out []string
	if v.IsMap() && atom.Map != nil {
		if atom.Map.ElementRelationship == schema.Atomic {
			out = append(out, path.String())
		}
		v.AsMap().Iterate(func(key string, field value.Value) bool {
			if f, known := atom.Map.FindField(key); known {
				out = append(out, atomics(extend(path, fieldpath.PathElement{FieldName: &key}), s, f.Type, field)...)
			}
			return true
		})
	}
	if v.IsList() && atom.List != nil {
		if atom.List.ElementRelationship == schema.Atomic {
			out = append(out, path.String())
		}
		items := v.AsList()
		for i := range items.Length() {
			out = append(out, atomics(extend(path, fieldpath.PathElement{Index: &i}), s, atom.List.ElementType, items.At(i))...)
		}
	}
	return out
}

func extend(path fieldpath.Path, e fieldpath.PathElement) fieldpath.Path {
	return append(path[:len(path):len(path)], e)
}
