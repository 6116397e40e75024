package audit

import (
	"testing"

	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// FuzzPolicy reads policy files: one that is taken has rules, and can be asked.
func FuzzPolicy(f *testing.F) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for _, s := range []string{head + "rules: [{level: Metadata}]", head + "omitStages: [RequestReceived]\nrules:\n- level: Request\n  users: [a]\n  verbs: [get]\n  resources: [{group: '', resources: [pods/*], resourceNames: [x]}]\n- level: None\n  nonResourceURLs: [/a*]",
		head, head + "rules: [{level: X}]", "kind: Policy", "{}", head + "rules: [{level: Metadata}]\nrules: []", head + "a: &a [*a]", `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"None","userGroups":["g"],"namespaces":["n"]}]}`} {
		f.Add([]byte(s))
	}
	questions := []authorizer.AttributesRecord{{User: &user.DefaultInfo{Name: "a", Groups: []string{"g"}}, Verb: "get", Resource: "pods", Namespace: "n", Name: "x", ResourceRequest: true}, {User: &user.DefaultInfo{}, Verb: "get", Path: "/a/b"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, _, err := parsePolicy(text)
		if err != nil {
			return
		}
		if len(p.Rules) == 0 {
			t.Errorf("%q was taken without a rule", text)
		}
		evaluator := policy.NewPolicyRuleEvaluator(p)
		for _, q := range questions {
			evaluator.EvaluatePolicyRule(&q)
		}
	})
}
