package verbs

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/jsonwrite"
	"github.com/yare-project/yare/kind"
)

// ScaleKind is what the scale subresource takes and gives.
var ScaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleKind lets the field managers treat a Scale as a kind of its own.
var scaleKind = &kind.Kind{
	Group: ScaleKind.Group, Hub: ScaleKind, Names: kind.Names{Plural: "scales", Kind: "Scale"},
	New: func() kind.Object { return &autoscalingv1.Scale{} },
	Versions: []kind.Version{{GroupVersionKind: ScaleKind, Names: kind.Names{Plural: "scales", Kind: "Scale"},
		New: func() runtime.Object { return &autoscalingv1.Scale{} }}},
}

// GetScale reads an object's scale.
func (r *Resource) GetScale(ctx context.Context, rq *Request, opts *metav1.GetOptions) (*autoscalingv1.Scale, error) {
	o, err := r.Get(ctx, rq, opts)
	if err != nil {
		return nil, err
	}
	return r.scaleOf(o.Hub()), nil
}

// scaleOf shows an object as a Scale.
func (r *Resource) scaleOf(obj kind.Object) *autoscalingv1.Scale {
	s := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{Kind: ScaleKind.Kind, APIVersion: ScaleKind.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp()},
		Spec:   autoscalingv1.ScaleSpec{Replicas: r.Kind.Scale.Replicas(obj)},
		Status: autoscalingv1.ScaleStatus{Replicas: r.Kind.Scale.StatusReplicas(obj), Selector: r.Kind.Scale.Selector(obj)},
	}
	return s
}

// UpdateScale sets an object's replicas from a Scale.
func (r *Resource) UpdateScale(ctx context.Context, rq *Request, scale *autoscalingv1.Scale, opts *metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	return r.editScale(ctx, rq, opts, dryRun(opts.DryRun), rq.manager(opts.FieldManager), func(*autoscalingv1.Scale) (*autoscalingv1.Scale, bool, error) {
		return scale.DeepCopy(), false, nil
	})
}

// PatchScale patches an object's scale.
func (r *Resource) PatchScale(ctx context.Context, rq *Request, typ types.PatchType, body []byte, opts *metav1.PatchOptions) (*autoscalingv1.Scale, error) {
	if errs := metav1validation.ValidatePatchOptions(opts, typ); len(errs) > 0 {
		return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("PatchOptions").GroupKind(), "", errs)
	}
	manager := rq.manager(opts.FieldManager)
	return r.editScale(ctx, rq, opts, dryRun(opts.DryRun), manager, func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, bool, error) {
		if typ == types.ApplyPatchType {
			s, err := r.applyScale(live, body, manager, opts.Force != nil && *opts.Force)
			return s, true, err
		}
		s, err := patchScale(live, typ, body, opts.FieldValidation, rq)
		return s, false, err
	})
}

func patchScale(live *autoscalingv1.Scale, typ types.PatchType, body []byte, strict string, rq *Request) (*autoscalingv1.Scale, error) {
	doc, err := jsonwrite.Marshal(live)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	patched, faults, err := PatchJSON(typ, doc, body, &autoscalingv1.Scale{}, strict)
	if err != nil {
		return nil, err
	}
	out := &autoscalingv1.Scale{}
	more, err := codec.UnmarshalJSON(patched, out, strict)
	if err != nil {
		return nil, badPatch(ScaleKind.GroupKind(), rq.Ref.Name, err)
	}
	warnings, err := codec.Judge(append(faults, more...), strict)
	if err != nil {
		return nil, badPatch(ScaleKind.GroupKind(), rq.Ref.Name, err)
	}
	for _, w := range warnings {
		rq.Warn(w)
	}
	return out, nil
}

func (r *Resource) applyScale(live *autoscalingv1.Scale, body []byte, manager string, force bool) (*autoscalingv1.Scale, error) {
	config := &unstructured.Unstructured{}
	err := codec.CheckAliases(body)
	if err == nil {
		err = yaml.Unmarshal(body, &config.Object)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	normalizeNumbers(config.Object)
	out, err := r.scaleFields.Apply(live, config, &scaleKind.Versions[0], "scale", manager, force)
	if err != nil || out == nil {
		return live, err
	}
	return out.(*autoscalingv1.Scale), nil
}

// editScale changes replicas as make says from the newest Scale; applied tells that make settled the Scale's managedFields. Who owns replicas
// is kept in the object's own managedFields, under the path that they have there.
func (r *Resource) editScale(ctx context.Context, rq *Request, opts runtime.Object, dry bool, manager string,
	make func(live *autoscalingv1.Scale) (next *autoscalingv1.Scale, applied bool, err error)) (*autoscalingv1.Scale, error) {
	e := &Edit{Sub: "scale", Options: opts, DryRun: dry, Applied: true}
	e.Build = func(old *stored.Object) (kind.Object, error) {
		live := r.scaleOf(old.Hub())
		owners := managedfields.NewScaleHandler(old.Hub().GetManagedFields(), rq.Version.GroupVersion(), r.replicaPaths())
		entries, err := owners.ToSubresource()
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		live.SetManagedFields(entries)
		next, applied, err := make(live)
		if err != nil {
			return nil, err
		}
		if err := validateScale(next); err != nil {
			return nil, err
		}
		if !applied {
			owned, err := r.scaleFields.Update(live, next, &scaleKind.Versions[0], "scale", manager)
			if err != nil {
				return nil, apierrors.NewInternalError(err)
			}
			next = owned.(*autoscalingv1.Scale)
		}
		obj := old.Hub().DeepCopyObject().(kind.Object)
		r.Kind.Scale.SetReplicas(obj, next.Spec.Replicas)
		if entries, err = owners.ToParent(next.GetManagedFields()); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		obj.SetManagedFields(entries)
		if next.GetName() != "" {
			obj.SetName(next.GetName())
		}
		if next.GetUID() != "" {
			obj.SetUID(next.GetUID())
		}
		if rv := next.GetResourceVersion(); rv != "" { // a Scale need not name one, whatever its object must
			obj.SetResourceVersion(rv)
		}
		return obj, nil
	}
	o, _, err := r.Edit(ctx, rq, e)
	if err != nil {
		return nil, err
	}
	return r.scaleOf(o.Hub()), nil
}

func validateScale(s *autoscalingv1.Scale) error {
	if s.Spec.Replicas < 0 {
		return apierrors.NewInvalid(ScaleKind.GroupKind(), s.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), s.Spec.Replicas, "must be greater than or equal to 0")})
	}
	return nil
}

// replicaPaths says where each version keeps its replicas.
func (r *Resource) replicaPaths() managedfields.ResourcePathMappings {
	out := managedfields.ResourcePathMappings{}
	for _, v := range r.Kind.Versions {
		path := fieldpath.MakePathOrDie("spec", "replicas")
		if v.ReplicasPath != nil {
			path = nil
			for _, name := range v.ReplicasPath {
				path = append(path, fieldpath.PathElement{FieldName: &name})
			}
		}
		out[v.GroupVersion().String()] = path
	}
	return out
}
