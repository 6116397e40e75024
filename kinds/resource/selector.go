package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// features are those of Kubernetes 1.36: consumable capacity is on, attributes with lists of values are off.
var features = dracel.Features{EnableConsumableCapacity: true}

// validateExpression compiles a selector and limits what it may cost at worst.
func validateExpression(expression string, stored bool, path *field.Path) field.ErrorList {
	env := environment.NewExpressions
	if stored {
		env = environment.StoredExpressions
	}
	result := dracel.GetCompiler(features).CompileCELExpression(expression, dracel.Options{EnvType: &env})
	switch {
	case result.Error == nil && result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(path, "too complex, exceeds cost limit")}
	case result.Error == nil:
		return nil
	case result.Error.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, expression, result.Error.Detail)}
	default:
		return field.ErrorList{field.InternalError(path, result.Error)}
	}
}
