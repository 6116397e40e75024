package policy

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	regv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/yare-project/yare/apiserver/matching"
)

// expression is CEL text, the types that its value may have, and the name of the variable that it defines, if it does.
type expression struct {
	text string
	name string
	as   []*cel.Type
}

func (e *expression) GetExpression() string    { return e.text }
func (e *expression) ReturnTypes() []*cel.Type { return e.as }
func (e *expression) GetName() string          { return e.name }

var (
	asBool           = []*cel.Type{cel.BoolType}
	asString         = []*cel.Type{cel.StringType}
	asOptionalString = []*cel.Type{cel.StringType, cel.NullType}
	asAnything       = []*cel.Type{cel.AnyType, cel.DynType}
	asObject         = []*cel.Type{cel.ObjectType("Object")}
	asPatches        = []*cel.Type{cel.ListType(cel.ObjectType("JSONPatch"))}
)

// composed makes a compiler whose expressions see variables.
func composed(variables []regv1.Variable, params bool) (*plugincel.CompositedCompiler, error) {
	c, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, fmt.Errorf("failed to initialize CEL compiler: %w", err)
	}
	declared := plugincel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}
	for i := range variables {
		// What fails to compile fails again, with its reason, when an expression uses it.
		c.CompileAndStoreVariable(&expression{text: variables[i].Expression, name: variables[i].Name, as: asAnything}, declared, environment.StoredExpressions)
	}
	return c, nil
}

// namespaceOf is the Namespace that expressions see, without the fields that they do not; nil for objects of the cluster.
func namespaceOf(ctx context.Context, r *matching.Request) (*corev1.Namespace, error) {
	if r.Ref.Namespace == "" || r.Ref.Group == "" && r.Ref.Resource == "namespaces" {
		return nil, nil
	}
	ns, err := r.NamespaceObject(ctx)
	if err != nil {
		return nil, err
	}
	return plugincel.CreateNamespaceObject(ns), nil
}

// input is what one evaluation is about.
type input struct {
	request   *matching.Request
	target    matching.Target
	params    runtime.Object
	namespace *corev1.Namespace
}

func (in *input) bindings() plugincel.OptionalVariableBindings {
	return plugincel.OptionalVariableBindings{VersionedParams: in.params, Authorizer: in.request}
}

func (in *input) evaluate(ctx context.Context, e plugincel.ConditionEvaluator, budget int64) ([]plugincel.EvaluationResult, int64, error) {
	attributes, err := in.request.Evaluated(in.target)
	if err != nil {
		return nil, 0, err
	}
	return e.ForInput(ctx, attributes, in.request.Review(in.target), in.bindings(), in.namespace, budget)
}
