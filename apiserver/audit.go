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
		Verb: x.verb, Resource: x.route.ref, Path: x.req.URL.Path, Code: x.w.status})
}
