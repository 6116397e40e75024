package nodeexpr

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apiserver/pkg/cel/environment"
)

// MaxCost is what one expression with the variables that it uses may cost, estimated and real.
const MaxCost = 10_000

// Want is the type that an expression must have.
type Want uint8

// The wants.
const (
	Bool     Want = iota
	Number        // int, uint or double
	Anything      // of variables
)

// Expression is a compiled expression.
type Expression struct {
	Text string
	// Requested tells that it reads what pods request of the node, which changes with every pod that comes or goes.
	Requested bool
	// Metrics tells that it reads the node's numbers.
	Metrics bool

	program   cel.Program
	cost      uint64 // at worst, without those of its variables
	variables []*variable
}

// Cost is what the expression may cost at worst.
func (e *Expression) Cost() uint64 {
	total := e.cost
	for _, v := range e.variables {
		if total += v.expression.Cost(); total < v.expression.Cost() {
			return math.MaxUint64
		}
	}
	return total
}

type variable struct {
	name       string // with its prefix
	expression *Expression
}

const variablePrefix = "variables."

// Compiler compiles the expressions of one policy. Make one with NewCompiler.
type Compiler struct {
	env       *cel.Env
	variables map[string]*variable
}

// NewCompiler makes a compiler. stored says that the expressions were accepted before, maybe by a version that knew more functions.
func NewCompiler(stored bool) (*Compiler, error) {
	set, err := base()
	if err != nil {
		return nil, fmt.Errorf("environment of expressions: %w", err)
	}
	mode := environment.NewExpressions
	if stored {
		mode = environment.StoredExpressions
	}
	env, err := set.Env(mode)
	if err != nil {
		return nil, fmt.Errorf("environment of expressions: %w", err)
	}
	return &Compiler{env: env, variables: map[string]*variable{}}, nil
}

// Variable compiles an expression that later ones see as variables.NAME.
func (c *Compiler) Variable(name, text string) (*Expression, error) {
	e, kind, err := c.compile(text, Anything)
	if err != nil {
		return nil, err
	}
	full := variablePrefix + name
	if c.env, err = c.env.Extend(cel.Variable(full, kind)); err != nil {
		return nil, fmt.Errorf("declaring variable %s: %w", name, err)
	}
	c.variables[full] = &variable{full, e}
	return e, nil
}

// Compile compiles an expression. The error of a wrong one says what is wrong, where (line and column) and what was expected.
func (c *Compiler) Compile(text string, want Want) (*Expression, error) {
	e, _, err := c.compile(text, want)
	return e, err
}

func (c *Compiler) compile(text string, want Want) (*Expression, *cel.Type, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, errors.New("must not be empty")
	}
	checked, issues := c.env.Compile(text)
	if issues != nil && issues.Err() != nil {
		return nil, nil, errors.New("compilation failed: " + issues.String())
	}
	kind := checked.OutputType()
	if !want.takes(kind) {
		return nil, nil, fmt.Errorf("must give %s, not %s", want, kind)
	}
	e := &Expression{Text: text}
	c.look(e, checked)
	estimate, err := c.env.EstimateCost(checked, newEstimator())
	if err != nil {
		return nil, nil, fmt.Errorf("cost not estimated: %w", err)
	}
	e.cost = estimate.Max
	if cost := e.Cost(); cost > MaxCost {
		return nil, nil, fmt.Errorf("may cost %s at worst; the limit is %d: look at single keys rather than at whole maps, and at texts with startsWith rather than with matches", amount(cost), MaxCost)
	}
	if e.program, err = c.env.Program(checked, cel.CostLimit(MaxCost)); err != nil {
		return nil, nil, fmt.Errorf("cannot be run: %w", err)
	}
	return e, kind, nil
}

func amount(cost uint64) string {
	if cost == math.MaxUint64 {
		return "any number of units"
	}
	return fmt.Sprintf("%d units", cost)
}

func (w Want) takes(t *cel.Type) bool {
	switch w {
	case Bool:
		return t.IsExactType(cel.BoolType)
	case Number:
		return t.IsExactType(cel.IntType) || t.IsExactType(cel.UintType) || t.IsExactType(cel.DoubleType)
	}
	return true
}

// String words what is wanted.
func (w Want) String() string {
	return [...]string{Bool: "a bool", Number: "a number (int or double)", Anything: "any value"}[w]
}

// look finds out what e reads.
func (c *Compiler) look(e *Expression, checked *cel.Ast) {
	seen := map[string]bool{}
	root := ast.NavigateAST(checked.NativeRep())
	for _, n := range ast.MatchDescendants(root, ast.AllMatcher()) {
		name, ok := identifier(n)
		if !ok {
			continue
		}
		switch name {
		case "node":
			e.Requested = e.Requested || !readsOtherThanRequested(n)
		case "metrics":
			e.Metrics = true
		}
		if v := c.variables[name]; v != nil && !seen[name] {
			seen[name] = true
			e.variables = append(e.variables, v)
			e.Requested, e.Metrics = e.Requested || v.expression.Requested, e.Metrics || v.expression.Metrics
		}
	}
}

// identifier is the name that n reads: of an identifier, or of a variable, which the checker may leave as a selection.
func identifier(n ast.NavigableExpr) (string, bool) {
	switch n.Kind() {
	case ast.IdentKind:
		return strings.TrimPrefix(n.AsIdent(), "."), true
	case ast.SelectKind:
		if s := n.AsSelect(); s.Operand().Kind() == ast.IdentKind && s.Operand().AsIdent()+"." == variablePrefix {
			return variablePrefix + s.FieldName(), true
		}
	}
	return "", false
}

// readsOtherThanRequested tells whether an identifier `node` is only the way to a field that pods don't change.
func readsOtherThanRequested(n ast.NavigableExpr) bool {
	parent, ok := n.Parent()
	return ok && parent.Kind() == ast.SelectKind && parent.AsSelect().FieldName() != "requested"
}
