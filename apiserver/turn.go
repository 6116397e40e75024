package apiserver

import (
	"net/http"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/yare-project/yare/apiserver/fairness"
)

// The headers by which a client can tell an administrator how its request was classified, as net/http spells them.
var (
	schemaHeader = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	levelHeader  = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
)

// limit waits for the request's turn. A watch leaves again once it has begun; other streams don't take part.
func (x *exchange) limit() error {
	if x.route.streams() && x.route.verb != "watch" {
		return nil
	}
	x.classify(&x.ticket.Request)
	err := x.server.turns.Enter(x.ctx, &x.ticket)
	if header := x.ticket.Schema(); header != nil {
		h := x.w.Header()
		h[schemaHeader], h[levelHeader] = header, x.ticket.Level()
	}
	if err != nil {
		return err
	}
	x.seated = true
	if x.route.remote && x.route.verb == "watch" {
		x.leave() // when it has begun, only the other server knows
	}
	return nil
}

// leave gives the turn to somebody else; further calls do nothing.
func (x *exchange) leave() {
	if x.seated {
		x.seated = false
		x.server.turns.Leave(&x.ticket)
	}
}

func (x *exchange) classify(q *fairness.Request) {
	r := &x.route
	q.User, q.Verb, q.Path = x.user, r.verb, x.req.URL.Path
	if !r.resource {
		return
	}
	q.Resource = true
	q.Group, q.Version, q.Plural, q.SubResource = r.ref.Group, r.ref.Version, r.ref.Resource, r.ref.Subresource
	q.Namespace, q.Name = r.authNamespace, r.ref.Name
	q.Work = x.work()
}

// work estimates what the request costs.
func (x *exchange) work() (w fairness.Work) {
	r := &x.route
	w.Watch = r.verb == "watch"
	if x.server.cfg.Fairness == nil || r.served == nil || r.served.Kind.Virtual {
		return w // nobody asks, or it costs nothing to speak of
	}
	switch r.verb {
	case "list":
		w.Objects = x.objects()
	case "watch":
		if x.beginsWithState() {
			w.Objects = x.objects()
		}
	case "create", "update", "patch", "delete":
		w.Watchers = x.server.watchers.Count(r.served.Kind.Resource(), r.ref.Namespace, r.ref.Name)
	}
	return w
}

// objects is how many a list goes through: all, unless it asks for one or for a page of what is there.
func (x *exchange) objects() int {
	r := &x.route
	count := r.served.Count()
	if len(r.query) == 0 || count <= 1 {
		return count
	}
	selected := r.query.Get("fieldSelector")
	switch {
	case selected != "" && selectedName(selected) != "":
		return 1
	case selected != "" || r.query.Get("labelSelector") != "":
		return count
	}
	if limit, err := strconv.Atoi(r.query.Get("limit")); err == nil && limit > 0 {
		return min(limit, count)
	}
	return count
}

// beginsWithState tells a watch that sends the objects that there are before the changes.
func (x *exchange) beginsWithState() bool {
	r := &x.route
	version := r.query.Get("resourceVersion")
	return r.flag("sendInitialEvents") || version == "" || version == "0"
}

// watched counts a watch that has begun.
func (x *exchange) watched() (gone func()) {
	r := &x.route
	return x.server.watchers.Add(r.served.Kind.Resource(), r.ref.Namespace, r.selectedName())
}
