package openapi

import (
	"net/http"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// rootOperation is an operation that belongs to no version: it has a document of its own, by its path.
type rootOperation struct {
	path, id, tag, summary string
	produces               []string
	// answer is the type of what it answers, nil for one that the API does not describe.
	answer reflect.Type
}

// roots are the operations by which a client learns what there is, in the order of Kubernetes' paths.
func (b *builder) roots() []rootOperation {
	out := []rootOperation{
		{path: ".well-known/openid-configuration", id: "getServiceAccountIssuerOpenIDConfiguration", tag: "WellKnown",
			summary: "how to verify service account tokens: the issuer's OpenID configuration", produces: []string{asJSON}},
		{path: "api", id: "getCoreAPIVersions", tag: "core", summary: "get available API versions", produces: wireTypes, answer: reflect.TypeFor[metav1.APIVersions]()},
		{path: "apis", id: "getAPIVersions", tag: "apis", summary: "get available API versions", produces: wireTypes, answer: reflect.TypeFor[metav1.APIGroupList]()},
	}
	seen := map[string]bool{"": true}
	for _, gv := range b.versions() {
		if seen[gv.Group] || b.custom(gv) {
			continue
		}
		seen[gv.Group] = true
		title := strings.TrimSuffix(groupTitle(gv), title(gv.Version))
		out = append(out, rootOperation{path: "apis/" + gv.Group, id: "get" + title + "APIGroup", tag: strings.ToLower(title[:1]) + title[1:],
			summary: "get information of a group", produces: wireTypes, answer: reflect.TypeFor[metav1.APIGroup]()})
	}
	return append(out,
		rootOperation{path: "openid/v1/jwks", id: "getServiceAccountIssuerOpenIDKeyset", tag: "openid",
			summary: "the keys that service account tokens are verified with: the issuer's JSON Web Key Set", produces: []string{"application/jwk-set+json"}},
		rootOperation{path: "version", id: "getCodeVersion", tag: "version", summary: "get the version information for this server", produces: []string{asJSON},
			answer: reflect.TypeFor[version.Info]()})
}

// custom tells a version that has only custom resources. Kubernetes has no document of their groups.
func (b *builder) custom(gv schema.GroupVersion) bool {
	for _, k := range b.kinds {
		if _, ok := k.Version(gv); ok && !k.Dynamic {
			return false
		}
	}
	return true
}

func (r *rootOperation) operation(d *definitions) operation {
	o := operation{path: "/" + r.path + "/", method: http.MethodGet, id: r.id, summary: r.summary, group: r.tag, codes: []int{http.StatusOK}, produces: r.produces}
	if r.answer == nil {
		return o
	}
	o.response = d.add(r.answer)
	return o
}

// markRoots says which kinds the answers of discovery are.
func markRoots(d *definitions) {
	for _, t := range []reflect.Type{reflect.TypeFor[metav1.APIVersions](), reflect.TypeFor[metav1.APIGroupList](), reflect.TypeFor[metav1.APIGroup]()} {
		d.mark(nameOf(t), schema.GroupVersionKind{Version: "v1", Kind: t.Name()})
	}
}

// rootDocument renders the one operation at a path; false: there is none.
func (b *builder) rootDocument(path string) ([]byte, bool, error) {
	for _, r := range b.roots() {
		if r.path == path {
			d := newDefinitions(b.config.Definitions, builtinRules())
			operations := []operation{r.operation(d)}
			markRoots(d)
			body, err := documentV3(b.info(), operations, d)
			return body, true, err
		}
	}
	return nil, false, nil
}

// tag groups the operations of a version: core_v1, rbacAuthorization_v1.
func (o *operation) tag() string {
	if o.group != "" {
		return o.group
	}
	parts := strings.Split(strings.Trim(o.path, "/"), "/")
	if parts[0] == "api" {
		return "core_" + parts[1]
	}
	var out strings.Builder
	for i, p := range strings.Split(strings.TrimSuffix(parts[1], ".k8s.io"), ".") {
		if i > 0 {
			p = title(p)
		}
		out.WriteString(p)
	}
	return out.String() + "_" + parts[2]
}
