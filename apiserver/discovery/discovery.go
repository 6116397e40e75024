// Package discovery tells clients which groups, versions and resources the API server serves.
//
// It answers /api, /apis, /apis/GROUP, /api/v1 and /apis/GROUP/VERSION in the unaggregated form that every client knows, and /api and /apis
// also as one aggregated APIGroupDiscoveryList (apidiscovery.k8s.io v2 and v2beta1) with an ETag, so that a client learns everything in
// two requests. JSON, YAML, protobuf and CBOR are served.
//
// Everything follows from the kinds that Config.Kinds returns and the group versions of other servers that Config.Services does; no kind or group is named here.
// Documents are built on first request and kept, encoded, until a revision changes. A Handler is safe for concurrent use. What another server answers for
// its own /apis/GROUP/VERSION is not here: the gate asks it.
//
// It doesn't authorize: the gate does that before.
package discovery

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

// Config is what discovery needs.
type Config struct {
	// Kinds returns the served kinds and a number that changes whenever they do. Groups are listed in the order in which
	// their first kind appears, the core group apart, if Place does not say otherwise. The slice must not change after it was returned.
	Kinds func() (kinds []*kind.Kind, revision uint64)
	// Place is where a group version of this server's own stands among the others. Optional.
	Place func(schema.GroupVersion) Place
	// Services are the group versions that other servers serve, or that have another place than Place says, with a number that changes whenever they do. It must
	// answer at once. Optional.
	Services func() (services []Service, revision uint64)
	// Address is the host:port that clients are told to use; nil means the address that the request came to.
	Address func(*http.Request) string
}

// New returns the handler of the discovery paths. Any other path below /api and /apis is answered with 404.
func New(config Config) *Handler { return &Handler{config: config} }

// Handler serves discovery. See New.
type Handler struct {
	config Config

	mu      sync.Mutex
	current *snapshot
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, ok := parse(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	m, ok := negotiate(r.Header.Get("Accept"), t.aggregatable())
	if !ok {
		err := apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "", "", 0, false)
		err.ErrStatus.Message, err.ErrStatus.Details = "only the following media types are accepted: "+strings.Join(mediaTypes, ", "), nil
		refuse(w, err)
		return
	}
	doc, err := h.snapshot().document(t, m, h.address(r))
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case doc == nil:
		refuse(w, apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(w, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false))
	default:
		write(w, r, doc, m)
	}
}

func write(w http.ResponseWriter, r *http.Request, doc *document, m media) {
	header := w.Header()
	header.Set("Vary", "Accept")
	if doc.etag != "" {
		header.Set("ETag", doc.etag)
		header.Set("Cache-Control", "public")
		if r.Header.Get("If-None-Match") == doc.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	} else {
		header.Set("Cache-Control", "no-cache, private")
	}
	header.Set("Content-Type", m.contentType())
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		w.Write(doc.body) // a client that left is no concern of ours
	}
}

func (h *Handler) address(r *http.Request) string {
	if h.config.Address != nil {
		return h.config.Address(r)
	}
	return r.Host
}

func (h *Handler) snapshot() *snapshot {
	kinds, revision := h.config.Kinds()
	var services []Service
	var known uint64
	if h.config.Services != nil {
		services, known = h.config.Services()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil || h.current.revision != revision || h.current.known != known {
		groups := arrange(groupsOf(kinds), services, h.config.Place)
		h.current = &snapshot{revision: revision, known: known, groups: groups, documents: map[documentKey]*document{}}
	}
	return h.current
}

// target is what a path asks for: the root of the core group (/api) or of the named groups (/apis), a group, or a group's version.
type target struct {
	core    bool
	group   string
	version string
}

func (t target) aggregatable() bool { return t.group == "" && t.version == "" }

func (t target) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: t.group, Version: t.version}
}

func parse(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) == 1 && parts[0] == "api":
		return target{core: true}, true
	case len(parts) == 2 && parts[0] == "api" && parts[1] != "":
		return target{core: true, version: parts[1]}, true
	case len(parts) == 1 && parts[0] == "apis":
		return target{}, true
	case len(parts) == 2 && parts[0] == "apis" && parts[1] != "":
		return target{group: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis" && parts[1] != "" && parts[2] != "":
		return target{group: parts[1], version: parts[2]}, true
	}
	return target{}, false
}

// refuse answers as the API does: with a Status.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.ErrStatus
	status.Kind, status.APIVersion = "Status", "v1"
	body, _ := json.Marshal(&status)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body)
}
