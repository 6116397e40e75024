package crd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"

	"github.com/yare-project/yare/kind"
)

// custom is what is served for one definition in one state: a kind whose objects are unstructured.
type custom struct {
	definition *definition // without schemas, which are by far its largest part: forms share those of the state that the store has
	names      kind.Names
	listKind   string
	hub        *form
	forms      map[string]*form // by version, those that are not served too
	convert    converter
}

// form is one version of a custom resource.
type form struct {
	of       *custom
	gvk      schema.GroupVersionKind
	declared *apiextensionsv1.CustomResourceDefinitionVersion // without its schema
	schema   atomic.Pointer[apiextensionsv1.JSONSchemaProps]  // nil: it has none
	compiled compiled
	batch    batch
}

// object is a custom resource as the package is handed one: the gate makes no others for these kinds.
func object(o runtime.Object) *unstructured.Unstructured { return o.(*unstructured.Unstructured) }

var (
	allVerbs = kind.AllVerbs
	// lastVerbs are what is left of a resource whose definition is deleted: finalizers must still be taken away.
	lastVerbs = []string{"delete", "deletecollection", "get", "list", "patch", "update", "watch"}
)

// kindOf makes the kind of a definition whose names are accepted.
func (s *Server) kindOf(whole *definition, terminating bool) (*custom, *kind.Kind) {
	d := slim(whole)
	a := d.Status.AcceptedNames
	c := &custom{definition: d, listKind: a.ListKind, forms: map[string]*form{},
		names: kind.Names{Plural: a.Plural, Singular: a.Singular, Kind: a.Kind, Short: a.ShortNames, Categories: a.Categories}}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		f := &form{of: c, declared: v, gvk: schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: a.Kind}}
		c.forms[v.Name] = f
		if v.Storage {
			c.hub = f
		}
	}
	c.convert = s.hooks.converter(d)
	c.adopt(whole)
	return c, c.kind(terminating)
}

// slim is a definition without its schemas.
func slim(d *definition) *definition {
	out := *d
	out.ManagedFields = nil
	out.Spec.Versions = slices.Clone(d.Spec.Versions)
	for i := range out.Spec.Versions {
		out.Spec.Versions[i].Schema = nil
	}
	return &out
}

// adopt takes the schemas of a newer state of the definition, which are the same: so that the older state can go.
func (c *custom) adopt(d *definition) {
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if f := c.forms[v.Name]; f != nil && v.Schema != nil {
			f.schema.Store(v.Schema.OpenAPIV3Schema)
		}
	}
}

func (c *custom) kind(terminating bool) *kind.Kind {
	d := c.definition
	k := &kind.Kind{
		Group: d.Spec.Group, Hub: c.hub.gvk, Names: c.names, Verbs: allVerbs, Dynamic: true,
		New:            func() kind.Object { return c.hub.empty() },
		Default:        func(o kind.Object) { c.hub.refine(object(o)) },
		Recall:         c.recall,
		Warn:           warn,
		RequireVersion: true,
		Merge:          c.merge,
		PrepareStatus:  keepMetadata,
	}
	if d.Spec.Scope == apiextensionsv1.ClusterScoped {
		k.Scope = kind.Cluster
	}
	if terminating {
		k.Verbs = lastVerbs
	}
	k.HasStatus = c.hasStatus()
	if k.HasStatus {
		k.CopyStatus, k.MoveStatus, k.ResetStatus = copyStatus, copyStatus, resetStatus
	}
	k.Spec = func(o kind.Object) any { return counted(object(o), k.HasStatus) }
	k.Scale = c.scale()
	for _, v := range c.ordered() {
		k.Versions = append(k.Versions, v.version(k))
	}
	return k
}

// ordered lists the versions, the stored one first.
func (c *custom) ordered() []*form {
	out := []*form{c.hub}
	for i := range c.definition.Spec.Versions {
		if f := c.forms[c.definition.Spec.Versions[i].Name]; f != c.hub {
			out = append(out, f)
		}
	}
	return out
}

