package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"

	"github.com/yare-project/yare/apiserver/codec"
)

// DefaultVersion is the Kubernetes release whose API is served.
var DefaultVersion = version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.2+yare", GitTreeState: "clean", Compiler: "gc", Platform: "linux/amd64"}

// serveNonResource serves everything that is not about objects.
func (x *exchange) serveNonResource() error {
	path := x.req.URL.Path
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case path == "/":
		return x.writePaths()
	case first == "healthz" || first == "livez" || first == "readyz":
		return x.writeHealth(first)
	case path == "/version" || path == "/version/":
		if x.req.Method != http.MethodGet && x.req.Method != http.MethodHead {
			return errNoMethod
		}
		return x.writeJSON(x.server.cfg.Version)
	case path == "/metrics":
		promhttp.HandlerFor(everything{x.server.cfg.Metrics}, promhttp.HandlerOpts{}).ServeHTTP(x.w, x.req.WithContext(x.ctx))
		return nil
	case path == profiles || strings.HasPrefix(path, profiles+"/"):
		x.serveProfile()
		return nil
	}
	if h := x.server.handlerFor(path, first); h != nil {
		h.ServeHTTP(x.w, x.req.WithContext(x.ctx))
		return nil
	}
	return errNoRoute
}

// handlerFor finds a configured handler by exact path, then by the longest prefix.
func (s *Server) handlerFor(path, first string) http.Handler {
	if h, ok := s.cfg.Paths[path]; ok {
		return h
	}
	longest := ""
	for prefix := range s.cfg.Paths {
		if strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	switch {
	case longest != "":
		return s.cfg.Paths[longest]
	case first == "api" || first == "apis":
		return s.cfg.Discovery
	case first == "openapi":
		return s.cfg.OpenAPI
	}
	return nil
}

func (x *exchange) writePaths() error {
	paths := []string{"/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"}
	for _, k := range x.server.registry.Kinds() {
		for _, v := range k.Versions {
			if v.Group != "" && !v.Unserved {
				paths = append(paths, "/apis/"+v.Group, "/apis/"+v.GroupVersion().String())
			}
		}
	}
	if x.server.cfg.Aggregator != nil {
		for _, gv := range x.server.cfg.Aggregator.Versions() {
			paths = append(paths, "/apis/"+gv.Group, "/apis/"+gv.String())
		}
	}
	for p := range x.server.cfg.Paths {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return x.writeJSON(map[string][]string{"paths": slices.Compact(paths)})
}

func (x *exchange) writeJSON(v any) error {
	doc, err := codec.Plain(v)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	x.write(http.StatusOK, doc)
	return nil
}

// checks are the health checks of an endpoint.
func (s *Server) checks(endpoint string) []Check {
	out := []Check{{Name: "ping", Run: func(context.Context) error { return nil }}}
	if endpoint == "readyz" {
		out = append(out, Check{Name: "shutdown", Run: func(context.Context) error {
			if s.draining.Err() != nil {
				return errors.New("the server is shutting down")
			}
			return nil
		}})
	}
	for _, c := range s.cfg.Checks {
		if endpoint == "readyz" || !c.ReadyOnly {
			out = append(out, c)
		}
	}
	return out
}

// writeHealth answers /healthz, /livez, /readyz and one check's own path. The reason of a failure goes to the log, not to whoever asks.
func (x *exchange) writeHealth(endpoint string) error {
	checks := x.server.checks(endpoint)
	if name := strings.Trim(strings.TrimPrefix(x.req.URL.Path, "/"+endpoint), "/"); name != "" {
		return x.writeCheck(endpoint, name, checks)
	}
	exclude := x.route.query["exclude"]
	var report strings.Builder
	failed := false
	for _, c := range checks {
		if slices.Contains(exclude, c.Name) {
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if err := x.check(endpoint, c); err != nil {
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	for _, name := range exclude {
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
			fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for %q\n", name)
		}
	}
	_, verbose := x.route.query["verbose"]
	switch {
	case failed:
		x.writeText(http.StatusInternalServerError, report.String()+endpoint+" check failed\n")
	case verbose:
		x.writeText(http.StatusOK, report.String()+endpoint+" check passed\n")
	default:
		x.writeText(http.StatusOK, "ok")
	}
	return nil
}

func (x *exchange) check(endpoint string, c Check) error {
	err := c.Run(x.ctx)
	if err != nil {
		x.server.cfg.Log.Warn("a health check failed", "endpoint", endpoint, "check", c.Name, "error", err)
	}
	return err
}

func (x *exchange) writeCheck(endpoint, name string, checks []Check) error {
	for _, c := range checks {
		if c.Name != name {
			continue
		}
		if err := x.check(endpoint, c); err != nil {
			x.writeText(http.StatusInternalServerError, "internal server error: reason withheld\n")
		} else {
			x.writeText(http.StatusOK, "ok")
		}
		return nil
	}
	return errNoRoute
}

func (x *exchange) writeText(code int, text string) {
	x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	x.w.Header().Set("X-Content-Type-Options", "nosniff")
	x.w.WriteHeader(code)
	_, _ = x.w.Write([]byte(text))
}
