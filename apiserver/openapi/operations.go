package openapi

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

// operation is one method of one path.
type operation struct {
	path, method string
	id, summary  string
	group        string // of operations; empty: that of the path's version
	action       string
	gvk          schema.GroupVersionKind
	parameters   []parameter
	// body and response name definitions; an empty body is none, an empty response is a text.
	body, response string
	codes          []int
	consumes       []string
	produces       []string
}

// parameter is a query parameter. Those of the path are derived from it.
type parameter struct {
	key         string // unique over all operations
	name        string
	typ         string
	description string
}

var (
	wireTypes  = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	watchTypes = append(slices.Clone(wireTypes), "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
	patchTypes = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
	anyType    = []string{"*/*"}
)

// The definitions that every version has beside its kinds'.
var (
	statusName  = nameOf(reflect.TypeFor[metav1.Status]())
	deleteName  = nameOf(reflect.TypeFor[metav1.DeleteOptions]())
	patchName   = nameOf(reflect.TypeFor[metav1.Patch]())
	sharedTypes = []reflect.Type{reflect.TypeFor[metav1.Status](), reflect.TypeFor[metav1.DeleteOptions](), reflect.TypeFor[metav1.Patch](), reflect.TypeFor[metav1.WatchEvent]()}
)

// unserved are options of features that Kubernetes 1.36 has off by default, and this server not at all.
var unserved = map[string]bool{"shardSelector": true}

// parametersOf lists the fields of an options type, in the order of their names.
func parametersOf[T any]() []parameter { return queryOf(reflect.TypeFor[T]()) }

func queryOf(t reflect.Type) []parameter {
	docs := docOf(t)
	var out []parameter
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		typ := indirect(t.Field(i).Type)
		if typ.Kind() == reflect.Slice { // repeated as one parameter: dryRun
			typ = typ.Elem()
		}
		if name == "" || typ.Kind() == reflect.Struct || unserved[name] {
			continue
		}
		types, _ := scalar(typ.Kind())
		out = append(out, parameter{key: t.Name() + "." + name, name: name, typ: types[0], description: docs[name]})
	}
	slices.SortFunc(out, func(a, b parameter) int { return cmp.Compare(a.name, b.name) })
	return out
}

// routes lists the operations of one version of a kind.
type routes struct {
	kind    *kind.Kind
	version *kind.Version
	// object, list name the definitions of the kind and its list; list is empty if there is none.
	object, list string
	// body names the definition of another kind.
	body func(schema.GroupVersionKind) string

	out []operation
}

func (r *routes) base() string {
	if r.version.Group == "" {
		return "/api/" + r.version.Version
	}
	return "/apis/" + r.version.Group + "/" + r.version.Version
}

func (r *routes) namespaced() bool { return r.kind.Scope == kind.Namespaced }

func (r *routes) collection() string {
	if r.namespaced() {
		return r.base() + "/namespaces/{namespace}/" + r.version.Names.Plural
	}
	return r.base() + "/" + r.version.Names.Plural
}

// id makes names such as readAppsV1NamespacedDeploymentScale.
func (r *routes) id(verb, kindPart string) string {
	scope := ""
	if r.namespaced() {
		scope = "Namespaced"
	}
	prefix, collection := strings.CutSuffix(verb, "Collection")
	if collection {
		return prefix + groupTitle(r.version.GroupVersion()) + "Collection" + scope + kindPart
	}
	return verb + groupTitle(r.version.GroupVersion()) + scope + kindPart
}

