package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	regv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/internal/jsonwrite"
)

// mutator is a MutatingAdmissionPolicy, compiled when first needed.
type mutator struct {
	policy     *regv1.MutatingAdmissionPolicy
	choice     *matching.Choice
	conditions *matching.Conditions
	types      func() managedfields.TypeConverter
	measure    *measure.Admission
	once       sync.Once
	compiler   *plugincel.CompositedCompiler
	mutations  []plugincel.MutatingEvaluator
	err        error
}

func newMutator(p *regv1.MutatingAdmissionPolicy, cfg Config) *mutator {
	return &mutator{policy: p, choice: choiceOf(p.Spec.MatchConstraints, false), types: cfg.Types, measure: cfg.Measure,
		conditions: matching.NewConditions(p.Spec.MatchConditions, p.Spec.ParamKind != nil, cfg.Compiler)}
}

func (m *mutator) failsOpen() bool {
	return ptr.Deref(m.policy.Spec.FailurePolicy, regv1.Fail) == regv1.Ignore
}

func (m *mutator) again() bool {
	return m.policy.Spec.ReinvocationPolicy == regv1.IfNeededReinvocationPolicy
}

func (m *mutator) compile() {
	spec := &m.policy.Spec
	if m.compiler, m.err = composed(spec.Variables, spec.ParamKind != nil); m.err != nil {
		return
	}
	declared := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true, HasPatchTypes: true}
	for i := range spec.Mutations {
		e := &expression{}
		switch mutation := &spec.Mutations[i]; {
		case mutation.PatchType == regv1.PatchTypeJSONPatch && mutation.JSONPatch != nil:
			e.text, e.as = mutation.JSONPatch.Expression, asPatches
		case mutation.PatchType == regv1.PatchTypeApplyConfiguration && mutation.ApplyConfiguration != nil:
			e.text, e.as = mutation.ApplyConfiguration.Expression, asObject
		default:
			m.err = fmt.Errorf("mutation %d has no expression of its patchType %q", i, mutation.PatchType)
			return
		}
		m.mutations = append(m.mutations, m.compiler.CompileMutatingEvaluator(e, declared, environment.StoredExpressions))
	}
}

// run carries out the policy's mutations in order.
func (m *mutator) run(ctx context.Context, in *input) error {
	m.once.Do(m.compile)
	if m.err != nil {
		return m.err
	}
	if !in.request.Mutable() {
		return nil
	}
	for i, e := range m.mutations {
		if err := m.one(ctx, in, i, e); err != nil {
			return err
		}
	}
	return nil
}

func (m *mutator) one(ctx context.Context, in *input, i int, e plugincel.MutatingEvaluator) error {
	if errs := e.CompilationErrors(); len(errs) > 0 {
		return errors.Join(errs...)
	}
	attributes, err := in.request.Evaluated(in.target)
	if err != nil {
		return err
	}
	result, _, err := e.ForInput(m.compiler.CreateContext(ctx), attributes, in.request.Review(in.target), in.bindings(), in.namespace, celconfig.RuntimeCELCostBudget)
	switch {
	case err != nil:
		return err
	case result.Error != nil:
		return result.Error
	}
	var doc []byte
	if m.policy.Spec.Mutations[i].PatchType == regv1.PatchTypeJSONPatch {
		doc, err = patched(attributes.VersionedObject, result.EvalResult)
	} else {
		doc, err = m.applied(in, attributes.VersionedObject, result.EvalResult)
	}
	if err != nil || doc == nil {
		return err
	}
	next, err := in.request.Decode(in.target, doc, true)
	if err != nil {
		return fmt.Errorf("the changed object cannot be read: %w", err)
	}
	return in.request.Set(in.target, next)
}

// patched applies a JSON patch; nil says that one of its tests failed, so that nothing is to be changed.
func patched(obj runtime.Object, value any) ([]byte, error) {
	patch, err := jsonPatchOf(value)
	if err != nil {
		return nil, err
	}
	doc, err := jsonwrite.Marshal(obj)
	if err != nil {
		return nil, err
	}
	out, err := patch.Apply(doc)
	if errors.Is(err, jsonpatch.ErrTestFailed) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	return out, nil
}
