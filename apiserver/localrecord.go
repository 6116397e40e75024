package apiserver

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/apiserver/audit"
	"github.com/yare-project/yare/internal/jsonwrite"
	"github.com/yare-project/yare/internal/resource"
)

// localRecord is the audit record of a request from within the process. Nil, as it is where nothing is audited, does nothing.
type localRecord struct {
	*audit.Record
	made bool // the answer is of something new
}

type recordKey struct{}

// record begins the record of a request and keeps it in the context. It looks as the same request over HTTP would, from this machine.
func (l *Local) record(ctx context.Context, verb string, ref resource.Ref, obj runtime.Object, patch []byte) (context.Context, *localRecord) {
	if l.server.cfg.Auditor == nil {
		return ctx, nil
	}
	record := l.server.cfg.Auditor.Begin(audit.Origin{ID: audit.NewID(), URI: pathOf(verb, ref), UserAgent: "yare/" + l.manager, IPs: []string{"127.0.0.1"},
		Received: l.server.cfg.Clock.Now()}, l.attributes(verb, ref))
	if record == nil {
		return ctx, nil
	}
	r := &localRecord{Record: record, made: verb == "create"}
	r.request(obj, patch)
	// A loop cannot be told to wait until its requests can be recorded; what is lost is counted.
	record.Received()
	return context.WithValue(ctx, recordKey{}, r), r
}

// recordOf is the context's record.
func (l *Local) recordOf(ctx context.Context) *audit.Record {
	if l.server.cfg.Auditor == nil {
		return nil
	}
	if r, ok := ctx.Value(recordKey{}).(*localRecord); ok {
		return r.Record
	}
	return nil
}

// request records what a caller passed: an object (or the options of a deletion), or a patch.
func (r *localRecord) request(obj runtime.Object, patch []byte) {
	if obj != nil {
		r.Object(obj)
	}
	switch {
	case !r.WantsRequest():
	case patch != nil:
		r.Request(asJSON(patch))
	case obj != nil:
		if doc, err := jsonwrite.Marshal(obj); err == nil {
			r.Request(doc)
		}
	}
}

// end tells how the request ended: with what it returns, which may be nil, or with an error.
func (r *localRecord) end(out *runtime.Object, err *error) {
	if r == nil {
		return
	}
	switch {
	case *err != nil:
		status := statusOf(*err)
		r.Status(&status)
		r.Complete(int(status.Code))
		return
	case out != nil && *out != nil && r.WantsResponse():
		if doc, err := jsonwrite.Marshal(*out); err == nil {
			r.Response(doc)
		}
	}
	r.Complete(r.code())
}

func (r *localRecord) code() int {
	if r.made {
		return http.StatusCreated
	}
	return http.StatusOK
}

// started tells that a watch has begun.
func (r *localRecord) started() {
	if r != nil {
		r.Started(http.StatusOK)
	}
}

func statusOf(err error) metav1.Status {
	var api apierrors.APIStatus
	switch {
	case errors.As(err, &api):
		return api.Status()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError(err.Error(), 0).Status()
	}
	return apierrors.NewInternalError(err).Status()
}

// pathOf is the path of a request's URL.
func pathOf(verb string, ref resource.Ref) string {
	path := "/api/" + ref.Version
	if ref.Group != "" {
		path = "/apis/" + ref.Group + "/" + ref.Version
	}
	if ref.Namespace != "" {
		path += "/namespaces/" + ref.Namespace
	}
	path += "/" + ref.Resource
	if ref.Name != "" && (verb != "create" || ref.Subresource != "") {
		path += "/" + ref.Name
	}
	if ref.Subresource != "" {
		path += "/" + ref.Subresource
	}
	if verb == "watch" {
		path += "?watch=true"
	}
	return path
}
