// Package openapi describes the served API in OpenAPI: /openapi/v2 as one document, and /openapi/v3 as an index of one document a group
// version. kubectl reads them for explain, for validation on the client's side and for its patches.
//
// Everything follows from the kinds that Config.Kinds returns: definitions by reflection over their Go types, operations from their verbs
// and subresources. No kind is named here. A document is built when it is first asked for, and only its compressed bytes are kept, until the
// kinds' revision changes. A Handler is safe for concurrent use.
//
// The hash in the index tells whether a document that a client keeps is still good. It is made of what a document follows from (the
// version of the server, the kinds and their operations), so that the index costs nothing.
//
// The package doesn't authorize: the gate does that before.
package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/yare-project/yare/kind"
)

// Config is what the documents are made from.
type Config struct {
	// Kinds returns the served kinds and a number that changes whenever they do. The slice must not change after it was returned.
	Kinds func() (kinds []*kind.Kind, revision uint64)
	// Definitions are generated schemas, which go before reflection: of types that don't carry their documentation. Optional.
	Definitions []func(common.ReferenceCallback) map[string]common.OpenAPIDefinition
	// Schema returns the schema of a version that has no Go type of its own, or nil. Optional.
	Schema func(v *kind.Version) *spec.Schema
	// Remote are the documents of what other servers serve, with a number that changes whenever they do. It must answer at once. Optional.
	Remote func() (documents []Remote, revision uint64)
	// Title and Version are the documents' info; empty: "Kubernetes", "unversioned".
	Title   string
	Version string
}

// builder makes documents of one state of the kinds.
type builder struct {
	config Config
	kinds  []*kind.Kind
}

func (b *builder) info() *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{Title: b.config.Title, Version: b.config.Version}}
}

// versions lists the served group versions in their order, with the path by which the index names each.
func (b *builder) versions() []schema.GroupVersion {
	var out []schema.GroupVersion
	seen := map[schema.GroupVersion]bool{}
	for _, k := range b.kinds {
		for i := range k.Versions {
			if gv := k.Versions[i].GroupVersion(); !seen[gv] && !k.Versions[i].Unserved {
				seen[gv] = true
				out = append(out, gv)
			}
		}
	}
	return out
}

// byVersion lists the kinds of each group version.
func (b *builder) byVersion() map[schema.GroupVersion][]*kind.Kind {
	out := map[schema.GroupVersion][]*kind.Kind{}
	for _, k := range b.kinds {
		for i := range k.Versions {
			out[k.Versions[i].GroupVersion()] = append(out[k.Versions[i].GroupVersion()], k)
		}
	}
	return out
}

func indexPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// collect gathers the operations of one version, or of all, and the definitions that they need.
func (b *builder) collect(only *schema.GroupVersion) ([]operation, *definitions) {
	d := newDefinitions(b.config.Definitions, builtinRules())
	var operations []operation
	var served []schema.GroupVersion
	marked := map[string]bool{}
	for _, k := range b.kinds {
		for i := range k.Versions {
			v := &k.Versions[i]
			if v.Unserved || only != nil && v.GroupVersion() != *only {
				continue
			}
			if !slices.Contains(served, v.GroupVersion()) {
				served = append(served, v.GroupVersion())
				operations = append(operations, listResources(d, v.GroupVersion()))
			}
			operations = append(operations, b.version(d, k, v, marked)...)
		}
	}
	if only == nil {
		for _, r := range b.roots() {
			operations = append(operations, r.operation(d))
		}
		markRoots(d)
	}
	for _, t := range sharedTypes {
		d.add(t)
	}
	b.markShared(d, served)
	for _, k := range b.kinds { // a kind of another version that one of these has in its fields
		if k.Dynamic { // it has no type that a field could be of
			continue
		}
		for i := range k.Versions {
			if t := typeOf(k.Versions[i].New()); t != nil && !marked[nameOf(t)] {
				d.mark(nameOf(t), k.Versions[i].GroupVersionKind)
			}
		}
	}
	return operations, d
}

