package authz

import (
	"context"
	"errors"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Union asks authorizers in order.
type Union struct {
	members []authorizer.Authorizer
}

var (
	_ authorizer.Authorizer   = (*Union)(nil)
	_ authorizer.RuleResolver = (*Union)(nil)
)

// New returns the decision of system:masters, then of members in order.
func New(members ...authorizer.Authorizer) *Union {
	return &Union{members: append([]authorizer.Authorizer{masters{}}, members...)}
}

// Authorize returns the first decision that is not "no opinion". Errors and reasons of those without an opinion come along, so that a
// refusal can say what was not looked at.
func (u *Union) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var errs []error
	var reasons []string
	for _, m := range u.members {
		decision, reason, err := m.Authorize(ctx, a)
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
		switch decision {
		case authorizer.DecisionAllow:
			return decision, reason, nil
		case authorizer.DecisionDeny:
			return decision, reason, err
		}
	}
	return authorizer.DecisionNoOpinion, strings.Join(reasons, "\n"), utilerrors.NewAggregate(errs)
}

// RulesFor joins the rules of all members that can list them.
func (u *Union) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var resources []authorizer.ResourceRuleInfo
	var others []authorizer.NonResourceRuleInfo
	var errs []error
	incomplete := false
	for _, m := range u.members {
		resolver, ok := m.(authorizer.RuleResolver)
		if !ok {
			incomplete = true
			errs = append(errs, errors.New("one of the cluster's authorizers does not list its rules"))
			continue
		}
		r, n, partial, err := resolver.RulesFor(ctx, who, namespace)
		resources, others = append(resources, r...), append(others, n...)
		incomplete = incomplete || partial
		if err != nil {
			errs = append(errs, err)
		}
	}
	return resources, others, incomplete, utilerrors.NewAggregate(errs)
}

// masters allows everything to members of system:masters.
type masters struct{}

func (masters) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if who := a.GetUser(); who != nil && isMaster(who) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (masters) RulesFor(_ context.Context, who user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if !isMaster(who) {
		return nil, nil, false, nil
	}
	star := []string{"*"}
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: star, APIGroups: star, Resources: star}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: star, NonResourceURLs: star}}, false, nil
}

func isMaster(who user.Info) bool {
	return slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}
