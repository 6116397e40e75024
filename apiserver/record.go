package apiserver

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/audit"
	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// beginAudit makes the record of a request whose user is known, if the policy wants one.
func (x *exchange) beginAudit() error {
	if x.server.cfg.Auditor == nil {
		return nil
	}
	x.openRecord()
	if x.record == nil {
		return nil
	}
	if x.route.streams() {
		x.w.began = x.record.Started
	}
	if !x.record.Received() {
		return apierrors.NewInternalError(errors.New("failed to store audit event"))
	}
	return nil
}

func (x *exchange) openRecord() {
	id := x.w.Header()[audit.Header][0]
	x.record = x.server.cfg.Auditor.Begin(audit.OriginOf(x.req, id, x.start), x.attributes())
	if x.record != nil && x.route.served != nil {
		deprecation(x.record, x.route.served.Version)
	}
}

// deprecation notes that a request used a version that is to go.
func deprecation(record *audit.Record, v *kind.Version) {
	if v.Warning == "" {
		return
	}
	record.Annotate("k8s.io/deprecated", "true")
	if _, release, ok := strings.Cut(v.Warning, "unavailable in v"); ok { // the warnings of built-in versions end so
		release, _, _ = strings.Cut(release, "+")
		record.Annotate("k8s.io/removed-release", release)
	}
}

// auditStranger records a request of nobody that is known: that it was refused, and by which means it tried to be somebody. There is no more to tell.
func (x *exchange) auditStranger() {
	if x.server.cfg.Auditor == nil {
		return
	}
	x.openRecord()
	if x.record == nil {
		return
	}
	x.record.Tried(audit.Attempts(x.req))
	record := x.record
	x.record = nil
	x.w.began = record.Started
}

// endAudit tells how the request ended.
func (x *exchange) endAudit(panicked any) {
	switch {
	case x.record == nil:
	case panicked != nil && panicked != http.ErrAbortHandler:
		x.record.Panicked(panicked)
	default:
		if x.w.status == 0 && x.w.began != nil {
			x.record.Started(0)
		}
		x.record.Complete(x.w.status)
	}
}

// annotateDecision notes what the authorizer said.
func annotateDecision(record *audit.Record, decision authorizer.Decision, reason string, err error) {
	switch {
	case decision == authorizer.DecisionAllow:
		record.Annotate("authorization.k8s.io/decision", "allow")
		record.Annotate("authorization.k8s.io/reason", reason)
	case err != nil:
		record.Annotate("authorization.k8s.io/reason", "internal error")
	default:
		record.Annotate("authorization.k8s.io/decision", "forbid")
		record.Annotate("authorization.k8s.io/reason", reason)
	}
}

// recordRequest records what the client sent: JSON as it came, anything else as the object that it was decoded into.
func (x *exchange) recordRequest(data []byte, media codec.Media, obj runtime.Object, gvk schema.GroupVersionKind) {
	x.record.Object(obj)
	if !x.record.WantsRequest() {
		return
	}
	switch {
	case media == codec.YAML:
		data = asJSON(data)
	case media != codec.JSON || stored.IsProtobuf(data):
		data = encoded(obj, gvk)
	}
	x.record.Request(data)
}

// recordOptions records the options of a deletion that came in its body.
func (x *exchange) recordOptions(opts *metav1.DeleteOptions) {
	if x.record.WantsRequest() {
		x.record.Request(encoded(opts.DeepCopy(), metav1.SchemeGroupVersion.WithKind("DeleteOptions")))
	}
}

// recordPatch records a patch as it came.
func (x *exchange) recordPatch(data []byte, isYAML bool) {
	if !x.record.WantsRequest() {
		return
	}
	if isYAML {
		data = asJSON(data)
	}
	x.record.Request(data)
}

// recordAnswer records the document of an answer; again writes it as JSON if it was written otherwise.
func (x *exchange) recordAnswer(doc []byte, again func(a codec.Accept) ([]byte, error)) {
	if !x.record.WantsResponse() {
		return
	}
	if x.accept.Media != codec.JSON {
		a := x.accept
		a.Media = codec.JSON
		var err error
		if doc, err = again(a); err != nil {
			x.server.cfg.Log.Error("an answer was not audited", "path", x.req.URL.Path, "error", err)
			return
		}
	}
	x.record.Response(doc)
}

// encoded is an object as JSON, nothing if it cannot be.
func encoded(obj runtime.Object, gvk schema.GroupVersionKind) []byte {
	doc, err := codec.Encode(obj, gvk, codec.JSON)
	if err != nil {
		return nil
	}
	return doc
}

// asJSON is YAML as JSON, or as it is if it is none.
func asJSON(data []byte) []byte {
	if codec.CheckAliases(data) != nil {
		return nil
	}
	if doc, err := yaml.YAMLToJSON(data); err == nil {
		return doc
	}
	return data
}
