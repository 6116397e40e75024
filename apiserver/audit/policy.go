package audit

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	internal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/apis/audit/validation"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
)

// LoadPolicy reads an audit policy (audit.k8s.io/v1 Policy) from a file. Unknown and repeated fields are warnings, as in Kubernetes; anything else
// that is wrong is an error of one line that names the file.
func LoadPolicy(path string) (evaluator audit.PolicyRuleEvaluator, warnings []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("--audit-policy-file: %w", err)
	}
	p, warnings, err := parsePolicy(text)
	if err != nil {
		return nil, nil, fmt.Errorf("--audit-policy-file %s: %w", path, err)
	}
	return policy.NewPolicyRuleEvaluator(p), warnings, nil
}

func parsePolicy(text []byte) (*internal.Policy, []string, error) {
	var warnings []string
	p := &internal.Policy{}
	_, gvk, err := serializer.NewCodecFactory(audit.Scheme, serializer.EnableStrict).UniversalDecoder().Decode(text, nil, p)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			warnings = append(warnings, e.Error())
		}
		p = &internal.Policy{}
		_, gvk, err = audit.Codecs.UniversalDecoder(auditv1.SchemeGroupVersion).Decode(text, nil, p)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("it is no Policy of %s: %w", auditv1.SchemeGroupVersion, err)
	}
	if gvk.GroupVersion() != auditv1.SchemeGroupVersion || gvk.Kind != "Policy" {
		return nil, nil, fmt.Errorf("it is a %s, not a Policy of %s", gvk, auditv1.SchemeGroupVersion)
	}
	if faults := validation.ValidatePolicy(p); len(faults) > 0 {
		return nil, nil, faults.ToAggregate()
	}
	if len(p.Rules) == 0 {
		return nil, nil, fmt.Errorf("it has no rules: with none, nothing would be recorded")
	}
	return p, warnings, nil
}
