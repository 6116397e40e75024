package policy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	celtypes "github.com/google/cel-go/common/types"
	regv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/measure"
)

// validator is a ValidatingAdmissionPolicy, compiled when first needed.
type validator struct {
	policy     *regv1.ValidatingAdmissionPolicy
	choice     *matching.Choice
	conditions *matching.Conditions
	compiler   *matching.Compiler
	measure    *measure.Admission
	once       sync.Once
	// Each message is evaluated only if its validation fails; nil where there is no expression.
	validations plugincel.ConditionEvaluator
	messages    []plugincel.ConditionEvaluator
	annotations plugincel.ConditionEvaluator
	err         error
}

func newValidator(p *regv1.ValidatingAdmissionPolicy, cfg Config) *validator {
	return &validator{policy: p, choice: choiceOf(p.Spec.MatchConstraints, false), compiler: cfg.Compiler, measure: cfg.Measure,
		conditions: matching.NewConditions(p.Spec.MatchConditions, p.Spec.ParamKind != nil, cfg.Compiler)}
}

// compile uses the shared compiler where it can: one with variables is the policy's own.
func (v *validator) compile() {
	spec := &v.policy.Spec
	compile := v.compiler.Conditions
	if len(spec.Variables) > 0 {
		c, err := composed(spec.Variables, spec.ParamKind != nil)
		if err != nil {
			v.err = err
			return
		}
		compile = func(e []plugincel.ExpressionAccessor, d plugincel.OptionalVariableDeclarations) plugincel.ConditionEvaluator {
			return c.CompileCondition(e, d, environment.StoredExpressions)
		}
	}
	plain := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil}
	full := plain
	full.HasAuthorizer = true
	validations := make([]plugincel.ExpressionAccessor, len(spec.Validations))
	v.messages = make([]plugincel.ConditionEvaluator, len(spec.Validations))
	for i := range spec.Validations {
		validations[i] = &expression{text: spec.Validations[i].Expression, as: asBool}
		if text := spec.Validations[i].MessageExpression; text != "" {
			v.messages[i] = compile([]plugincel.ExpressionAccessor{&expression{text: text, as: asString}}, plain)
		}
	}
	annotations := make([]plugincel.ExpressionAccessor, len(spec.AuditAnnotations))
	for i := range spec.AuditAnnotations {
		annotations[i] = &expression{text: spec.AuditAnnotations[i].ValueExpression, as: asOptionalString}
	}
	v.validations, v.annotations = compile(validations, full), compile(annotations, full)
}

// failsOpen says that what goes wrong is passed over.
func (v *validator) failsOpen() bool {
	return ptr.Deref(v.policy.Spec.FailurePolicy, regv1.Fail) == regv1.Ignore
}

// finding is a validation that failed.
type finding struct {
	index   int
	message string
	reason  metav1.StatusReason
	err     error // what kept the validation from being evaluated, if anything did
}

// note is an audit annotation.
type note struct{ key, value string }

// evaluate decides one request with one parameter.
func (v *validator) evaluate(ctx context.Context, in *input) (findings []finding, notes []note, err error) {
	if v.conditions != nil {
		began := time.Now()
		ok, err := v.conditions.Match(ctx, in.request, in.target, in.params)
		v.measure.Conditions(measure.Validate, measure.OfPolicy, v.policy.Name, in.request.Operation, ok, err, time.Since(began))
		if err != nil || !ok {
			return nil, nil, err
		}
	}
	v.once.Do(v.compile)
	if v.err != nil {
		return nil, nil, v.err
	}
	results, budget, err := in.evaluate(ctx, v.validations, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, nil, err
	}
	for i := range results {
		if f := v.judge(ctx, in, i, &results[i], budget); f != nil {
			findings = append(findings, *f)
		}
	}
	notes, failed, err := v.annotate(ctx, in)
	return append(findings, failed...), notes, err
}

func (v *validator) judge(ctx context.Context, in *input, i int, result *plugincel.EvaluationResult, budget int64) *finding {
	switch {
	case result.Error != nil && v.failsOpen():
		return nil
	case result.Error != nil:
		return &finding{index: i, message: result.Error.Error(), err: result.Error}
	case result.EvalResult == celtypes.True:
		return nil
	}
	validation := &v.policy.Spec.Validations[i]
	message, err := v.message(ctx, in, i, budget)
	if err != nil {
		if v.failsOpen() {
			return nil
		}
		return &finding{index: i, message: "failed messageExpression: " + err.Error()}
	}
	if message == "" {
		message = strings.TrimSpace(validation.Message)
	}
	if message == "" {
		message = "failed expression: " + strings.TrimSpace(validation.Expression)
	}
	return &finding{index: i, message: message, reason: ptr.Deref(validation.Reason, metav1.StatusReasonInvalid)}
}

// message evaluates a validation's messageExpression; one that fails or gives no single line leaves the message to the next in order. An error means that
// the budget is spent.
func (v *validator) message(ctx context.Context, in *input, i int, budget int64) (string, error) {
	if v.messages[i] == nil {
		return "", nil
	}
	results, _, err := in.evaluate(ctx, v.messages[i], budget)
	if err != nil {
		return "", err
	}
	if results[0].Error != nil || results[0].EvalResult == nil {
		return "", nil
	}
	text, ok := results[0].EvalResult.Value().(string)
	text = strings.TrimSpace(text)
	if !ok || len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return "", nil
	}
	return text, nil
}

// annotate evaluates the audit annotations; those that fail count as failed validations unless the policy fails open.
func (v *validator) annotate(ctx context.Context, in *input) (notes []note, failed []finding, err error) {
	if len(v.policy.Spec.AuditAnnotations) == 0 {
		return nil, nil, nil
	}
	results, _, err := in.evaluate(ctx, v.annotations, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, nil, err
	}
	for i := range results {
		a := &v.policy.Spec.AuditAnnotations[i]
		switch {
		case results[i].Error != nil && v.failsOpen():
		case results[i].Error != nil:
			failed = append(failed, finding{index: annotationFailure, message: results[i].Error.Error()})
		default:
			switch value := results[i].EvalResult.Value().(type) {
			case string:
				if text := strings.TrimSpace(value); text != "" {
					notes = append(notes, note{a.Key, text[:min(len(text), maxNote)]})
				}
			default: // null, by the expression's type
			}
		}
	}
	return notes, failed, nil
}

// annotationFailure is the index of a finding that is an audit annotation's: it refuses the request whatever the binding's actions are.
const annotationFailure = -1

// maxNote bounds the value of one audit annotation, in bytes, as Kubernetes.
const maxNote = 10 << 10

func (v *validator) configError(b *binding, err error) string {
	if b == nil {
		return fmt.Sprintf("failed to configure policy: %v", err)
	}
	return fmt.Sprintf("failed to configure binding: %v", err)
}
