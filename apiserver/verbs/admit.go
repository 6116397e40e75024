package verbs

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/kind"
)

// admission makes the request that plugins judge.
func (r *Resource) admission(rq *Request, op admissionv1.Operation, obj, old kind.Object, body, opts runtime.Object, dryRun bool) *kind.AdmissionRequest {
	return &kind.AdmissionRequest{Operation: op, Kind: r.Kind, Ref: rq.Ref, Posted: rq.Posted, User: rq.User, Object: obj, Old: old, Body: body, Options: opts,
		DryRun: dryRun, Warn: rq.Warn, Annotate: rq.Annotate}
}

// mutate lets the plugins change the object, then defaults it again.
func (r *Resource) mutate(ctx context.Context, rq *Request, a *kind.AdmissionRequest) error {
	step := r.Measure.Begin(measure.Mutate, a.Operation, r.mutators)
	for i, m := range r.Mutators {
		if err := m.Mutate(ctx, r.Env, a); err != nil {
			return refused(rq, step, m.Name(), err)
		}
		if step != nil {
			step.Plugin(i)
		}
	}
	if step != nil {
		step.Passed()
	}
	if a.Object != nil && r.Kind.Default != nil && len(r.Mutators) > 0 {
		r.Kind.Default(a.Object)
	}
	rq.Trace.Mark("mutate-admit")
	return nil
}

// admit asks the plugins whether the validated request may go on.
func (r *Resource) admit(ctx context.Context, rq *Request, a *kind.AdmissionRequest) error {
	step := r.Measure.Begin(measure.Validate, a.Operation, r.validators)
	for i, v := range r.Validators {
		if err := v.Validate(ctx, r.Env, a); err != nil {
			return refused(rq, step, v.Name(), err)
		}
		if step != nil {
			step.Plugin(i)
		}
	}
	if step != nil {
		step.Passed()
	}
	rq.Trace.Mark("validate-admit")
	return nil
}

func (r *Resource) mutators() []string   { return namesOf(r.Mutators) }
func (r *Resource) validators() []string { return namesOf(r.Validators) }

func namesOf[P interface{ Name() string }](plugins []P) []string {
	out := make([]string, len(plugins))
	for i, p := range plugins {
		out[i] = p.Name()
	}
	return out
}

// refused keeps a plugin's own status and makes any other error a 403 that names the plugin.
func refused(rq *Request, step *measure.Step, plugin string, err error) error {
	if step != nil {
		step.Refused(plugin)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return apierrors.NewForbidden(rq.named(), rq.Ref.Name, fmt.Errorf("admission plugin %s: %w", plugin, err))
}

func dryRun(values []string) bool { return len(values) > 0 }

// AdmitConnect asks the plugins whether a stream to a backend may be opened.
func (r *Resource) AdmitConnect(ctx context.Context, rq *Request, a *kind.AdmissionRequest) error {
	if err := r.mutate(ctx, rq, a); err != nil {
		return err
	}
	return r.admit(ctx, rq, a)
}
