package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/apiserver/audit"
	"github.com/yare-project/yare/internal/resource"
)

// Aggregator knows who serves the group versions that this server does not.
type Aggregator interface {
	// Serves tells whether another server serves gv. It is asked on every request, and must cost next to nothing.
	Serves(gv schema.GroupVersion) bool
	// Versions are what other servers serve, and Knows tells whether one said that it has the resource.
	Versions() []schema.GroupVersion
	Knows(gvr schema.GroupVersionResource) bool
	// Proxy passes a request on to who serves gv, as who. An error means that nothing was answered yet.
	Proxy(w http.ResponseWriter, req *http.Request, gv schema.GroupVersion, who user.Info) error
	// Reach makes what calls such servers from within the process, as who.
	Reach(who user.Info) Remote
}

// Remote reaches objects of other servers as one user. It is used only with what an Aggregator serves.
type Remote interface {
	Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error)
	List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error)
	Patch(ctx context.Context, ref resource.Ref, kind types.PatchType, body []byte, opts metav1.PatchOptions) (runtime.Object, error)
	Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error)
	DeleteCollection(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions, list metav1.ListOptions) error
}

// elsewhere tells whether another server serves the group version.
func (s *Server) elsewhere(gv schema.GroupVersion) bool {
	return s.cfg.Aggregator != nil && s.cfg.Aggregator.Serves(gv)
}

// lasting are the subresources whose requests may last, on any server, as Kubernetes knows them.
var lasting = []string{"attach", "exec", "log", "portforward", "proxy"}

// passOn marks a request for objects of another server.
func (r *route) passOn(req *http.Request) {
	r.remote = true
	r.lasts = req.Header.Get("Upgrade") != "" || slices.Contains(lasting, r.ref.Subresource)
}

// versionPath reads the path under which a group version's resources are discovered.
func versionPath(path string) schema.GroupVersion {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}
	}
	return schema.GroupVersion{}
}

func (x *exchange) serveRemote() error {
	gv := x.route.ref.GroupVersion()
	if !x.route.resource {
		gv = versionPath(x.req.URL.Path)
	}
	x.req.Header[audit.Header] = x.w.Header()[audit.Header] // so that both servers know the request by one id
	return x.server.cfg.Aggregator.Proxy(x.w, x.req.WithContext(x.ctx), gv, x.user)
}

// far reaches another server's object if ref is one, once the user is known to have the right to do verb to it; else nil.
func (l *Local) far(ctx context.Context, verb string, ref resource.Ref, narrowed ...metav1.ListOptions) (Remote, error) {
	if !l.server.elsewhere(ref.GroupVersion()) {
		return nil, nil
	}
	attributes := l.attributes(verb, ref)
	for _, opts := range narrowed {
		setSelectors(&attributes, opts.FieldSelector, opts.LabelSelector)
	}
	if err := l.server.allow(ctx, attributes); err != nil {
		return nil, err
	}
	return l.server.cfg.Aggregator.Reach(l.user), nil
}
