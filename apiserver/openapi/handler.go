package openapi

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"github.com/munnerz/goautoneg"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

const (
	root   = "/openapi/v2"
	index  = "/openapi/v3"
	asJSON = "application/json"
	// Protobuf media types have an @ that is no token of a media type; answers name them with a dot.
	v2Protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	v3Protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// New returns the handler of /openapi/v2, /openapi/v3 and the documents below it.
func New(config Config) *Handler {
	// A document without them is none, by the specification.
	config.Title, config.Version = cmp.Or(config.Title, "Kubernetes"), cmp.Or(config.Version, "unversioned")
	return &Handler{config: config, build: buildID()}
}

// Handler serves the documents. See New.
type Handler struct {
	config Config
	build  string

	mu      sync.Mutex
	current *state
}

// state is what was built of one revision of the kinds.
type state struct {
	revision uint64 // of the kinds
	known    uint64 // of the remote documents
	remote   []Remote
	builder  builder
	hashes   map[string]string       // by index path
	own      map[string]*versionHash // those of them that are this server's own
	all      string                  // the hash of everything

	building sync.Mutex // one document at a time: they are large while they are made
	mu       sync.Mutex
	packed   map[string][]byte // gzip, by path and media type
}

// buildID tells builds of one version apart, so that clients of a development server don't keep old documents.
func buildID() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var out strings.Builder
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs.") {
			fmt.Fprintf(&out, "%s=%s;", s.Key, s.Value)
		}
	}
	return out.String()
}

func (h *Handler) state() *state {
	kinds, revision := h.config.Kinds()
	var remote []Remote
	var known uint64
	if h.config.Remote != nil {
		remote, known = h.config.Remote()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil || h.current.revision != revision || h.current.known != known {
		s := &state{revision: revision, known: known, remote: remote, builder: builder{config: h.config, kinds: kinds}, packed: map[string][]byte{}}
		s.hash(h.build, h.current)
		s.inherit(h.current)
		h.current = s
	}
	return h.current
}

// hash makes the hashes of the documents from what they follow from. That of a group version whose kinds are those of the last state stays.
func (s *state) hash(build string, last *state) {
	s.hashes = map[string]string{}
	s.own = map[string]*versionHash{}
	var everything strings.Builder
	byVersion := s.builder.byVersion()
	for _, gv := range s.builder.versions() {
		path, kinds := indexPath(gv), byVersion[gv]
		own := &versionHash{kinds: kinds}
		if last != nil && last.own[path] != nil && slices.Equal(last.own[path].kinds, kinds) {
			own = last.own[path]
		} else {
			own.sum = fmt.Sprintf("%X", sha512.Sum512([]byte(build+s.builder.config.Version+s.builder.fingerprint(gv, kinds))))
		}
		s.own[path] = own
		s.hashes[path] = own.sum
		everything.WriteString(own.sum)
	}
	for _, r := range s.builder.roots() {
		s.hashes[r.path] = fmt.Sprintf("%X", sha512.Sum512([]byte(build+s.builder.config.Version+r.path)))
		everything.WriteString(r.path)
	}
	s.hashRemote(&everything)
	s.all = fmt.Sprintf("%X", sha512.Sum512([]byte(everything.String())))
}

// versionHash is the hash of a group version's document, with the kinds that it was made of.
type versionHash struct {
	kinds []*kind.Kind
	sum   string
}

// inherit takes over the documents of versions that are what they were.
func (s *state) inherit(last *state) {
	if last == nil {
		return
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	for key, packed := range last.packed {
		path, _, _ := strings.Cut(key, " ")
		if hash := s.hashes[path]; hash != "" && hash == last.hashes[path] || path == root && s.all == last.all {
			s.packed[key] = packed
		}
	}
}

func (b *builder) fingerprint(gv schema.GroupVersion, kinds []*kind.Kind) string {
	var out strings.Builder
	for _, k := range kinds {
		v, ok := k.Version(gv)
		if !ok {
			continue
		}
		fmt.Fprintf(&out, "%s %v %v %v %v;", v.GroupVersionKind, v.Names, k.Verbs, k.Scope, k.HasStatus)
		fmt.Fprintf(&out, "%v;", k.Scale != nil)
		for _, s := range k.Subs {
			fmt.Fprintf(&out, "%s %s %v;", s.Name, s.Body, s.Methods)
		}
		if v.SchemaID != "" {
			fmt.Fprintf(&out, "%s;", v.SchemaID)
			continue
		}
		if s := b.schema(v); s != nil {
			encoded, _ := json.Marshal(s) // a schema that does not encode fails when its document is built
			out.Write(encoded)
		}
	}
	return out.String()
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "OpenAPI documents are read with GET, not "+r.Method, http.StatusMethodNotAllowed)
		return
	}
	s := h.state()
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch {
	case path == root:
		s.serveV2(w, r)
	case path == index:
		s.serveIndex(w, r)
	case strings.HasPrefix(path, index+"/"):
		s.serveV3(w, r, strings.TrimPrefix(path, index+"/"))
	default:
		http.NotFound(w, r)
	}
}

