package policy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	regv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// kindIndex finds a served version by its kind.
type kindIndex struct {
	kinds func() ([]*kind.Kind, uint64)
	now   atomic.Pointer[indexed]
}

type indexed struct {
	revision uint64
	by       map[schema.GroupVersionKind]served
}

type served struct {
	kind    *kind.Kind
	version *kind.Version
}

func (x *kindIndex) find(gvk schema.GroupVersionKind) (served, bool) {
	if x.kinds == nil {
		return served{}, false
	}
	kinds, revision := x.kinds()
	index := x.now.Load()
	if index == nil || index.revision != revision {
		index = &indexed{revision: revision, by: map[schema.GroupVersionKind]served{}}
		for _, k := range kinds {
			for i := range k.Versions {
				if v := &k.Versions[i]; !k.Virtual && !v.Unserved {
					index.by[v.GroupVersionKind] = served{k, v}
				}
			}
		}
		x.now.Store(index)
	}
	s, ok := index.by[gvk]
	return s, ok
}

// errNoParamKind says that the kind of a policy's parameters is not served.
type errNoParamKind struct{ gvk schema.GroupVersionKind }

func (e errNoParamKind) Error() string {
	return fmt.Sprintf("failed to find resource referenced by paramKind: '%v'", e.gvk)
}

// collect finds the parameters that a binding names, in the version that the policy names. A policy without parameters is decided once, with none.
func (x *kindIndex) collect(ctx context.Context, r *matching.Request, paramKind *regv1.ParamKind, ref *regv1.ParamRef) ([]runtime.Object, error) {
	if paramKind == nil {
		return []runtime.Object{nil}, nil
	}
	s, ok := x.find(schema.FromAPIVersionAndKind(paramKind.APIVersion, paramKind.Kind))
	switch {
	case !ok:
		return nil, errNoParamKind{schema.FromAPIVersionAndKind(paramKind.APIVersion, paramKind.Kind)}
	case ref == nil:
		return []runtime.Object{nil}, nil
	}
	namespace, err := paramNamespace(s.kind, r, ref)
	if err != nil {
		return nil, err
	}
	found, err := lookUp(ctx, r, s.kind.Resource(), namespace, ref)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == regv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	out := make([]runtime.Object, len(found))
	for i, obj := range found {
		shown, err := stored.Convert(s.version, obj)
		if err != nil {
			return nil, err
		}
		if out[i], err = matching.Plain(shown, s.version.GroupVersionKind); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func paramNamespace(k *kind.Kind, r *matching.Request, ref *regv1.ParamRef) (string, error) {
	switch {
	case k.Scope == kind.Cluster && ref.Namespace != "":
		return "", errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case k.Scope == kind.Cluster:
		return "", nil
	case ref.Namespace != "":
		return ref.Namespace, nil
	case r.Namespace() == "":
		return "", errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	return r.Namespace(), nil
}

func lookUp(ctx context.Context, r *matching.Request, resource schema.GroupResource, namespace string, ref *regv1.ParamRef) ([]kind.Object, error) {
	if ref.Name != "" {
		obj, err := r.Env.Get(ctx, resource, namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []kind.Object{obj}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return nil, err
	}
	all, err := r.Env.List(ctx, resource, namespace)
	if err != nil {
		return nil, err
	}
	var out []kind.Object
	for _, obj := range all {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			out = append(out, obj)
		}
	}
	return out, nil
}
