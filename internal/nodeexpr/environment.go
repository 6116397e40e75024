package nodeexpr

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// The sizes by which the cost of an expression is estimated.
const (
	entries  = 100  // of a map or list
	key      = 317  // bytes of a label's key
	value    = 63   // bytes of a label's value
	longText = 1024 // bytes of an annotation
)

var (
	shortText = sized(apiservercel.StringType, value)
	keyText   = sized(apiservercel.StringType, key)
	texts     = apiservercel.NewMapType(keyText, shortText, entries)
	longTexts = apiservercel.NewMapType(keyText, sized(apiservercel.StringType, longText), entries)
	numbers   = apiservercel.NewMapType(keyText, apiservercel.DoubleType, entries)

	podType = object("yare.Pod", map[string]*apiservercel.DeclType{
		"namespace": shortText, "labels": texts, "annotations": longTexts, "nodeSelector": texts, "priority": apiservercel.IntType, "schedulerName": keyText,
		"requests": numbers, "images": apiservercel.NewListType(sized(apiservercel.StringType, longText), entries),
	})
	nodeType = object("yare.Node", map[string]*apiservercel.DeclType{
		"name": keyText, "labels": texts, "annotations": longTexts, "allocatable": numbers, "requested": numbers, "conditions": texts,
		"unschedulable": apiservercel.BoolType,
	})
)

func sized(t *apiservercel.DeclType, size int64) *apiservercel.DeclType {
	out := *t
	out.MaxElements = size
	return &out
}

func object(name string, fields map[string]*apiservercel.DeclType) *apiservercel.DeclType {
	out := make(map[string]*apiservercel.DeclField, len(fields))
	for name, t := range fields {
		out[name] = apiservercel.NewDeclField(name, t, true, nil, nil)
	}
	return apiservercel.NewObjectType(name, out)
}

// base is the environment without variables. It is made on first use: it takes milliseconds and megabytes.
var base = sync.OnceValues(func() (*environment.EnvSet, error) {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("pod", podType.CelType()), cel.Variable("node", nodeType.CelType()), cel.Variable("metrics", numbers.CelType()),
		},
		DeclTypes: []*apiservercel.DeclType{podType, nodeType},
	})
})

// sizes tells the estimator how large what an expression reads may be.
type sizes struct{}

func newEstimator() checker.CostEstimator { return &library.CostEstimator{SizeEstimator: sizes{}} }

// EstimateSize implements checker.CostEstimator.
func (sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 {
		return nil
	}
	at := map[string]*apiservercel.DeclType{"pod": podType, "node": nodeType, "metrics": numbers}[path[0]]
	for _, step := range path[1:] {
		at = child(at, step)
	}
	if at == nil || at.MaxElements <= 0 {
		return nil
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(at.MaxElements)}
}

func child(t *apiservercel.DeclType, step string) *apiservercel.DeclType {
	switch {
	case t == nil:
		return nil
	case step == "@keys":
		return t.KeyType
	case step == "@items" || step == "@values" || t.IsMap():
		return t.ElemType
	}
	if f := t.Fields[step]; f != nil {
		return f.Type
	}
	return nil
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
