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
	name string
	// suits tells whether the mode is for this pair.
	suits func(wanted *impersonation, who user.Info) bool
	// any asks for the right to every name, and as a user without particulars: for a right that is not to depend on them.
	any bool
}

var modes = []mode{
	{name: "associated-node", any: true, suits: func(w *impersonation, who user.Info) bool {
		return w.nameOnly() && w.node() != "" && runsOn(who) == w.node()
	}},
	{name: "arbitrary-node", suits: func(w *impersonation, _ user.Info) bool { return w.nameOnly() && w.node() != "" }},
	{name: "serviceaccount", suits: func(w *impersonation, _ user.Info) bool { return w.nameOnly() && w.account != "" }},
	{name: "user-info", suits: func(w *impersonation, _ user.Info) bool { return w.node() == "" && w.account == "" }},
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

// impersonateConstrained returns nil if no mode allows it. The error, then, is of a mode in which the request is allowed and the user is not.
func impersonateConstrained(ctx context.Context, w impersonation, request Question, who user.Info, a authorizer.Authorizer) (user.Info, error) {
	var refusal error
	var on authorizer.AttributesRecord
	for i := range modes {
		m := &modes[i]
		if !m.suits(&w, who) {
			continue
		}
		if on.User == nil {
			on = request.Attributes()
			on.User = who
		}
		asking := who
		if m.any {
			asking = withoutParticulars(who)
		}
		question := on
		question.Verb = "impersonate-on:" + m.name + ":" + on.Verb
		if allowedAll(ctx, a, asking, []authorizer.AttributesRecord{question}) != nil {
			continue
		}
		err := m.whom(ctx, &w, asking, a)
		if err == nil {
			return m.complete(w), nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return nil, refusal
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
	if attributes, why := forbiddenPart(w, checks[0]); why != "" {
		attributes.User = who
		return authz.Forbidden(attributes, why)
	}
	return allowedAll(ctx, a, who, checks)
}

// checks are those of old impersonation with the mode's verb; users and groups are of the group authentication.k8s.io here.
func (m *mode) checks(w *impersonation) []authorizer.AttributesRecord {
	out := impersonationChecks(*w)
	if node := w.node(); node != "" {
		out[0].Resource, out[0].Name = "nodes", node
		if m.any {
			out[0].Name = "*"
		}
	}
	for i := range out {
		out[i].Verb = "impersonate:" + m.name
		out[i].APIGroup = authenticationv1.GroupName
	}
	return out
}

// forbiddenPart finds what nobody may be in this way.
func forbiddenPart(w *impersonation, template authorizer.AttributesRecord) (authorizer.AttributesRecord, string) {
	template.Namespace, template.Name = "", ""
	template.Resource = "groups"
	switch {
	case slices.Contains(w.Groups, ""):
		return template, "impersonating the empty string group is not allowed"
	case slices.Contains(w.Groups, user.SystemPrivilegedGroup):
		template.Name = user.SystemPrivilegedGroup
		return template, "impersonating the system:masters group is not allowed"
	}
	template.Resource = "userextras"
	for _, key := range slices.Sorted(maps.Keys(w.Extra)) {
		if err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return template, fmt.Sprintf("impersonating an invalid key in extra is not allowed: %v", err)
		}
		if slices.Contains(w.Extra[key], "") {
			return template, "impersonating the empty string value in extra is not allowed"
		}
	}
	return template, ""
}

func (m *mode) complete(w impersonation) user.Info {
	out := &Constrained{verb: "impersonate:" + m.name}
	if w.node() != "" {
		w.Groups = []string{user.NodesGroup}
	}
	out.DefaultInfo = *completeImpersonation(w)
	return out
}
