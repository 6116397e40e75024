package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/measure"
)

// callError says that a webhook could not be asked, or did not answer as it must.
type callError struct {
	name string
	err  error
}

func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.name, e.err)
}
func (e *callError) Unwrap() error { return e.err }

// wanted tells whether a webhook is to be asked about a request, and in which form. An error refuses the request.
func (h *hook) wanted(ctx context.Context, r *matching.Request) (matching.Target, bool, error) {
	t, ok, err := h.choice.Match(ctx, r)
	if !ok || err != nil {
		return t, false, err
	}
	if h.conditions == nil {
		return t, true, nil
	}
	began := time.Now()
	ok, err = h.conditions.Match(ctx, r, t, nil)
	h.measure.Conditions(h.kind, measure.OfWebhook, h.name, r.Operation, ok, err, time.Since(began))
	switch {
	case err == nil:
		return t, ok, nil
	case ctx.Err() != nil:
		return t, false, ctx.Err()
	case h.open:
		return t, false, nil
	}
	return t, false, apierrors.NewForbidden(r.Own().Resource.GroupResource(), r.Name(), err)
}

// prepare writes the question; what makes it impossible is a callError or a refusal.
func (h *hook) prepare(r *matching.Request, t matching.Target) (*question, error) {
	if r.DryRun && !h.dry {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
	}
	if h.err != nil {
		return nil, &callError{h.name, fmt.Errorf("could not get REST client: %w", h.err)}
	}
	q, err := ask(r, t, h.reviews)
	if err != nil {
		return nil, &callError{h.name, fmt.Errorf("could not create admission objects: %w", err)}
	}
	return q, nil
}

// call asks, and reads the answer.
func (h *hook) call(ctx context.Context, q *question, mutating bool) (*answer, error) {
	timeout := h.timeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Second, min(timeout, time.Until(deadline).Round(time.Second)))
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	body, err := h.client.post(ctx, timeout, q.body)
	if err != nil {
		return nil, &callError{h.name, fmt.Errorf("failed to call webhook: %w", err)}
	}
	a, err := q.read(body, mutating)
	if err != nil {
		return nil, &callError{h.name, fmt.Errorf("received invalid webhook response: %w", err)}
	}
	return a, nil
}

// record passes on what an answer says besides yes and no.
func (h *hook) record(r *matching.Request, a *answer) {
	for key, value := range a.annotations {
		r.Annotate(h.name+"/"+key, value)
	}
	for _, text := range a.warnings {
		r.Warn(text)
	}
}

// denied is the refusal of a webhook, as clients know it: never a success, never without a reason.
func (h *hook) denied(status *metav1.Status) error {
	out := metav1.Status{}
	if status != nil {
		out = *status
	}
	if out.Code < http.StatusBadRequest {
		out.Code = http.StatusBadRequest
	}
	if out.Status == "" || out.Status == metav1.StatusSuccess {
		out.Status = metav1.StatusFailure
	}
	denied := fmt.Sprintf("admission webhook %q denied the request", h.name)
	switch {
	case out.Message != "":
		out.Message = denied + ": " + out.Message
	case out.Reason != "":
		out.Message = denied + ": " + string(out.Reason)
	default:
		out.Message = denied + " without explanation"
	}
	return &denial{&apierrors.StatusError{ErrStatus: out}}
}

// denial is a webhook's own refusal, as opposed to those for what went wrong.
type denial struct{ status *apierrors.StatusError }

func (d *denial) Error() string { return d.status.Error() }
func (d *denial) Unwrap() error { return d.status }

// settle counts what came of asking a webhook, and decides what a failure means: nil passes over the webhook, which open says.
func (h *Hooks) settle(ctx context.Context, r *matching.Request, w *hook, err error, took time.Duration) (open bool, refusal error) {
	outcome, code := w.outcome(err)
	if err == nil || ctx.Err() == nil || !errors.Is(err, context.Canceled) { // who is gone says nothing about the webhook
		h.cfg.Measure.Webhook(w.kind, w.name, r.Operation, outcome, code, took)
	}
	var denied *denial
	switch {
	case err == nil:
		return false, nil
	case errors.As(err, &denied):
		return false, denied.status
	}
	if err := h.failed(ctx, w, err); err != nil {
		return false, err
	}
	return true, nil
}

// outcome is what the metrics call an error, and the status code that it stands for.
func (h *hook) outcome(err error) (measure.Outcome, int) {
	var denied *denial
	var call *callError
	switch {
	case err == nil:
		return measure.Allowed, http.StatusOK
	case errors.As(err, &denied):
		return measure.Denied, int(denied.status.ErrStatus.Code)
	case !errors.As(err, &call):
		return measure.Broken, 0
	}
	code := http.StatusServiceUnavailable
	var status apierrors.APIStatus
	if errors.As(call.err, &status) {
		code = int(status.Status().Code)
	}
	if h.open {
		return measure.FailedOpen, code
	}
	return measure.Failed, code
}

// failed decides what a failed call means: nil passes over the webhook.
func (h *Hooks) failed(ctx context.Context, w *hook, err error) error {
	var call *callError
	if !errors.As(err, &call) {
		return err
	}
	if !w.open {
		h.cfg.Log.Warn("webhook failed, request refused", "webhook", w.name, "configuration", w.configuration, "error", err)
		return apierrors.NewInternalError(err)
	}
	h.cfg.Log.Warn("webhook failed and is passed over, by its failurePolicy", "webhook", w.name, "configuration", w.configuration, "error", err)
	if ctx.Err() != nil { // the request has no time left for others
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	return nil
}
