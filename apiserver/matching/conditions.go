package matching

import (
	"context"
	"errors"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	regv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Compiler compiles expressions over requests. Its environment takes milliseconds and megabytes, so it is made when first needed; the zero value is ready.
type Compiler struct {
	once     sync.Once
	compiler plugincel.ConditionCompiler
}

// Conditions compiles expressions.
func (c *Compiler) Conditions(expressions []plugincel.ExpressionAccessor, declared plugincel.OptionalVariableDeclarations) plugincel.ConditionEvaluator {
	c.once.Do(func() {
		c.compiler = plugincel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	})
	return c.compiler.CompileCondition(expressions, declared, environment.StoredExpressions)
}

// Condition is an expression that must be true.
type Condition struct{ Name, Expression string }

// GetExpression implements plugincel.ExpressionAccessor.
func (c *Condition) GetExpression() string { return c.Expression }

// ReturnTypes implements plugincel.ExpressionAccessor.
func (c *Condition) ReturnTypes() []*cel.Type { return []*cel.Type{cel.BoolType} }

// Conditions are a webhook's or policy's match conditions: all must be true.
type Conditions struct {
	conditions []regv1.MatchCondition
	params     bool
	compiler   *Compiler
	once       sync.Once
	evaluator  plugincel.ConditionEvaluator
}

// NewConditions makes Conditions, which are compiled when first asked. It is nil without any.
func NewConditions(conditions []regv1.MatchCondition, params bool, compiler *Compiler) *Conditions {
	if len(conditions) == 0 {
		return nil
	}
	return &Conditions{conditions: conditions, params: params, compiler: compiler}
}

// Match tells whether all conditions are true. One that is false decides, whatever becomes of the others; else the errors of those that fail are joined.
func (c *Conditions) Match(ctx context.Context, r *Request, t Target, params runtime.Object) (bool, error) {
	if c == nil {
		return true, nil
	}
	c.once.Do(c.compile)
	attributes, err := r.Evaluated(t)
	if err != nil {
		return false, err
	}
	// namespaceObject is null in match conditions, as in Kubernetes.
	results, _, err := c.evaluator.ForInput(ctx, attributes, r.Review(t), plugincel.OptionalVariableBindings{VersionedParams: params, Authorizer: r}, nil,
		celconfig.RuntimeCELCostBudgetMatchConditions)
	if err != nil {
		return false, err
	}
	var errs []error
	for i := range results {
		switch {
		case results[i].Error != nil:
			errs = append(errs, results[i].Error)
		case results[i].EvalResult == celtypes.False:
			return false, nil
		}
	}
	if len(errs) > 0 {
		return false, errors.Join(errs...)
	}
	return true, nil
}

func (c *Conditions) compile() {
	expressions := make([]plugincel.ExpressionAccessor, len(c.conditions))
	for i, condition := range c.conditions {
		expressions[i] = &Condition{Name: condition.Name, Expression: condition.Expression}
	}
	c.evaluator = c.compiler.Conditions(expressions, plugincel.OptionalVariableDeclarations{HasParams: c.params, HasAuthorizer: true})
}
