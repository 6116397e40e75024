package apiserver

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

// route is what a URL and method mean.
type route struct {
	// resource tells a request about objects from one about anything else (/healthz).
	resource bool
	verb     string // as RBAC names it; the lower-case method if resource is false
	ref      resource.Ref
	// authNamespace is the namespace that permission is asked in: a Namespace object counts as within itself.
	authNamespace string
	// rest is the path below a subresource, with its leading slash.
	rest  string
	query url.Values

	served  *verbs.Served // nil if nothing serves the resource
	connect *kind.ErasedSub
	// via is how a proxied object is to be reached, and spelled the name as the URL gives it, if it says more than the name.
	via     kind.Via
	spelled string
	// remote says that another server serves the group version, and lasts that such a request may.
	remote, lasts bool
}

// parse reads a request's URL by the layout of the Kubernetes API.
func (s *Server) parse(req *http.Request) route {
	r := route{verb: strings.ToLower(req.Method)}
	if req.URL.RawQuery != "" {
		r.query = req.URL.Query()
	}
	gv, parts, rest, ok := splitGroupVersion(req.URL.Path)
	if !ok {
		r.remote = s.elsewhere(versionPath(req.URL.Path))
		return r
	}
	r.resource = true
	watchPath := false
	if parts[0] == "watch" && len(parts) > 1 { // the old way to ask for a watch
		watchPath = true
		rest, parts = rest.next(), parts[1:]
	}
	r.place(gv, parts, rest)
	r.verb = resourceVerb(req.Method, r.ref.Name)
	if req.Method == http.MethodGet && (watchPath || r.verb == "list" && r.flag("watch")) && r.ref.Subresource == "" { // of one object by its path, watch says nothing
		r.verb = "watch"
	}
	if watchPath && r.verb != "watch" { // nothing else is there
		r.verb = ""
	}
	if s.elsewhere(gv) {
		r.passOn(req)
	} else if served, ok := s.registry.Lookup(r.ref.GroupVersionResource); ok {
		r.served = served
		r.connect = connectSub(served.Kind, r.ref.Subresource)
		if r.connect != nil && r.connect.Verb != "" {
			r.verb = r.connect.Verb
		}
		if r.connect != nil && r.connect.Named {
			r.unspell()
		}
	}
	return r
}

// unspell takes apart a name such as https:name:8443. What does not fit that form stays as it is: no object has such a name.
func (r *route) unspell() {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(r.ref.Name)
	if !valid || name == r.ref.Name {
		return
	}
	r.spelled = r.ref.Name
	r.ref.Name = name
	r.via = kind.Via{Scheme: scheme, Port: port}
}

// tail is the unsplit rest of a path.
type tail string

// next drops the first element.
func (t tail) next() tail {
	if i := strings.IndexByte(string(t), '/'); i >= 0 {
		return t[i+1:]
	}
	return ""
}

func splitGroupVersion(path string) (schema.GroupVersion, []string, tail, bool) {
	rest := tail(strings.TrimPrefix(path, "/"))
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) > 2:
		gv.Version = parts[1]
		return gv, parts[2:], rest.next().next(), true
	case parts[0] == "apis" && len(parts) > 3:
		gv.Group, gv.Version = parts[1], parts[2]
		return gv, parts[3:], rest.next().next().next(), true
	}
	return gv, nil, "", false
}

// place reads namespace, resource, name and subresource. A Namespace's own path looks like the start of one in a namespace; only what follows
// tells.
func (r *route) place(gv schema.GroupVersion, parts []string, rest tail) {
	namespace := ""
	if parts[0] == "namespaces" && gv.Group == "" || parts[0] == "namespaces" && len(parts) > 2 {
		if len(parts) > 1 {
			r.authNamespace = parts[1]
		}
		if len(parts) > 2 && (gv.Group != "" || parts[2] != "status" && parts[2] != "finalize") {
			namespace = parts[1]
			rest, parts = rest.next().next(), parts[2:]
		}
	}
	r.ref = resource.Ref{GroupVersionResource: gv.WithResource(parts[0]), Namespace: namespace}
	if len(parts) > 1 {
		r.ref.Name = parts[1]
		rest = rest.next()
	}
	if len(parts) > 2 {
		r.ref.Subresource = parts[2]
		rest = rest.next()
		if i := strings.IndexByte(string(rest), '/'); i >= 0 {
			r.rest = string(rest[i:])
		}
	}
}

// resourceVerb is the verb of a method. One that HTTP's own APIs do not use has none, as in Kubernetes: spelled as a verb (LIST, DELETECOLLECTION) on an
// object's path it would be allowed for that object and carried out on all.
func resourceVerb(method, name string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead:
		if name == "" {
			return "list"
		}
		return "get"
	}
	return ""
}

// connectSub finds the streaming subresource of that name.
func connectSub(k *kind.Kind, sub string) *kind.ErasedSub {
	if sub == "" {
		return nil
	}
	for i := range k.Subs {
		if k.Subs[i].Name == sub && k.Subs[i].Connect != nil {
			return &k.Subs[i]
		}
	}
	return nil
}

// flag is a boolean of the query: anything but false and 0 sets it, as in Kubernetes.
func (r *route) flag(name string) bool {
	v, set := r.query[name]
	return set && v[0] != "0" && !strings.EqualFold(v[0], "false")
}

// streams tells a request that may last from one that must be answered in time.
func (r *route) streams() bool { return r.verb == "watch" || r.connect != nil || r.lasts }

// selectedName is the one name that a list or watch selects: permission for that name is enough. It is not for deleting a collection, as in Kubernetes.
func (r *route) selectedName() string {
	if r.verb != "list" && r.verb != "watch" {
		return ""
	}
	return selectedName(r.query.Get("fieldSelector"))
}

// selectors tell the authorizer what a list or watch is narrowed to.
func (r *route) selectors(a *authorizer.AttributesRecord) {
	if narrows(r.verb) {
		setSelectors(a, r.query.Get("fieldSelector"), r.query.Get("labelSelector"))
	}
}

// narrows tells the verbs whose reach selectors limit.
func narrows(verb string) bool {
	return verb == "list" || verb == "watch" || verb == "deletecollection"
}

func selectedName(fieldSelector string) string {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return ""
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok || len(content.IsPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

func setSelectors(a *authorizer.AttributesRecord, fieldSelector, labelSelector string) {
	if fieldSelector != "" {
		selector, err := fields.ParseSelector(fieldSelector)
		if err == nil {
			a.FieldSelectorRequirements = selector.Requirements()
		}
		a.FieldSelectorParsingErr = err
	}
	if labelSelector != "" {
		selector, err := labels.Parse(labelSelector)
		if err == nil {
			a.LabelSelectorRequirements, _ = selector.Requirements()
		}
		a.LabelSelectorParsingErr = err
	}
}
