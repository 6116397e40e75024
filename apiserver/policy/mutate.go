package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	regv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/measure"
)

// Mutation is one request's way through the mutating policies: once, and once more through those that ask for it if something changed since.
type Mutation struct {
	policies *Policies
	pairs    []pair[*mutator, *regv1.MutatingAdmissionPolicyBinding]
	round    int
	// called may be called again should something change; again must be.
	called, again map[invocation]bool
	last          runtime.Object // the object as the last policy left it
	refusals      []refusal
}

// invocation is a policy, a binding and a parameter.
type invocation struct {
	policy  *mutator
	binding *mutatingBinding
	param   string
}

type mutatingBinding = bound[*regv1.MutatingAdmissionPolicyBinding]

// Begin takes the policies as they are now.
func (p *Policies) Begin() *Mutation {
	return &Mutation{policies: p, pairs: p.mutating.now(), called: map[invocation]bool{}, again: map[invocation]bool{}}
}

// Run lets the policies that the request is for change it, and tells whether one did. The second Run repeats those that ask for it and ran before the
// last change.
func (m *Mutation) Run(ctx context.Context, r *matching.Request) (changed bool, err error) {
	if len(m.pairs) == 0 || r.Kind.Virtual {
		return false, nil
	}
	if m.round > 0 && len(m.called) > 0 && !equality.Semantic.DeepEqual(m.last, object(r)) {
		m.recall()
	}
	for _, one := range m.pairs {
		did, err := m.policy(ctx, r, one.policy, one.bindings)
		changed = changed || did
		if err != nil {
			return changed, err
		}
	}
	m.round++
	if obj := object(r); obj != nil && len(m.called) > 0 {
		m.last = obj.DeepCopyObject()
	}
	return changed, m.verdict(r)
}

func object(r *matching.Request) runtime.Object {
	switch {
	case r.Body != nil:
		return r.Body
	case r.Object != nil:
		return r.Object
	}
	return nil
}

func (m *Mutation) recall() {
	for i := range m.called {
		m.again[i] = true
	}
	clear(m.called)
}

// verdict is the refusal of policies that could not do their work.
func (m *Mutation) verdict(r *matching.Request) error {
	if len(m.refusals) == 0 {
		return nil
	}
	err := apierrors.NewForbidden(r.Own().Resource.GroupResource(), r.Name(), errors.New("admission request denied by policy"))
	err.ErrStatus.Message = m.refusals[0].text
	if reason := m.refusals[0].reason; reason != "" {
		err.ErrStatus.Reason = reason
	}
	for _, one := range m.refusals {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: one.text})
	}
	return err
}

func (m *Mutation) refuse(p *mutator, b *mutatingBinding, err error, reason metav1.StatusReason) {
	if p.failsOpen() {
		return
	}
	text := fmt.Sprintf("policy %q denied request: %v", p.policy.Name, err)
	if b != nil {
		text = fmt.Sprintf("policy '%s' with binding '%s' denied request: %v", p.policy.Name, b.name, err)
	}
	m.refusals = append(m.refusals, refusal{text, reason})
}

func (m *Mutation) policy(ctx context.Context, r *matching.Request, p *mutator, bindings []*mutatingBinding) (bool, error) {
	if p.choice == nil {
		m.refuse(p, nil, errors.New("failed to configure policy: policy contained no match constraints, a required field"), "")
		return false, nil
	}
	target, ok, err := p.choice.Match(ctx, r)
	if err != nil {
		m.refuse(p, nil, fmt.Errorf("failed to configure policy: %w", err), "")
	}
	if err != nil || !ok {
		return false, nil
	}
	changed := false
	for _, b := range bindings {
		did, err := m.binding(ctx, r, p, b, target)
		changed = changed || did
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (m *Mutation) binding(ctx context.Context, r *matching.Request, p *mutator, b *mutatingBinding, target matching.Target) (bool, error) {
	if b.choice != nil {
		if _, ok, err := b.choice.Match(ctx, r); err != nil || !ok {
			if err != nil {
				m.refuse(p, b, fmt.Errorf("failed to configure binding: %w", err), "")
			}
			return false, nil
		}
	}
	params, err := m.policies.params.collect(ctx, r, p.policy.Spec.ParamKind, b.params)
	if missing := (errNoParamKind{}); errors.As(err, &missing) {
		m.refuse(p, nil, fmt.Errorf("failed to configure policy: %w", err), "")
		return false, nil
	}
	if err != nil {
		m.refuse(p, b, fmt.Errorf("failed to configure binding: %w", err), "")
		return false, nil
	}
	changed := false
	for _, param := range params {
		did, err := m.invoke(ctx, r, p, b, target, param)
		changed = changed || did
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (m *Mutation) invoke(ctx context.Context, r *matching.Request, p *mutator, b *mutatingBinding, target matching.Target, param runtime.Object) (bool, error) {
	key := invocation{p, b, nameOf(param)}
	if m.round > 0 && !m.again[key] {
		return false, nil
	}
	ok, err := m.wanted(ctx, r, p, target, param)
	if err != nil {
		m.refuse(p, b, err, metav1.StatusReasonInvalid)
	}
	if err != nil || !ok {
		return false, ctx.Err()
	}
	namespace, err := namespaceOf(ctx, r)
	if err != nil {
		return false, err
	}
	before, began := copyOf(object(r)), time.Now()
	err = p.run(ctx, &input{request: r, target: target, params: param, namespace: namespace})
	p.measure.Mutated(p.policy.Name, b.name, errorType(err), time.Since(began))
	var status apierrors.APIStatus
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &status):
		return false, err
	case err != nil:
		m.refuse(p, b, err, metav1.StatusReasonInvalid)
	}
	changed := !equality.Semantic.DeepEqual(before, object(r))
	if changed {
		m.recall()
	}
	if p.again() {
		m.called[key] = true
	}
	return changed, nil
}

// wanted tells whether a policy's match conditions hold.
func (m *Mutation) wanted(ctx context.Context, r *matching.Request, p *mutator, target matching.Target, param runtime.Object) (bool, error) {
	if p.conditions == nil {
		return true, nil
	}
	began := time.Now()
	ok, err := p.conditions.Match(ctx, r, target, param)
	p.measure.Conditions(measure.Validate, measure.OfPolicy, p.policy.Name, r.Operation, ok, err, time.Since(began)) // "validate" in Kubernetes, too
	return ok, err
}

func copyOf(obj runtime.Object) runtime.Object {
	if obj == nil {
		return nil
	}
	return obj.DeepCopyObject()
}

func nameOf(param runtime.Object) string {
	if m, err := meta.Accessor(param); param != nil && err == nil {
		return m.GetNamespace() + "/" + m.GetName()
	}
	return ""
}
