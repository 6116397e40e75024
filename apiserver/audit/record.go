package audit

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	internal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Origin is where a request came from and how it was written.
type Origin struct {
	ID        string // of the request: see NewID
	URI       string // path and query
	UserAgent string
	IPs       []string // the client's, then those of the proxies on the way
	Received  time.Time
}

// OriginOf takes a request's origin from its headers. The addresses that proxies report are believed, as Kubernetes does: who fronts the server with
// none of its own can be told any.
func OriginOf(req *http.Request, id string, received time.Time) Origin {
	var ips []string
	for _, ip := range utilnet.SourceIPs(req) {
		ips = append(ips, ip.String())
	}
	return Origin{ID: id, URI: req.URL.RequestURI(), UserAgent: req.UserAgent(), IPs: ips, Received: received}
}

// maxUserAgent is how much of a client's User-Agent is kept, in bytes, as Kubernetes.
const maxUserAgent = 1024

// Record is one request's event while it comes about.
type Record struct {
	auditor *Auditor
	omit    []internal.Stage
	// strip says that bodies are kept without managedFields.
	strip bool

	mu    sync.Mutex
	event auditv1.Event
}

// Begin makes the record of a request, whose attributes name its user as authenticated. Nil: the policy does not want it recorded.
func (a *Auditor) Begin(from Origin, attributes authorizer.Attributes) *Record {
	rule := a.judge(attributes)
	if rule.Level == internal.LevelNone || rule.Level == "" {
		return nil
	}
	agent := from.UserAgent
	if len(agent) > maxUserAgent {
		agent = agent[:maxUserAgent] + "...TRUNCATED"
	}
	r := &Record{auditor: a, omit: rule.OmitStages, strip: rule.OmitManagedFields, event: auditv1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Event"},
		Level:    auditv1.Level(rule.Level), AuditID: types.UID(from.ID), Verb: attributes.GetVerb(), RequestURI: from.URI, UserAgent: agent,
		SourceIPs: from.IPs, RequestReceivedTimestamp: metav1.NewMicroTime(from.Received),
	}}
	if who := attributes.GetUser(); who != nil {
		r.event.User = userInfo(who)
	}
	if attributes.IsResourceRequest() {
		r.event.ObjectRef = &auditv1.ObjectReference{Namespace: attributes.GetNamespace(), Name: attributes.GetName(), Resource: attributes.GetResource(),
			Subresource: attributes.GetSubresource(), APIGroup: attributes.GetAPIGroup(), APIVersion: attributes.GetAPIVersion()}
	}
	return r
}

func userInfo(who user.Info) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for k, v := range who.GetExtra() {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[k] = v
	}
	return out
}

// Received tells of the request before anything is done. False: it must be refused, because it cannot be recorded.
func (r *Record) Received() bool {
	if r.tell(auditv1.StageRequestReceived, nil) {
		return true
	}
	r.auditor.metrics.rejected.Inc()
	return false
}

// Started tells that an answer which streams has begun, with an HTTP status code.
func (r *Record) Started(code int) { r.tell(auditv1.StageResponseStarted, withCode(code)) }

// Complete tells that the request is over. Code 0 says that nothing was answered.
func (r *Record) Complete(code int) {
	const slow = 500 * time.Millisecond // Kubernetes notes the time of requests that take longer
	took := r.auditor.clock.Since(r.event.RequestReceivedTimestamp.Time)
	if took > slow {
		r.Annotate("apiserver.latency.k8s.io/total", took.String())
	}
	r.tell(auditv1.StageResponseComplete, withCode(code))
}

func withCode(code int) func(*auditv1.Event) {
	return func(e *auditv1.Event) {
		if e.ResponseStatus == nil {
			e.ResponseStatus = &metav1.Status{}
		}
		if code == 0 && e.ResponseStatus.Code == 0 {
			e.ResponseStatus = &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK, Message: "Connection closed early"}
		}
		if code != 0 {
			status := *e.ResponseStatus // the earlier one may be part of an event that is being written
			status.Code = int32(code)
			e.ResponseStatus = &status
		}
	}
}

// Panicked tells that the request ended in a panic.
func (r *Record) Panicked(why any) {
	r.tell(auditv1.StagePanic, func(e *auditv1.Event) {
		e.ResponseStatus = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
			Message: fmt.Sprintf("APIServer panic'd: %v", why)}
	})
}

// tell passes on the event as it is at a stage.
func (r *Record) tell(stage auditv1.Stage, change func(*auditv1.Event)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if change != nil {
		change(&r.event)
	}
	if slices.Contains(r.omit, internal.Stage(stage)) {
		return true
	}
	e := r.event // shared with whoever writes it: from here on, only what is replaced as a whole may change in r.event
	e.Stage, e.StageTimestamp = stage, e.RequestReceivedTimestamp
	if stage != auditv1.StageRequestReceived {
		e.StageTimestamp = metav1.NewMicroTime(r.auditor.clock.Now())
	}
	return r.auditor.emit(&e)
}

// Annotate notes something about the request. A key keeps its first value.
func (r *Record) Annotate(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.event.Annotations[key]; taken {
		return
	}
	next := make(map[string]string, len(r.event.Annotations)+1)
	maps.Copy(next, r.event.Annotations)
	next[key] = value
	r.event.Annotations = next
}

// Impersonated notes as whom the user acts, and by which constrained right if who tells one.
func (r *Record) Impersonated(who user.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info := userInfo(who)
	r.event.ImpersonatedUser = &info
	if by, ok := who.(interface{ ImpersonationConstraint() string }); ok && by.ImpersonationConstraint() != "" {
		r.event.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: by.ImpersonationConstraint()}
	}
}

// Tried notes by which means somebody failed to say who they are.
func (r *Record) Tried(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ResponseStatus = &metav1.Status{Message: message}
}

// Object completes what the event says of the object that the request is about, from the request's own.
func (r *Record) Object(obj runtime.Object) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.event.ObjectRef == nil {
		return
	}
	ref := *r.event.ObjectRef
	for _, f := range []struct {
		to   *string
		from string
	}{{&ref.Namespace, m.GetNamespace()}, {&ref.Name, m.GetName()}, {(*string)(&ref.UID), string(m.GetUID())}, {&ref.ResourceVersion, m.GetResourceVersion()}} {
		if *f.to == "" {
			*f.to = f.from
		}
	}
	r.event.ObjectRef = &ref
}

// WantsRequest and WantsResponse tell whether bodies are to be recorded.
func (r *Record) WantsRequest() bool {
	return r.event.Level == auditv1.LevelRequest || r.event.Level == auditv1.LevelRequestResponse
}
func (r *Record) WantsResponse() bool { return r.event.Level == auditv1.LevelRequestResponse }

// Request records the body of the request, a JSON document that nobody changes any more.
func (r *Record) Request(doc []byte) {
	if body := r.body(doc); r.WantsRequest() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.event.RequestObject = body
	}
}

// Response records the body of the answer, a JSON document that nobody changes any more.
func (r *Record) Response(doc []byte) {
	if body := r.body(doc); r.WantsResponse() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.event.ResponseObject = body
	}
}

func (r *Record) body(doc []byte) *runtime.Unknown {
	if r.strip {
		doc = withoutManagedFields(doc)
	}
	return &runtime.Unknown{Raw: doc, ContentType: runtime.ContentTypeJSON}
}

// Status records an answer that is a Status: what refused the request, or that it was done.
func (r *Record) Status(s *metav1.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
}
