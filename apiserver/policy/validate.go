package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	regv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/apiserver/matching"
)

// refusal is the first reason that a policy gave against a request.
type refusal struct {
	text   string
	reason metav1.StatusReason
}

// trial is one request before the validating policies.
type trial struct {
	*Policies
	request *matching.Request
	refused *refusal
}

// Validate asks the validating policies whether a request may go on.
func (p *Policies) Validate(ctx context.Context, r *matching.Request) error {
	pairs := p.validating.now()
	if len(pairs) == 0 || r.Kind.Virtual {
		return nil
	}
	t := &trial{Policies: p, request: r}
	for _, one := range pairs {
		if err := t.policy(ctx, one.policy, one.bindings); err != nil {
			return err
		}
	}
	if t.refused == nil {
		return nil
	}
	return refuse(r, t.refused)
}

// refuse makes the answer that clients know: forbidden in its words, with the reason and code that the policy chose.
func refuse(r *matching.Request, why *refusal) error {
	err := apierrors.NewForbidden(r.Own().Resource.GroupResource(), r.Name(), errors.New(why.text))
	err.ErrStatus.Reason = why.reason
	if err.ErrStatus.Reason == "" {
		err.ErrStatus.Reason = metav1.StatusReasonInvalid
	}
	switch err.ErrStatus.Reason {
	case metav1.StatusReasonForbidden:
		err.ErrStatus.Code = http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		err.ErrStatus.Code = http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		err.ErrStatus.Code = http.StatusRequestEntityTooLarge
	default:
		err.ErrStatus.Code = http.StatusUnprocessableEntity
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: why.text})
	return err
}

func (t *trial) refuse(v *validator, b *binding, message string, reason metav1.StatusReason) {
	if t.refused != nil {
		return
	}
	text := fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", v.policy.Name, message)
	if b != nil {
		text = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", v.policy.Name, b.name, message)
	}
	t.refused = &refusal{text, reason}
}

func (t *trial) misconfigured(v *validator, b *binding, err error) {
	if !v.failsOpen() {
		t.refuse(v, b, v.configError(b, err), "")
	}
}

type validatingBinding = bound[*regv1.ValidatingAdmissionPolicyBinding]

func (t *trial) policy(ctx context.Context, v *validator, bindings []*validatingBinding) error {
	if v.choice == nil {
		t.misconfigured(v, nil, errors.New("policy contained no match constraints, a required field"))
		return nil
	}
	target, ok, err := v.choice.Match(ctx, t.request)
	if err != nil {
		t.misconfigured(v, nil, err)
	}
	if err != nil || !ok {
		return nil
	}
	var notes []note
	for _, b := range bindings {
		more, err := t.binding(ctx, v, b, target)
		if err != nil {
			return err
		}
		notes = append(notes, more...)
	}
	t.publish(v, notes)
	return nil
}

func (t *trial) binding(ctx context.Context, v *validator, b *validatingBinding, target matching.Target) (notes []note, err error) {
	if b.choice != nil {
		if _, ok, err := b.choice.Match(ctx, t.request); err != nil || !ok {
			if err != nil {
				t.misconfigured(v, &b.binding, err)
			}
			return nil, nil
		}
	}
	params, err := t.params.collect(ctx, t.request, v.policy.Spec.ParamKind, b.params)
	if missing := (errNoParamKind{}); errors.As(err, &missing) {
		t.misconfigured(v, nil, err)
		return nil, nil
	}
	if err != nil {
		t.misconfigured(v, &b.binding, err)
		return nil, nil
	}
	for _, param := range params {
		more, err := t.decide(ctx, v, b, target, param)
		if err != nil {
			return nil, err
		}
		notes = append(notes, more...)
	}
	return notes, nil
}

func (t *trial) decide(ctx context.Context, v *validator, b *validatingBinding, target matching.Target, param runtime.Object) ([]note, error) {
	namespace, err := namespaceOf(ctx, t.request)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	findings, notes, err := v.evaluate(ctx, &input{request: t.request, target: target, params: param, namespace: namespace})
	took := time.Since(began)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && v.failsOpen():
		v.measure.Validated(v.policy.Name, b.name, errorType(err), "allow", took)
		return nil, nil
	case err != nil:
		findings = []finding{{message: err.Error(), err: err}}
	}
	for _, f := range findings {
		t.act(v, b, f, took)
	}
	return notes, nil
}

// act does what the binding says about a failed validation.
func (t *trial) act(v *validator, b *validatingBinding, f finding, took time.Duration) {
	count := func(action regv1.ValidationAction) {
		v.measure.Validated(v.policy.Name, b.name, errorType(f.err), strings.ToLower(string(action)), took)
	}
	if f.index == annotationFailure {
		count(regv1.Deny)
		t.refuse(v, &b.binding, f.message, f.reason)
		return
	}
	for _, action := range b.object.Spec.ValidationActions {
		count(action)
		switch action {
		case regv1.Deny:
			t.refuse(v, &b.binding, f.message, f.reason)
		case regv1.Warn:
			t.request.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", v.policy.Name, b.name, f.message))
		case regv1.Audit:
			t.request.Annotate("validation.policy.admission.k8s.io/validation_failure", failureNote(b, f))
		}
	}
}

func failureNote(b *validatingBinding, f finding) string {
	type failure struct {
		Message           string                   `json:"message"`
		Policy            string                   `json:"policy"`
		Binding           string                   `json:"binding"`
		ExpressionIndex   int                      `json:"expressionIndex"`
		ValidationActions []regv1.ValidationAction `json:"validationActions"`
	}
	text, err := json.Marshal([]failure{{f.message, b.policy, b.name, f.index, b.object.Spec.ValidationActions}})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// publish joins what a policy's bindings say under one key.
func (t *trial) publish(v *validator, notes []note) {
	by := map[string][]string{}
	for _, n := range notes {
		if !slices.Contains(by[n.key], n.value) {
			by[n.key] = append(by[n.key], n.value)
		}
	}
	for key, values := range by {
		t.request.Annotate(v.policy.Name+"/"+key, strings.Join(values, ", "))
	}
}