// listResources is the operation by which a client discovers a version's resources.
func listResources(d *definitions, gv schema.GroupVersion) operation {
	return operation{path: "/" + indexPath(gv) + "/", method: http.MethodGet, id: "get" + groupTitle(gv) + "APIResources", summary: "get available resources",
		response: d.add(reflect.TypeFor[metav1.APIResourceList]()), codes: []int{http.StatusOK}, produces: wireTypes}
}

func (b *builder) version(d *definitions, k *kind.Kind, v *kind.Version, marked map[string]bool) []operation {
	r := &routes{kind: k, version: v, object: b.define(d, v)}
	mark := func(name string, gvk schema.GroupVersionKind) {
		if name != "" && !marked[name] {
			marked[name] = true
			d.mark(name, gvk)
		}
	}
	mark(r.object, v.GroupVersionKind)
	if v.NewList != nil {
		if t := typeOf(v.NewList()); t != nil {
			r.list = d.add(t)
		} else {
			r.list = b.defineList(d, v, r.object)
		}
		mark(r.list, v.GroupVersion().WithKind(v.ListName()))
	}
	bodies := map[schema.GroupVersionKind]func() runtime.Object{}
	for i := range k.Subs {
		if k.Subs[i].New != nil {
			bodies[k.Subs[i].Body] = k.Subs[i].New
		}
	}
	r.body = func(gvk schema.GroupVersionKind) string {
		t := scaleType
		if make := bodies[gvk]; make != nil {
			t = typeOf(make())
		}
		if t == nil {
			return ""
		}
		name := d.add(t)
		mark(name, gvk)
		return name
	}
	return r.all()
}

// typeOf is an object's struct type, or nil if it is one of any kind (unstructured).
func typeOf(obj runtime.Object) reflect.Type {
	if _, any := obj.(runtime.Unstructured); any {
		return nil
	}
	return indirect(reflect.TypeOf(obj))
}

// schema is that of a version without a Go type, or nil.
func (b *builder) schema(v *kind.Version) *spec.Schema {
	switch {
	case v.Schema != nil:
		return v.Schema()
	case b.config.Schema != nil:
		return b.config.Schema(v)
	}
	return nil
}

func (b *builder) define(d *definitions, v *kind.Version) string {
	if s := b.schema(v); s != nil {
		name := customName(v.GroupVersionKind)
		d.addSchema(name, s)
		d.add(reflect.TypeFor[metav1.ObjectMeta]())
		return name
	}
	if t := typeOf(v.New()); t != nil {
		return d.add(t)
	}
	name := customName(v.GroupVersionKind)
	anything := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	anything.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	d.addSchema(name, anything)
	return name
}

// defineList makes the list of a kind without Go type.
func (b *builder) defineList(d *definitions, v *kind.Version, item string) string {
	text := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}}}
	ref := refTo(item)
	meta := refTo(d.add(reflect.TypeFor[metav1.ListMeta]()))
	list := &spec.Schema{SchemaProps: spec.SchemaProps{
		Type: []string{"object"}, Required: []string{"items"}, Description: v.ListName() + " is a list of " + v.Kind,
		Properties: map[string]spec.Schema{"apiVersion": text, "kind": text, "metadata": meta,
			"items": {SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &ref}}}},
	}}
	name := customName(v.GroupVersion().WithKind(v.ListName()))
	d.addSchema(name, list)
	return name
}

// customName names a definition after a kind: com.example.v1.Widget.
func customName(gvk schema.GroupVersionKind) string {
	labels := strings.Split(gvk.Group, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	return strings.Join(append(labels, gvk.Version, gvk.Kind), ".")
}

// markShared says of the types that every version has, in which versions they are served.
func (b *builder) markShared(d *definitions, served []schema.GroupVersion) {
	for _, gv := range served {
		d.mark(deleteName, gv.WithKind("DeleteOptions"))
		d.mark(nameOf(reflect.TypeFor[metav1.WatchEvent]()), gv.WithKind("WatchEvent"))
	}
	d.mark(statusName, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	d.mark(nameOf(reflect.TypeFor[metav1.APIResourceList]()), schema.GroupVersionKind{Version: "v1", Kind: "APIResourceList"})
}