// groupTitle is RbacAuthorizationV1 for rbac.authorization.k8s.io/v1.
func groupTitle(gv schema.GroupVersion) string {
	group := strings.TrimSuffix(gv.Group, ".k8s.io")
	if group == "" {
		group = "core"
	}
	var out strings.Builder
	for part := range strings.SplitSeq(group, ".") {
		out.WriteString(title(part))
	}
	return out.String() + title(gv.Version)
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (r *routes) add(o operation) {
	if o.gvk.Kind == "" {
		o.gvk = r.version.GroupVersionKind
	}
	if o.produces == nil {
		o.produces = wireTypes
	}
	if o.codes == nil {
		o.codes = []int{http.StatusOK}
	}
	r.out = append(r.out, o)
}

func (r *routes) all() []operation {
	name := r.version.Kind
	has := func(verb string) bool { return slices.Contains(r.kind.Verbs, verb) }
	collection, item := r.collection(), r.collection()+"/{name}"
	if has("list") && r.list != "" {
		list := operation{path: collection, method: http.MethodGet, id: r.id("list", name), action: "list", response: r.list, produces: watchTypes,
			summary: "list or watch objects of kind " + name, parameters: parametersOf[metav1.ListOptions]()}
		r.add(list)
		if r.namespaced() {
			list.path = r.base() + "/" + r.version.Names.Plural
			list.id = "list" + groupTitle(r.version.GroupVersion()) + name + "ForAllNamespaces"
			r.add(list)
		}
		r.watches()
	}
	if has("create") {
		r.add(operation{path: collection, method: http.MethodPost, id: r.id("create", name), action: "post", body: r.object, consumes: anyType,
			response: r.object, codes: []int{200, 201, 202}, summary: article(name, "create"), parameters: parametersOf[metav1.CreateOptions]()})
	}
	if has("deletecollection") {
		r.add(operation{path: collection, method: http.MethodDelete, id: r.id("deleteCollection", name), action: "deletecollection", body: deleteName, consumes: anyType,
			response: statusName, summary: "delete collection of " + name, parameters: unique(parametersOf[metav1.DeleteOptions](), parametersOf[metav1.ListOptions]())})
	}
	if has("get") {
		r.add(operation{path: item, method: http.MethodGet, id: r.id("read", name), action: "get", response: r.object, summary: "read the specified " + name})
	}
	if has("update") {
		r.add(r.replace(item, name, r.object, r.version.GroupVersionKind, ""))
	}
	if has("patch") {
		r.add(r.patch(item, name, r.object, r.version.GroupVersionKind, ""))
	}
	if has("delete") {
		deleted := statusName
		if r.kind.ReturnDeleted {
			deleted = r.object
		}
		r.add(operation{path: item, method: http.MethodDelete, id: r.id("delete", name), action: "delete", body: deleteName, consumes: anyType, response: deleted,
			codes: []int{200, 202}, summary: article(name, "delete"), parameters: parametersOf[metav1.DeleteOptions]()})
	}
	r.subresources(item)
	return r.out
}

func unique(lists ...[]parameter) []parameter {
	var out []parameter
	for _, list := range lists {
		for _, p := range list {
			if !slices.ContainsFunc(out, func(o parameter) bool { return o.name == p.name }) && p.name != "watch" && p.name != "allowWatchBookmarks" {
				out = append(out, p)
			}
		}
	}
	return out
}

func article(name, verb string) string {
	if strings.ContainsRune("AEIOU", rune(name[0])) {
		return verb + " an " + name
	}
	return verb + " a " + name
}

func (r *routes) replace(path, name, body string, gvk schema.GroupVersionKind, sub string) operation {
	return operation{path: path, method: http.MethodPut, id: r.id("replace", name+title(sub)), action: "put", gvk: gvk, body: body, consumes: anyType, response: body,
		codes: []int{200, 201}, summary: "replace " + of(sub) + "the specified " + name, parameters: parametersOf[metav1.UpdateOptions]()}
}

func (r *routes) patch(path, name, body string, gvk schema.GroupVersionKind, sub string) operation {
	return operation{path: path, method: http.MethodPatch, id: r.id("patch", name+title(sub)), action: "patch", gvk: gvk, body: patchName, consumes: patchTypes, response: body,
		codes: []int{200, 201}, summary: "partially update " + of(sub) + "the specified " + name, parameters: parametersOf[metav1.PatchOptions]()}
}

func of(sub string) string {
	if sub == "" {
		return ""
	}
	return sub + " of "
}

func (r *routes) subresources(item string) {
	part := func(name, body string, gvk schema.GroupVersionKind) {
		path := item + "/" + name
		r.add(operation{path: path, method: http.MethodGet, id: r.id("read", r.version.Kind+title(name)), action: "get", gvk: gvk, response: body,
			summary: "read " + name + " of the specified " + r.version.Kind})
		r.add(r.replace(path, r.version.Kind, body, gvk, name))
		r.add(r.patch(path, r.version.Kind, body, gvk, name))
	}
	if r.kind.HasStatus && !r.version.NoStatus {
		part("status", r.object, r.version.GroupVersionKind)
	}
	if r.kind.Scale != nil && !r.version.NoScale {
		scale := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
		part("scale", r.body(scale), scale)
	}
	for i := range r.kind.Subs {
		s := &r.kind.Subs[i]
		gvk, body := r.version.GroupVersionKind, r.object
		if s.Body.Kind != "" && s.New != nil && s.Connect == nil {
			gvk, body = s.Body, r.body(s.Body)
		}
		switch {
		case s.NoPatch:
			r.add(r.replace(item+"/"+s.Name, r.version.Kind, body, gvk, s.Name))
		case s.Replace != nil:
			part(s.Name, body, gvk)
		case s.Create != nil:
			r.add(operation{path: item + "/" + s.Name, method: http.MethodPost, id: r.id("create", r.version.Kind+title(s.Name)), action: "post", gvk: gvk,
				body: body, consumes: anyType, response: body, codes: []int{200, 201, 202}, summary: "create " + s.Name + " of " + article(r.version.Kind, "")[1:],
				parameters: parametersOf[metav1.CreateOptions]()})
		case s.Connect != nil:
			r.connect(item+"/"+s.Name, s)
		}
	}
}

func (r *routes) connect(path string, s *kind.ErasedSub) {
	var options []parameter
	if s.New != nil {
		options = queryOf(typeOf(s.New()))
	}
	for _, method := range s.Methods {
		o := operation{path: path, method: method, action: "connect", produces: anyType, gvk: s.Body, parameters: options,
			id: r.id("connect", r.version.Kind+title(s.Name)), summary: "connect " + method + " requests to " + s.Name + " of " + r.version.Kind}
		o.id = strings.Replace(o.id, "connect"+groupTitle(r.version.GroupVersion()), "connect"+groupTitle(r.version.GroupVersion())+title(strings.ToLower(method)), 1)
		if s.Verb == "get" && s.Name == "log" {
			o.id, o.action, o.produces = r.id("read", r.version.Kind+"Log"), "get", []string{"text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
			o.summary = "read log of the specified " + r.version.Kind
		}
		r.add(o)
		if s.Name == "proxy" { // what the backend serves below its root
			o.path, o.id = path+"/{path}", o.id+"WithPath"
			r.add(o)
		}
	}
}