// negotiate picks the client's favourite of JSON and one protobuf type.
func negotiate(accept, protobuf string) (mediaType string, ok bool) {
	if accept == "" {
		return asJSON, true
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		full := strings.Replace(clause.Type+"/"+clause.SubType, "@", ".", 1)
		switch {
		case clause.Q == 0:
		case full == protobuf:
			return protobuf, true
		case full == asJSON, full == "application/*", full == "*/*":
			return asJSON, true
		}
	}
	return "", false
}

func notAcceptable(w http.ResponseWriter, protobuf string) {
	http.Error(w, "this document is served as "+asJSON+" and "+protobuf+", none of which the Accept header allows", http.StatusNotAcceptable)
}

func (s *state) serveV2(w http.ResponseWriter, r *http.Request) {
	mediaType, ok := negotiate(r.Header.Get("Accept"), v2Protobuf)
	if !ok {
		notAcceptable(w, v2Protobuf)
		return
	}
	s.serve(w, r, root, mediaType, s.all, func() ([]byte, error) {
		operations, d := s.builder.collect(nil)
		body, err := documentV2(s.builder.info(), operations, d)
		if err == nil {
			body, err = s.withRemote(body)
		}
		if err != nil || mediaType == asJSON {
			return body, err
		}
		doc, err := openapiv2.ParseDocument(body)
		if err != nil {
			return nil, fmt.Errorf("convert OpenAPI v2 to protobuf: %w", err)
		}
		return proto.Marshal(doc)
	})
}

// serveIndex lists the documents. A document's URL changes with its content, so that a client may keep it for good.
func (s *state) serveIndex(w http.ResponseWriter, r *http.Request) {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]entry{}
	for path, hash := range s.hashes {
		paths[path] = entry{URL: index + "/" + path + "?hash=" + hash}
	}
	body, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("ETag", `"`+s.all+`"`)
	w.Header().Set("Content-Type", asJSON)
	if r.Header.Get("If-None-Match") == `"`+s.all+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Write(body) // a client that left is no concern of ours
}

func (s *state) serveV3(w http.ResponseWriter, r *http.Request, path string) {
	hash, ok := s.hashes[path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if asked := r.URL.Query().Get("hash"); asked != "" {
		if asked != hash { // the client's index is old
			to := url.URL{Path: index + "/" + path, RawQuery: "hash=" + hash}
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable, max-age=31536000") // a year
	}
	mediaType, ok := negotiate(r.Header.Get("Accept"), v3Protobuf)
	if !ok {
		notAcceptable(w, v3Protobuf)
		return
	}
	s.serve(w, r, path, mediaType, hash, func() ([]byte, error) {
		var gv schema.GroupVersion
		for _, candidate := range s.builder.versions() {
			if indexPath(candidate) == path {
				gv = candidate
			}
		}
		body, found, err := s.builder.rootDocument(path)
		if !found {
			body, err = s.remoteV3(path)
		}
		if body == nil && err == nil {
			operations, d := s.builder.collect(&gv)
			body, err = documentV3(s.builder.info(), operations, d)
		}
		if err != nil || mediaType == asJSON {
			return body, err
		}
		doc, err := openapiv3.ParseDocument(body)
		if err != nil {
			return nil, fmt.Errorf("convert OpenAPI v3 to protobuf: %w", err)
		}
		return proto.Marshal(doc)
	})
}

// serve answers with a document, which is built unless it was before.
func (s *state) serve(w http.ResponseWriter, r *http.Request, path, mediaType, hash string, build func() ([]byte, error)) {
	header := w.Header()
	header.Set("ETag", `"`+hash+`"`)
	header.Set("Vary", "Accept, Accept-Encoding")
	if r.Header.Get("If-None-Match") == `"`+hash+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	packed, err := s.pack(path+" "+mediaType, build)
	if err != nil {
		header.Del("ETag")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", mediaType)
	if acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		w.Write(packed)
		return
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	io.Copy(w, unpacked)
}

func acceptsGzip(r *http.Request) bool {
	for _, clause := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, parameters, _ := strings.Cut(clause, ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.ReplaceAll(parameters, " ", "") != "q=0"
		}
	}
	return false
}

func (s *state) lookup(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packed[key]
}

func (s *state) pack(key string, build func() ([]byte, error)) ([]byte, error) {
	if packed := s.lookup(key); packed != nil {
		return packed, nil
	}
	s.building.Lock()
	defer s.building.Unlock()
	if packed := s.lookup(key); packed != nil {
		return packed, nil
	}
	body, err := build()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(body); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packed[key] = bytes.Clone(out.Bytes())
	return s.packed[key], nil
}
