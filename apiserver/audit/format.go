package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/yare-project/yare/internal/jsonwrite"
)

// Truncate bounds what is written. Zero bounds nothing.
type Truncate struct {
	// Event and Batch are bytes of JSON.
	Event, Batch int64
}

// encode writes an event as one JSON line without its end. One that is too large loses its bodies, which it says in an annotation.
func (t Truncate) encode(e *auditv1.Event) ([]byte, error) {
	doc, err := marshal(e)
	if err != nil || t.Event <= 0 || int64(len(doc)) <= t.Event {
		return doc, err
	}
	if e.RequestObject != nil || e.ResponseObject != nil {
		less := *e
		less.RequestObject, less.ResponseObject = nil, nil
		less.Annotations = maps.Clone(e.Annotations)
		if less.Annotations == nil {
			less.Annotations = map[string]string{}
		}
		less.Annotations["audit.k8s.io/truncated"] = "true"
		if doc, err = marshal(&less); err != nil {
			return nil, err
		}
	}
	if int64(len(doc)) > t.Event {
		return nil, errors.New("the event is larger than the limit even without its bodies")
	}
	return doc, nil
}

// marshal writes bodies as they are, but on one line; one that is no JSON becomes a string.
func marshal(e *auditv1.Event) ([]byte, error) {
	for _, body := range []*runtime.Unknown{e.RequestObject, e.ResponseObject} {
		if body == nil || json.Valid(body.Raw) {
			continue
		}
		quoted := *e
		quoted.RequestObject, quoted.ResponseObject = asJSON(e.RequestObject), asJSON(e.ResponseObject)
		return jsonwrite.Marshal(&quoted)
	}
	return jsonwrite.Marshal(e)
}

func asJSON(body *runtime.Unknown) *runtime.Unknown {
	if body == nil || json.Valid(body.Raw) {
		return body
	}
	text, err := json.Marshal(string(body.Raw))
	if err != nil {
		return nil
	}
	return &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON}
}

// legacy is the one-line text form of an event, in the words that Kubernetes' log parsers know.
func legacy(e *auditv1.Event) string {
	or := func(s, none string) string {
		if s == "" {
			return none
		}
		return s
	}
	groups, as, asGroups := "<none>", "<self>", "<lookup>"
	if len(e.User.Groups) > 0 && e.User.Username != "" {
		groups = quoteAll(e.User.Groups)
	}
	if who := e.ImpersonatedUser; who != nil {
		as = who.Username
		if who.Groups != nil {
			asGroups = quoteAll(who.Groups)
		}
	}
	namespace, response, ip := "", "<deferred>", ""
	if e.ObjectRef != nil {
		namespace = e.ObjectRef.Namespace
	}
	if e.ResponseStatus != nil {
		response = strconv.Itoa(int(e.ResponseStatus.Code))
	}
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	return fmt.Sprintf("%s AUDIT: id=%q stage=%q ip=%q method=%q user=%q groups=%q as=%q asgroups=%q user-agent=%q namespace=%q uri=%q response=\"%s\"",
		e.RequestReceivedTimestamp.Format(time.RFC3339Nano), e.AuditID, e.Stage, or(ip, "<unknown>"), e.Verb, or(e.User.Username, "<none>"), groups, as, asGroups,
		e.UserAgent, or(namespace, "<none>"), e.RequestURI, response)
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return strings.Join(quoted, ",")
}
