package nodeexpr

import (
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Pod is what expressions see of a pod.
type Pod struct {
	Namespace, SchedulerName          string
	Labels, Annotations, NodeSelector map[string]string
	Priority                          int64
	Requests                          map[string]float64 // cores, bytes or units
	Images                            []string
}

// Node is what expressions see of a node.
type Node struct {
	Name                            string
	Labels, Annotations, Conditions map[string]string
	Allocatable                     map[string]float64 // cores, bytes or units
	Requested                       map[string]float64
	Unschedulable                   bool
}

// Input is what one evaluation is about. Functions are called at most once, for what an expression reads. It remembers variables: make one for each pod and node.
type Input struct {
	Pod     func() map[string]any
	Node    func() map[string]any
	Metrics func() map[string]float64

	pod, node map[string]any
	metrics   map[string]float64
	variables map[*variable]any
}

// Value is p as expressions see it.
func (p *Pod) Value() map[string]any {
	return map[string]any{"namespace": p.Namespace, "labels": filled(p.Labels), "annotations": filled(p.Annotations), "nodeSelector": filled(p.NodeSelector),
		"priority": p.Priority, "schedulerName": p.SchedulerName, "requests": filled(p.Requests), "images": p.Images}
}

// Value is n as expressions see it.
func (n *Node) Value() map[string]any {
	return map[string]any{"name": n.Name, "labels": filled(n.Labels), "annotations": filled(n.Annotations), "conditions": filled(n.Conditions),
		"allocatable": filled(n.Allocatable), "requested": filled(n.Requested), "unschedulable": n.Unschedulable}
}

// filled makes an empty map of a nil one: an expression may count its keys.
func filled[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// activation resolves the names in one expression.
type activation struct {
	e  *Expression
	in *Input
}

// Parent implements interpreter.Activation.
func (activation) Parent() interpreter.Activation { return nil }

// ResolveName implements interpreter.Activation.
func (a activation) ResolveName(name string) (any, bool) {
	in := a.in
	switch name {
	case "pod":
		if in.pod == nil {
			in.pod = in.Pod()
		}
		return in.pod, true
	case "node":
		if in.node == nil {
			in.node = in.Node()
		}
		return in.node, true
	case "metrics":
		if in.metrics == nil {
			in.metrics = filled(in.Metrics())
		}
		return in.metrics, true
	}
	for _, v := range a.e.variables {
		if v.name == name {
			return in.variable(v), true
		}
	}
	return nil, false
}

func (in *Input) variable(v *variable) any {
	if value, ok := in.variables[v]; ok {
		return value
	}
	value, err := v.expression.evaluate(in)
	if err != nil {
		value = types.NewErr("variable %s: %v", v.name[len(variablePrefix):], err)
	}
	if in.variables == nil {
		in.variables = map[*variable]any{}
	}
	in.variables[v] = value
	return value
}

func (e *Expression) evaluate(in *Input) (ref.Val, error) {
	value, _, err := e.program.Eval(activation{e, in})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Bool evaluates an expression that wants Bool.
func (e *Expression) Bool(in *Input) (bool, error) {
	value, err := e.evaluate(in)
	if err != nil {
		return false, err
	}
	b, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("gives %s, not a bool", value.Type().TypeName())
	}
	return bool(b), nil
}

// Number evaluates an expression that wants Number. What is no finite number is an error.
func (e *Expression) Number(in *Input) (float64, error) {
	value, err := e.evaluate(in)
	if err != nil {
		return 0, err
	}
	var x float64
	switch n := value.(type) {
	case types.Int:
		x = float64(n)
	case types.Uint:
		x = float64(n)
	case types.Double:
		x = float64(n)
	default:
		return 0, fmt.Errorf("gives %s, not a number", value.Type().TypeName())
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, errors.New("gives no finite number")
	}
	return x, nil
}
