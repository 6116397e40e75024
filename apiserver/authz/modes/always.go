package modes

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// always decides the same for everybody but system:masters, who are asked about before. For tests.
type always struct{ decision authorizer.Decision }

func (a always) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.decision == authorizer.DecisionDeny {
		return a.decision, "Everything is forbidden.", nil
	}
	return a.decision, "", nil
}

func (a always) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if a.decision == authorizer.DecisionDeny {
		return nil, nil, false, nil
	}
	all := []string{"*"}
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: all, APIGroups: all, Resources: all}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: all, NonResourceURLs: all}}, false, nil
}