func (f *form) version(k *kind.Kind) kind.Version {
	c := f.of
	v := kind.Version{
		GroupVersionKind: f.gvk, Names: c.names, ListKind: c.listKind, Unserved: !f.declared.Served,
		New: func() runtime.Object { return f.empty() },
		NewList: func() runtime.Object {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(f.gvk.GroupVersion().WithKind(c.listKind))
			return list
		},
		To:             func(o kind.Object) (runtime.Object, error) { return c.shown(object(o), f) },
		From:           func(o runtime.Object) (kind.Object, error) { return c.from(object(o), f) },
		Many:           f.many(),
		Settle:         func(o runtime.Object) ([]error, error) { return f.settle(object(o)) },
		Columns:        f.columns(),
		NoAge:          true,
		Ordered:        true,
		Fields:         f.fields(),
		Warning:        f.warning(),
		NoStatus:       k.HasStatus && !hasStatus(f.declared),
		NoScale:        k.Scale != nil && !hasScale(f.declared),
		Validate:       f.both(f.validate),
		ValidateStatus: f.both(f.validateStatus),
		Schema:         f.document,
		SchemaID:       string(c.definition.UID) + "/" + strconv.FormatInt(c.definition.Generation, 10),
	}
	if hasScale(f.declared) {
		v.ReplicasPath = steps(f.declared.Subresources.Scale.SpecReplicasPath)
	}
	return v
}

func (f *form) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(f.gvk)
	return u
}

// both shows a check of this version's rules to the engine, which has the hub's objects.
func (f *form) both(check func(new, old *unstructured.Unstructured) field.ErrorList) func(new, old kind.Object) field.ErrorList {
	return func(new, old kind.Object) field.ErrorList {
		now, err := f.of.to(object(new), f)
		if err != nil {
			return field.ErrorList{field.InternalError(nil, err)}
		}
		var before *unstructured.Unstructured
		if old != nil {
			if before, err = f.of.to(object(old), f); err != nil {
				return field.ErrorList{field.InternalError(nil, err)}
			}
		}
		return check(now, before)
	}
}

// warning is what users of a deprecated version are told: the definition's own words, or where to go.
func (f *form) warning() string {
	if !f.declared.Deprecated {
		return ""
	}
	if w := f.declared.DeprecationWarning; w != nil {
		return *w
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", f.gvk.Group, f.gvk.Version, f.gvk.Kind)
	better := slices.DeleteFunc(slices.Clone(f.of.definition.Spec.Versions), func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return !v.Served || v.Deprecated || version.CompareKubeAwareVersionStrings(f.gvk.Version, v.Name) >= 0
	})
	if len(better) == 0 {
		return text
	}
	best := slices.MaxFunc(better, func(a, b apiextensionsv1.CustomResourceDefinitionVersion) int {
		return cmp.Compare(version.CompareKubeAwareVersionStrings(a.Name, b.Name), 0)
	})
	return fmt.Sprintf("%s; use %s/%s %s", text, f.gvk.Group, best.Name, f.gvk.Kind)
}

// counted is what metadata.generation counts changes of: all but metadata, and but a status that is written by itself.
func counted(u *unstructured.Unstructured, status bool) map[string]any {
	out := make(map[string]any, len(u.Object))
	for name, value := range u.Object {
		if name == "metadata" || name == "apiVersion" || name == "kind" || status && name == "status" {
			continue
		}
		out[name] = value
	}
	return out
}

func copyStatus(dst, src kind.Object) {
	to, from := object(dst), object(src)
	if status, has := from.Object["status"]; has {
		to.Object["status"] = runtime.DeepCopyJSONValue(status)
	} else {
		delete(to.Object, "status")
	}
}

func resetStatus(o kind.Object) { delete(object(o).Object, "status") }

// keepMetadata takes back what a write of the status said of metadata: Kubernetes lets it change nothing there.
func keepMetadata(new, old kind.Object) {
	new.SetLabels(old.GetLabels())
	new.SetAnnotations(old.GetAnnotations())
	new.SetFinalizers(old.GetFinalizers())
}

// warn tells of finalizers that may collide with others'.
func warn(new, old kind.Object) []string {
	var had []string
	if old != nil {
		had = old.GetFinalizers()
	}
	var out []string
	for _, f := range new.GetFinalizers() {
		if slices.Contains(had, f) || strings.Contains(f, "/") || f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents || f == "kubernetes" {
			continue
		}
		form := "name"
		if strings.Contains(f, ".") {
			form = "name including a path (/)"
		}
		out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer %s to avoid accidental conflicts with other finalizer writers", f, form))
	}
	return out
}
