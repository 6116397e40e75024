package apiserver

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/apiserver/verbs"
)

// gzipAbove is the size from which an answer is compressed for those who accept it, as Kubernetes; not over loopback, where it only costs.
const gzipAbove = 128 << 10

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status   int
	bytes    int64
	hijacked bool
	began    func(code int) // hears of the answer's beginning; nil: nobody does
}

func (w *recorder) WriteHeader(code int) {
	if w.status == 0 || w.status == http.StatusContinue {
		w.begin(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) begin(code int) {
	w.status = code
	if w.began != nil && code != http.StatusContinue {
		w.began(code)
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach flushing and hijacking.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher for handlers that ask for it directly.
func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError sends what was written so far.
func (w *recorder) FlushError() error {
	if f, ok := w.ResponseWriter.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// writeStored answers with a stored object in the form that was negotiated.
func (x *exchange) writeStored(code int, o *stored.Object) error {
	if x.accept.As == codec.AsTable {
		return x.writeTable(code, metav1.ListMeta{ResourceVersion: o.Hub().GetResourceVersion()}, []*stored.Object{o})
	}
	doc, err := codec.Item(o, x.route.served.Version, x.accept)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if x.record != nil {
		x.recordAnswer(doc, func(a codec.Accept) ([]byte, error) { return codec.Item(o, x.route.served.Version, a) })
	}
	x.write(code, doc)
	return nil
}

func (x *exchange) writeList(l *verbs.List) error {
	v := x.route.served.Version
	if x.accept.As == codec.AsTable {
		return x.writeTable(http.StatusOK, l.Meta, l.Items)
	}
	if err := verbs.Ready(x.ctx, v, l.Items); err != nil {
		return apierrors.NewInternalError(err)
	}
	gvk := v.GroupVersion().WithKind(v.ListName())
	if x.accept.As == codec.AsMetadata {
		gvk = schema.GroupVersionKind{Group: "meta.k8s.io", Version: x.accept.MetaVersion, Kind: "PartialObjectMetadataList"}
	}
	doc, err := codec.List(gvk, l.Meta, l.Items, v, x.accept)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if x.record != nil {
		of := gvk // captured as it is: gvk itself would be moved to the heap in every request
		x.recordAnswer(doc.Bytes(), func(a codec.Accept) ([]byte, error) {
			d, err := codec.List(of, l.Meta, l.Items, v, a)
			if err != nil {
				return nil, err
			}
			return d.Bytes(), nil
		})
	}
	if x.req.Method == http.MethodHead || x.accept.Media == codec.JSON && x.pretty() || doc.Len() > gzipAbove && x.compresses() {
		x.write(http.StatusOK, doc.Bytes())
		return nil
	}
	h := x.w.Header()
	h["Content-Type"] = x.accept.Media.Header()
	h.Set("Content-Length", strconv.Itoa(doc.Len()))
	if x.trace != nil {
		x.trace.Mark("encode")
		x.trace.Write(h)
	}
	x.w.WriteHeader(http.StatusOK)
	_, _ = doc.WriteTo(x.w) // a client that has gone cannot be told
	return nil
}

func (x *exchange) writeTable(code int, meta metav1.ListMeta, items []*stored.Object) error {
	opts, err := x.tableOptions()
	if err != nil {
		return err
	}
	if err := verbs.Ready(x.ctx, x.route.served.Version, items); err != nil {
		return apierrors.NewInternalError(err)
	}
	table, err := codec.Table(x.route.served.Version, meta, items, x.accept, opts)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if x.record != nil {
		x.recordAnswer(table, func(a codec.Accept) ([]byte, error) { return codec.Table(x.route.served.Version, meta, items, a, opts) })
	}
	x.write(code, table)
	return nil
}

func (x *exchange) tableOptions() (codec.TableOptions, error) {
	include := metav1.IncludeObjectPolicy(x.route.query.Get("includeObject"))
	switch include {
	case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return codec.TableOptions{Include: include, Now: x.server.cfg.Clock.Now()}, nil
	}
	return codec.TableOptions{}, apierrors.NewBadRequest(fmt.Sprintf("includeObject %q is not known: None, Metadata and Object are", include))
}

// writeObject answers with an object that is not stored.
func (x *exchange) writeObject(code int, obj runtime.Object, gvk schema.GroupVersionKind) error {
	doc, err := codec.Encode(obj, gvk, x.accept.Media)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if x.record != nil {
		x.recordAnswer(doc, func(a codec.Accept) ([]byte, error) { return codec.Encode(obj, gvk, a.Media) })
	}
	x.write(code, doc)
	return nil
}

var statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

func (x *exchange) writeStatus(status *metav1.Status, code int) error {
	if x.record != nil {
		x.record.Status(status)
	}
	return x.writeObject(code, status, statusKind)
}

// write sends a whole document, pretty or compressed if the client wants it so.
func (x *exchange) write(code int, doc []byte) {
	newline := 0
	if x.accept.Media == codec.JSON {
		if x.pretty() {
			doc = codec.Pretty(doc)
		}
		if len(doc) > 0 && doc[len(doc)-1] != '\n' {
			newline = 1
		}
	}
	h := x.w.Header()
	h["Content-Type"] = x.accept.Media.Header()
	if x.trace != nil {
		x.trace.Mark("encode")
		x.trace.Write(h)
	}
	if len(doc) > gzipAbove && x.compresses() {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		x.w.WriteHeader(code)
		z := zippers.Get().(*gzip.Writer)
		z.Reset(x.w)
		_, _ = z.Write(doc) // a client that has gone cannot be told
		_ = z.Close()
		zippers.Put(z)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(doc)+newline))
	x.w.WriteHeader(code)
	if x.req.Method == http.MethodHead {
		return
	}
	_, _ = x.w.Write(doc)
	if newline > 0 {
		_, _ = x.w.Write([]byte{'\n'})
	}
}

var zippers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant of the package
	}
	return z
}}

func (x *exchange) compresses() bool {
	if !codec.AcceptsGzip(x.req.Header.Get("Accept-Encoding")) {
		return false
	}
	host, _, err := net.SplitHostPort(x.req.RemoteAddr)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// pretty is for people: those who ask, and those who look with a browser or curl.
func (x *exchange) pretty() bool {
	if v := x.route.query.Get("pretty"); v != "" {
		pretty, err := strconv.ParseBool(v)
		return pretty && err == nil
	}
	agent := x.req.UserAgent()
	return strings.HasPrefix(agent, "curl/") || strings.HasPrefix(agent, "Wget/") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// maxWarnings is how many bytes of warnings an answer carries; beyond, a warning is cut to maxWarning, and dropped if that does not fit either. The numbers are
// those of Kubernetes: clients bound the headers that they read.
const (
	maxWarnings = 4096
	maxWarning  = 256
)

// warn adds a warning header, once per text.
func (x *exchange) warn(text string) {
	if x.warned[text] {
		return
	}
	if x.warned == nil {
		x.warned = map[string]bool{}
	}
	x.warned[text] = true
	room := maxWarnings - x.told
	if len(text) > room {
		text = strings.ToValidUTF8(text[:min(len(text), maxWarning)], "")
	}
	if len(text) > room {
		return
	}
	x.told += len(text)
	if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
		x.w.Header().Add("Warning", header)
	}
}

// fail answers with an error.
func (x *exchange) fail(err error) {
	if x.w.status != 0 || x.w.hijacked {
		x.server.cfg.Log.Debug("a request failed after its answer began", "path", x.req.URL.Path, "error", err)
		return
	}
	if errors.Is(err, errNoRoute) && x.route.ref.Resource != "" && x.server.registry.Serves(x.route.ref.GroupVersion()) {
		err = errNoResource
	} else if errors.Is(err, errNoRoute) {
		http.Error(x.w, errNoRoute.Error(), http.StatusNotFound)
		return
	}
	status := x.statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		x.w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	accept, negotiable := codec.Negotiate(x.req.Header.Get("Accept"), codec.Offer{Protobuf: true, Transform: true, Watch: x.route.verb == "watch", List: x.route.verb == "list"})
	if negotiable != nil || accept.As != codec.AsObject {
		accept = codec.Accept{Media: codec.JSON}
	}
	x.accept = accept
	code := int(status.Code)
	if writeErr := x.writeStatus(&status, code); writeErr != nil {
		http.Error(x.w, status.Message, code)
	}
}

// statusOf turns any error into what the API tells clients.
func (x *exchange) statusOf(err error) metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			api = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
		case errors.Is(err, context.Canceled):
			api = apierrors.NewServiceUnavailable("the request was cancelled")
		default:
			api = apierrors.NewInternalError(err)
		}
	}
	status := api.Status()
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	if status.Code >= 500 && status.Code != http.StatusGatewayTimeout {
		x.server.cfg.Log.Error("a request failed", "method", x.req.Method, "path", x.req.URL.Path, "user", x.userName(), "error", err)
	}
	if status.Code == http.StatusUnauthorized {
		x.w.Header().Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
	}
	return status
}

// mediaType is a Content-Type without its parameters.
func mediaType(header string) string {
	typ, _, _ := strings.Cut(header, ";")
	return strings.TrimSpace(typ)
}
