package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/yare-project/yare/kinds/rule"
)

// expression is CEL text with the types that its value may have.
type expression struct {
	name string // of a variable
	text string
	as   []*celgo.Type
}

func (e *expression) GetExpression() string      { return e.text }
func (e *expression) ReturnTypes() []*celgo.Type { return e.as }
func (e *expression) GetName() string            { return e.name }

var (
	asBool         = []*celgo.Type{celgo.BoolType}
	asString       = []*celgo.Type{celgo.StringType}
	asOptionalText = []*celgo.Type{celgo.StringType, celgo.NullType}
	asAny          = []*celgo.Type{celgo.AnyType, celgo.DynType}
	asObject       = []*celgo.Type{types.NewObjectType("Object")}
	asPatch        = []*celgo.Type{celgo.ListType(types.NewObjectType("JSONPatch"))}
)

// plainCompiler is for expressions without variables. It is made on first use: an environment takes milliseconds and megabytes.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// expressions checks the expressions of one policy: later ones see the variables that were declared before.
type expressions struct {
	params bool
	// known are expressions of the stored object: they are compiled as what is stored is, so that an upgrade never breaks an object.
	known    map[string]bool
	compiler plugincel.Compiler
	composed *plugincel.CompositedCompiler
}

func newExpressions(params, composed bool, known map[string]bool) (*expressions, error) {
	e := &expressions{params: params, known: known}
	if !composed {
		e.compiler = plainCompiler()
		return e, nil
	}
	c, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	e.compiler, e.composed = c, c
	return e, err
}

func (e *expressions) mode(text string) environment.Type {
	if e.known[text] {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

// check compiles an expression that must not be blank.
func (e *expressions) check(x *expression, authorizer, patch bool, missing string, path *field.Path) field.ErrorList {
	if strings.TrimSpace(x.text) == "" {
		return field.ErrorList{field.Required(path, missing)}
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: e.params, HasAuthorizer: authorizer, HasPatchTypes: patch}
	result := e.compiler.CompileCELExpression(x, options, e.mode(x.text))
	return compileError(x.text, result.Error, path)
}

func compileError(text string, err *apiservercel.Error, path *field.Path) field.ErrorList {
	switch {
	case err == nil:
		return nil
	case err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, text, err.Detail)}
	}
	return field.ErrorList{field.InternalError(path, err)}
}

var (
	identifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]*$")
	reserved   = strings.Fields("true false null in as break const continue else for function if import let loop package namespace return var void while")
)

func (e *expressions) variable(v *admissionv1.Variable, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case strings.TrimSpace(v.Name) == "":
		errs = append(errs, field.Required(path.Child("name"), "name is not specified"))
	case !identifier.MatchString(v.Name) || slices.Contains(reserved, v.Name):
		errs = append(errs, field.Invalid(path.Child("name"), v.Name, "must be a valid CEL identifier"))
	}
	if strings.TrimSpace(v.Expression) == "" {
		return append(errs, field.Required(path.Child("expression"), "expression is not specified"))
	}
	if len(errs) > 0 {
		return errs
	}
	result := e.composed.CompileAndStoreVariable(&expression{name: v.Name, text: v.Expression, as: asAny},
		plugincel.OptionalVariableDeclarations{HasParams: e.params, HasAuthorizer: true}, e.mode(v.Expression))
	return compileError(v.Expression, result.Error, path.Child("expression"))
}

// maxConditions bounds a list of match conditions.
const maxConditions = 64

func validateConditions(conditions []admissionv1.MatchCondition, params bool, known map[string]bool, path *field.Path) field.ErrorList {
	if len(conditions) == 0 {
		return nil
	}
	var errs field.ErrorList
	if len(conditions) > maxConditions {
		errs = append(errs, field.TooMany(path, len(conditions), maxConditions))
	}
	e, err := newExpressions(params, false, known)
	if err != nil {
		return append(errs, field.InternalError(path, err))
	}
	seen := map[string]bool{}
	for i, c := range conditions {
		at := path.Index(i)
		errs = append(errs, e.check(&expression{text: c.Expression, as: asBool}, true, false, "", at.Child("expression"))...)
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, rule.QualifiedName(c.Name, at.Child("name"))...)
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
	}
	return errs
}

// annotationKey is the whole key under which a policy's audit annotation is written.
func annotationKey(policy, key string) string { return fmt.Sprintf("%s/%s", policy, key) }
