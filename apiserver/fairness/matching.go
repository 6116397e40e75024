package fairness

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// flow is a FlowSchema, ready for matching, with its figures in its level.
type flow struct {
	name       string
	precedence int32
	rules      []rule
	by         flowcontrolv1.FlowDistinguisherMethodType
	seed       maphash.Seed
	level      *level
	stats      *stats
	// queued tells whether the level has queues to choose from.
	queued bool
	// The values of the response headers.
	header, levelHeader []string
}

// rule is who does what. A nil list means anything.
type rule struct {
	who       subjects
	resources []resourceRule
	paths     []pathRule
}

type subjects struct {
	anybody       bool
	users, groups []string
	// namespaces are prefixes of the names of all service accounts of a namespace.
	namespaces []string
}

type resourceRule struct {
	verbs                         verbSet
	groups, resources, namespaces []string
	anyNamespace, cluster         bool
}

type pathRule struct {
	verbs verbSet
	// exact are whole paths, below are prefixes; all takes every path.
	all          bool
	exact, below []string
}

// verbSet is a set of verbs as bits; the last stands for every verb that has no name here.
type verbSet uint16

var verbNames = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy"}

const (
	everyVerb verbSet = math.MaxUint16
	otherVerb verbSet = 1 << 15
)

func verbOf(name string) verbSet {
	switch name {
	case "get":
		return 1 << 0
	case "list":
		return 1 << 1
	case "watch":
		return 1 << 2
	case "create":
		return 1 << 3
	case "update":
		return 1 << 4
	case "patch":
		return 1 << 5
	case "delete":
		return 1 << 6
	case "deletecollection":
		return 1 << 7
	case "proxy":
		return 1 << 8
	}
	return otherVerb
}

func verbsOf(names []string) verbSet {
	var out verbSet
	for _, n := range names {
		if n == flowcontrolv1.VerbAll {
			return everyVerb
		}
		out |= verbOf(n) &^ otherVerb
	}
	return out
}

// compile turns a FlowSchema into what is matched by.
func compile(s *flowcontrolv1.FlowSchema) *flow {
	f := &flow{name: s.Name, precedence: s.Spec.MatchingPrecedence, header: []string{string(s.UID)}, seed: maphash.MakeSeed()}
	if m := s.Spec.DistinguisherMethod; m != nil {
		f.by = m.Type
	}
	for _, r := range s.Spec.Rules {
		f.rules = append(f.rules, compileRule(r))
	}
	return f
}

func compileRule(r flowcontrolv1.PolicyRulesWithSubjects) rule {
	out := rule{who: compileSubjects(r.Subjects)}
	for _, rr := range r.ResourceRules {
		out.resources = append(out.resources, resourceRule{
			verbs: verbsOf(rr.Verbs), groups: listed(rr.APIGroups), resources: listed(rr.Resources), namespaces: rr.Namespaces,
			anyNamespace: slices.Contains(rr.Namespaces, flowcontrolv1.NamespaceEvery), cluster: rr.ClusterScope,
		})
	}
	for _, nr := range r.NonResourceRules {
		p := pathRule{verbs: verbsOf(nr.Verbs)}
		for _, u := range nr.NonResourceURLs {
			switch {
			case u == flowcontrolv1.NonResourceAll:
				p.all = true
			case strings.HasSuffix(u, "/*"):
				p.below = append(p.below, strings.TrimSuffix(u, "*"))
			default: // a path covers what is below it
				p.exact = append(p.exact, u)
				p.below = append(p.below, strings.TrimSuffix(u, "/")+"/")
			}
		}
		out.paths = append(out.paths, p)
	}
	return out
}

func compileSubjects(list []flowcontrolv1.Subject) subjects {
	var out subjects
	for _, s := range list {
		switch {
		case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
			out.anybody = out.anybody || s.User.Name == flowcontrolv1.NameAll
			out.users = append(out.users, s.User.Name)
		case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
			out.anybody = out.anybody || s.Group.Name == flowcontrolv1.NameAll
			out.groups = append(out.groups, s.Group.Name)
		case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
			prefix := "system:serviceaccount:" + s.ServiceAccount.Namespace + ":"
			if s.ServiceAccount.Name == flowcontrolv1.NameAll {
				out.namespaces = append(out.namespaces, prefix)
			} else {
				out.users = append(out.users, prefix+s.ServiceAccount.Name)
			}
		}
	}
	return out
}

// listed is nil where a list takes everything.
func listed(names []string) []string {
	if slices.Contains(names, "*") {
		return nil
	}
	return append([]string{}, names...)
}

// order is by precedence, then by name.
func order(a, b *flow) int {
	return cmp.Or(cmp.Compare(a.precedence, b.precedence), cmp.Compare(a.name, b.name))
}

func (f *flow) matches(r *Request, verb verbSet) bool {
	for i := range f.rules {
		rule := &f.rules[i]
		if rule.covers(r, verb) && rule.who.include(r.User) {
			return true
		}
	}
	return false
}

func (r *rule) covers(q *Request, verb verbSet) bool {
	if !q.Resource {
		return slices.ContainsFunc(r.paths, func(p pathRule) bool { return p.verbs&verb != 0 && p.covers(q.Path) })
	}
	for i := range r.resources {
		if rr := &r.resources[i]; rr.verbs&verb != 0 && rr.covers(q) {
			return true
		}
	}
	return false
}

func (r *resourceRule) covers(q *Request) bool {
	if q.Namespace == "" {
		if !r.cluster {
			return false
		}
	} else if !r.anyNamespace && !slices.Contains(r.namespaces, q.Namespace) {
		return false
	}
	return (r.groups == nil || slices.Contains(r.groups, q.Group)) && (r.resources == nil || r.names(q))
}

// names tells whether a resource is listed, as "pods" or "pods/status".
func (r *resourceRule) names(q *Request) bool {
	for _, n := range r.resources {
		if q.SubResource == "" {
			if n == q.Plural {
				return true
			}
			continue
		}
		if len(n) == len(q.Plural)+1+len(q.SubResource) && strings.HasPrefix(n, q.Plural) && n[len(q.Plural)] == '/' && strings.HasSuffix(n, q.SubResource) {
			return true
		}
	}
	return false
}

func (p *pathRule) covers(path string) bool {
	return p.all || slices.Contains(p.exact, path) || slices.ContainsFunc(p.below, func(b string) bool { return strings.HasPrefix(path, b) })
}

func (s *subjects) include(who user.Info) bool {
	if s.anybody {
		return true
	}
	if len(s.users) > 0 || len(s.namespaces) > 0 {
		name := who.GetName()
		if slices.Contains(s.users, name) || slices.ContainsFunc(s.namespaces, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return true
		}
	}
	if len(s.groups) > 0 {
		for _, g := range who.GetGroups() {
			if slices.Contains(s.groups, g) {
				return true
			}
		}
	}
	return false
}

// distinguish names the flow of a request within its schema.
func (f *flow) distinguish(r *Request) string {
	switch f.by {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return r.User.GetName()
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return r.Namespace
	}
	return ""
}
