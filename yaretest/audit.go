package yaretest

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver"
)

// Request is what [Audit] hears of: who asked for what, and how it ended.
type Request struct {
	Time   time.Time
	Took   time.Duration
	User   string // empty if nobody was recognised
	Groups []string
	Agent  string // the client's User-Agent
	// Verb is "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection" or "connect", for other paths the lower-case method.
	Verb        string
	Resource    schema.GroupVersionResource // empty for other paths
	Namespace   string
	Name        string
	Subresource string
	Path        string
	Code        int // HTTP status
	// Annotations are what admission said about the request.
	Annotations map[string]string
}

func (s *settings) observe(e apiserver.AuditEvent) {
	r := Request{Time: e.Time, Took: e.Took, Agent: e.Agent, Verb: e.Verb, Resource: e.Resource.GroupVersionResource, Namespace: e.Resource.Namespace,
		Name: e.Resource.Name, Subresource: e.Resource.Subresource, Path: e.Path, Code: e.Code, Annotations: e.Annotations}
	if e.User != nil {
		r.User, r.Groups = e.User.GetName(), e.User.GetGroups()
	}
	s.audit(r)
}
