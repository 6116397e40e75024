package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yare-project/yare/apiserver/matching"
)

// verdict is what came of asking one webhook.
type verdict struct {
	hook   *hook
	answer *answer
	err    error
	took   time.Duration
}

// Validate asks every validating webhook that the request is for, all at once. The first refusal in the order of the webhooks is the request's.
func (h *Hooks) Validate(ctx context.Context, r *matching.Request) error {
	var questions []*question
	var verdicts []verdict
	for _, w := range h.validating.now() {
		t, ok, err := w.wanted(ctx, r)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		q, err := w.prepare(r, t)
		questions, verdicts = append(questions, q), append(verdicts, verdict{hook: w, err: err})
	}
	if len(verdicts) == 0 {
		return nil
	}
	askAll(ctx, questions, verdicts)
	var first error
	for i, v := range verdicts {
		if err := h.judge(ctx, r, i, v); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func askAll(ctx context.Context, questions []*question, verdicts []verdict) {
	if len(verdicts) == 1 {
		verdicts[0].ask(ctx, questions[0])
		return
	}
	var wg sync.WaitGroup
	for i := range verdicts {
		wg.Go(func() { verdicts[i].ask(ctx, questions[i]) })
	}
	wg.Wait()
}

// ask asks, if the question could be written.
func (v *verdict) ask(ctx context.Context, q *question) {
	if v.err != nil {
		return
	}
	began := time.Now()
	v.answer, v.err = v.hook.call(ctx, q, false)
	v.took = time.Since(began)
}

func (h *Hooks) judge(ctx context.Context, r *matching.Request, index int, v verdict) error {
	err := v.err
	if err == nil {
		v.hook.record(r, v.answer)
		if !v.answer.allowed {
			err = v.hook.denied(v.answer.status)
		}
	}
	open, err := h.settle(ctx, r, v.hook, err, v.took)
	if open {
		r.Annotate(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", index), v.hook.name)
	}
	return err
}
