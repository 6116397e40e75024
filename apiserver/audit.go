package apiserver

import (
	"net"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/internal/resource"
)

// AuditEvent says who did what, and how it ended. It holds no body: nothing secret can be in it.
type AuditEvent struct {
	Time     time.Time
	Took     time.Duration
	User     user.Info // nil if the request was not authenticated
	From     string    // the client's address
	Agent    string
	Verb     string
	Resource resource.Ref // empty for other paths
	Path     string
	Code     int
	// Annotations are what admission said about the request, such as which webhook changed it. Nil if nothing was said.
	Annotations map[string]string
}

// audit tells the hook of an answered request.
func (x *exchange) audit() {
	if x.server.cfg.Audit == nil {
		return
	}
	from, _, err := net.SplitHostPort(x.req.RemoteAddr)
	if err != nil {
		from = x.req.RemoteAddr
	}
	x.server.cfg.Audit(AuditEvent{Time: x.start, Took: x.server.cfg.Clock.Since(x.start), User: x.user, From: from, Agent: x.req.UserAgent(),
		Verb: x.verb, Resource: x.route.ref, Path: x.req.URL.Path, Code: x.w.status, Annotations: x.notes})
}

// annotate adds to the audit event; a key keeps its first value.
func (x *exchange) annotate(key, value string) {
	if x.record != nil {
		x.record.Annotate(key, value)
	}
	if x.server.cfg.Audit == nil {
		return
	}
	if x.notes == nil {
		x.notes = map[string]string{}
	}
	if _, taken := x.notes[key]; !taken {
		x.notes[key] = value
	}
}
