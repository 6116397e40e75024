package apiserver

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

// profiles is where the profiles of the server's own process are served, as in Kubernetes (kube-apiserver --profiling). Like every other
// non-resource path they are for those whom a role allows them.
const profiles = "/debug/pprof"

// serveProfile answers below /debug/pprof: the list, what takes time to record, and the profiles that are kept by name.
func (x *exchange) serveProfile() {
	req := x.req.WithContext(x.ctx)
	switch name := strings.TrimPrefix(strings.TrimPrefix(req.URL.Path, profiles), "/"); name {
	case "":
		if req.URL.Path == profiles {
			http.Redirect(x.w, req, profiles+"/", http.StatusFound)
			return
		}
		pprof.Index(x.w, req)
	case "cmdline":
		pprof.Cmdline(x.w, req)
	case "profile":
		pprof.Profile(x.w, req)
	case "symbol":
		pprof.Symbol(x.w, req)
	case "trace":
		pprof.Trace(x.w, req)
	default:
		pprof.Handler(name).ServeHTTP(x.w, req)
	}
}
