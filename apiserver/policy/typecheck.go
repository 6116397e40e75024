package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	regv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/yare-project/yare/kind"
)

// maxChecked bounds the kinds that one rule's expressions are checked against, as Kubernetes.
const maxChecked = 10

// TypeChecker finds what in a policy's expressions cannot fit the kinds that the policy chooses. It decides nothing: an expression that is wrong for one kind
// may be right for the next.
type TypeChecker struct {
	Kinds func() ([]*kind.Kind, uint64)
	// Schema returns a kind's schema with all references resolved; nil if it has none.
	Schema func(gvk schema.GroupVersionKind) *spec.Schema
}

// Check returns the warnings for a policy's status.
func (c *TypeChecker) Check(p *regv1.ValidatingAdmissionPolicy) []regv1.ExpressionWarning {
	envs := c.environments(p)
	var out []regv1.ExpressionWarning
	check := func(text string, at *field.Path) {
		var found []string
		for _, e := range envs {
			if issue := e.check(text); issue != "" {
				found = append(found, fmt.Sprintf("%v: %s\n", e.gvk, issue))
			}
		}
		if text != "" && len(found) > 0 {
			out = append(out, regv1.ExpressionWarning{FieldRef: at.String(), Warning: strings.Join(found, "\n")})
		}
	}
	for i, v := range p.Spec.Validations {
		at := field.NewPath("spec", "validations").Index(i)
		check(v.Expression, at.Child("expression"))
		check(v.MessageExpression, at.Child("messageExpression"))
	}
	return out
}

// checked is the environment of expressions about one kind.
type checked struct {
	gvk schema.GroupVersionKind
	env *cel.Env
}

func (e *checked) check(text string) string {
	if _, issues := e.env.Compile(text); issues != nil && issues.Err() != nil {
		return issues.String()
	}
	return ""
}

func (c *TypeChecker) environments(p *regv1.ValidatingAdmissionPolicy) []*checked {
	var params *apiservercel.DeclType
	if k := p.Spec.ParamKind; k != nil {
		params = c.declared(schema.FromAPIVersionAndKind(k.APIVersion, k.Kind), "params")
	}
	var out []*checked
	for i, gvk := range c.chosen(p.Spec.MatchConstraints) {
		object := c.declared(gvk, fmt.Sprintf("object%d", i))
		if object == nil {
			continue
		}
		if env, err := typedEnv(object, params, p.Spec.ParamKind != nil, p.Spec.Variables); err == nil {
			out = append(out, &checked{gvk, env})
		}
	}
	return out
}

// declared is a kind's schema as a CEL type, under a name of its own.
func (c *TypeChecker) declared(gvk schema.GroupVersionKind, name string) *apiservercel.DeclType {
	s := c.Schema(gvk)
	if s == nil {
		return nil
	}
	t := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if t == nil {
		return nil
	}
	return t.MaybeAssignTypeName(gvk.Kind + "." + name)
}

// chosen are the kinds of the resources that the rules name without wildcards.
func (c *TypeChecker) chosen(m *regv1.MatchResources) []schema.GroupVersionKind {
	if m == nil {
		return nil
	}
	by := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	kinds, _ := c.Kinds()
	for _, k := range kinds {
		for i := range k.Versions {
			v := &k.Versions[i]
			by[v.GroupVersion().WithResource(v.Names.Plural)] = v.GroupVersionKind
		}
	}
	found := map[schema.GroupVersionKind]bool{}
	for _, rule := range m.ResourceRules {
		chosenBy(&rule.Rule, by, found)
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
}

func chosenBy(rule *regv1.Rule, by map[schema.GroupVersionResource]schema.GroupVersionKind, found map[schema.GroupVersionKind]bool) {
	count := 0
	for _, group := range rule.APIGroups {
		for _, v := range rule.APIVersions {
			for _, resource := range rule.Resources { // wildcards and subresources are no key of by
				gvk, ok := by[schema.GroupVersionResource{Group: group, Version: v, Resource: resource}]
				if !ok || count == maxChecked {
					continue
				}
				found[gvk] = true
				count++
			}
		}
	}
}

// typedEnv declares what a policy's expressions see, typed where a schema is known.
func typedEnv(object, params *apiservercel.DeclType, hasParams bool, variables []regv1.Variable) (*cel.Env, error) {
	request, namespace := plugincel.BuildRequestType(), plugincel.BuildNamespaceType()
	fields := map[string]*apiservercel.DeclField{}
	composed := apiservercel.NewObjectType("kubernetes.variables", fields)
	types := []*apiservercel.DeclType{request, namespace, object, composed}
	declare := func(name string, t *apiservercel.DeclType) cel.EnvOption {
		if t == nil {
			return cel.Variable(name, cel.DynType)
		}
		return cel.Variable(name, t.CelType())
	}
	options := []cel.EnvOption{declare("object", object), declare("oldObject", object), declare("request", request), declare("namespaceObject", namespace),
		declare("variables", composed), cel.Variable("authorizer", library.AuthorizerType), cel.Variable("authorizer.requestResource", library.ResourceCheckType)}
	if hasParams {
		options = append(options, declare("params", params))
		if params != nil {
			types = append(types, params)
		}
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options, DeclTypes: types})
	if err != nil {
		return nil, err
	}
	env, err := set.Env(environment.StoredExpressions)
	if err != nil {
		return nil, err
	}
	for _, v := range variables {
		t := apiservercel.DynType
		if ast, issues := env.Compile(v.Expression); issues == nil || issues.Err() == nil {
			t = declTypeOf(ast.OutputType())
		}
		fields[v.Name] = apiservercel.NewDeclField(v.Name, t, true, nil, nil)
	}
	return env, nil
}

// scalars are the types of variables that later expressions are checked against; of any other type nothing is known.
var scalars = map[string]*apiservercel.DeclType{
	cel.BoolType.String(): apiservercel.BoolType, cel.BytesType.String(): apiservercel.BytesType, cel.DoubleType.String(): apiservercel.DoubleType,
	cel.DurationType.String(): apiservercel.DurationType, cel.IntType.String(): apiservercel.IntType, cel.StringType.String(): apiservercel.StringType,
	cel.TimestampType.String(): apiservercel.TimestampType, cel.UintType.String(): apiservercel.UintType,
}

func declTypeOf(t *cel.Type) *apiservercel.DeclType {
	if known := scalars[t.String()]; known != nil {
		return known
	}
	switch parameters := t.Parameters(); {
	case t.Kind() == cel.ListKind && len(parameters) == 1:
		return apiservercel.NewListType(declTypeOf(parameters[0]), -1)
	case t.Kind() == cel.MapKind && len(parameters) == 2:
		return apiservercel.NewMapType(declTypeOf(parameters[0]), declTypeOf(parameters[1]), -1)
	}
	return apiservercel.DynType
}
