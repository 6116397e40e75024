package authn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/authz"
)

// Constrained impersonation (KEP-5284) takes two rights: "impersonate:<mode>" for whom, and "impersonate-on:<mode>:<verb>" for the request that is made.
// A mode says for which users it is: nodes, service accounts, or others.

const nodePrefix = "system:node:"

// Constrained is a user as whom somebody acts by a right that holds for chosen requests.
type Constrained struct {
	user.DefaultInfo
	verb string
}

// ImpersonationConstraint is the verb of the right, as audit events name it.
func (c *Constrained) ImpersonationConstraint() string { return c.verb }

// mode is one of the ways.
type mode struct {
	// name is empty for the old right.
	name string
	// suits tells whether the mode is for this pair; nil is for all.
	suits func(wanted *impersonation, who user.Info) bool
	// any asks for the right to every name, and as a user without particulars: for a right that is not to depend on them.
	any bool
}

var modes = []*mode{
	{name: "associated-node", any: true, suits: func(w *impersonation, who user.Info) bool {
		return w.nameOnly() && w.node() != "" && runsOn(who) == w.node()
	}},
	{name: "arbitrary-node", suits: func(w *impersonation, _ user.Info) bool { return w.nameOnly() && w.node() != "" }},
	{name: "serviceaccount", suits: func(w *impersonation, _ user.Info) bool { return w.nameOnly() && w.account != "" }},
	{name: "user-info", suits: func(w *impersonation, _ user.Info) bool { return w.node() == "" && w.account == "" }},
	{},
}

func (w *impersonation) nameOnly() bool {
	return w.UID == "" && len(w.Groups) == 0 && len(w.Extra) == 0
}

// node is the node whose user is wanted, if it is one's.
func (w *impersonation) node() string {
	name, ok := strings.CutPrefix(w.Name, nodePrefix)
	if !ok || len(validation.NameIsDNSSubdomain(name, false)) > 0 {
		return ""
	}
	return name
}

// runsOn is the node that a service account's token says it is used on.
func runsOn(who user.Info) string {
	if _, _, err := serviceaccount.SplitUsername(who.GetName()); err != nil {
		return ""
	}
	if values := who.GetExtra()[serviceaccount.NodeNameKey]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// try returns the user, or the refusal.
func (m *mode) try(ctx context.Context, t *attempt) (user.Info, error) {
	if m.name == "" {
		if err := allowedAll(ctx, t.authorizer, t.who, checksOf(t.wanted).all()); err != nil {
			return nil, err
		}
		return completeImpersonation(t.wanted), nil
	}
	asking := t.who
	if m.any {
		asking = withoutParticulars(t.who)
	}
	question := t.attributes()
	question.Verb = "impersonate-on:" + m.name + ":" + question.Verb
	if err := allowedAll(ctx, t.authorizer, asking, []authorizer.AttributesRecord{question}); err != nil {
		return nil, err
	}
	if err := m.whom(ctx, &t.wanted, asking, t.authorizer); err != nil {
		return nil, err
	}
	return m.complete(t.wanted), nil
}

// withoutParticulars keeps of a user's extra fields the keys only.
func withoutParticulars(who user.Info) user.Info {
	return &user.DefaultInfo{Name: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: map[string][]string{
		"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(who.GetExtra())),
	}}
}

// whom asks for each part of the wanted user.
func (m *mode) whom(ctx context.Context, w *impersonation, who user.Info, a authorizer.Authorizer) error {
	checks := m.checks(w)
	if err := allowedAll(ctx, a, who, checks.name); err != nil {
		return err
	}
	if attributes, why := forbiddenGroups(w); why != "" {
		return m.never(attributes, who, why)
	}
	if err := allowedMany(ctx, a, who, checks.groups); err != nil {
		return err
	}
	if attributes, why := forbiddenExtra(w); why != "" {
		return m.never(attributes, who, why)
	}
	return allowedMany(ctx, a, who, checks.extra)
}

// many are so many questions that the right to all names is asked for first, as Kubernetes does.
const many = 4

func allowedMany(ctx context.Context, a authorizer.Authorizer, who user.Info, checks []authorizer.AttributesRecord) error {
	if len(checks) >= many {
		every := checks[0]
		every.Name = "*"
		if every.Subresource != "" {
			every.Subresource = "*"
		}
		if allowedAll(ctx, a, who, []authorizer.AttributesRecord{every}) == nil {
			return nil
		}
	}
	return allowedAll(ctx, a, who, checks)
}

// checks are those of old impersonation with the mode's verb; users and groups are of the group authentication.k8s.io here.
func (m *mode) checks(w *impersonation) *impersonationChecks {
	out := checksOf(*w)
	if node := w.node(); node != "" {
		out.name[0].Resource, out.name[0].Name = "nodes", node
		if m.any {
			out.name[0].Name = "*"
		}
	}
	for _, list := range [][]authorizer.AttributesRecord{out.name, out.groups, out.extra} {
		for i := range list {
			list[i].Verb = "impersonate:" + m.name
			list[i].APIGroup = authenticationv1.GroupName
		}
	}
	return out
}

// never is the refusal of what nobody may be in this way.
func (m *mode) never(attributes authorizer.AttributesRecord, who user.Info, why string) error {
	attributes.User, attributes.Verb = who, "impersonate:"+m.name
	attributes.APIGroup, attributes.APIVersion, attributes.ResourceRequest = authenticationv1.GroupName, "v1", true
	return authz.Forbidden(attributes, why)
}

func forbiddenGroups(w *impersonation) (authorizer.AttributesRecord, string) {
	switch {
	case slices.Contains(w.Groups, ""):
		return authorizer.AttributesRecord{Resource: "groups"}, "impersonating the empty string group is not allowed"
	case slices.Contains(w.Groups, user.SystemPrivilegedGroup):
		return authorizer.AttributesRecord{Resource: "groups", Name: user.SystemPrivilegedGroup}, "impersonating the system:masters group is not allowed"
	}
	return authorizer.AttributesRecord{}, ""
}

func forbiddenExtra(w *impersonation) (authorizer.AttributesRecord, string) {
	extra := authorizer.AttributesRecord{Resource: "userextras"}
	for _, key := range slices.Sorted(maps.Keys(w.Extra)) {
		if key == "" {
			return extra, "impersonating the empty string key in extra is not allowed"
		}
		if err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return extra, fmt.Sprintf("impersonating an invalid key in extra is not allowed: %v", err)
		}
		if key != strings.ToLower(key) { // a letter that was escaped in the header
			return extra, fmt.Sprintf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		}
		if slices.Contains(w.Extra[key], "") {
			return extra, "impersonating the empty string value in extra is not allowed"
		}
	}
	return extra, ""
}

func (m *mode) complete(w impersonation) user.Info {
	out := &Constrained{verb: "impersonate:" + m.name}
	if w.node() != "" {
		w.Groups = []string{user.NodesGroup}
	}
	out.DefaultInfo = *completeImpersonation(w)
	return out
}
