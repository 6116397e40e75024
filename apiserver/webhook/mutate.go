package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/internal/jsonwrite"
)

// Mutation is one request's way through the mutating webhooks: once, and once more through those that ask for it if something changed since.
type Mutation struct {
	hooks *Hooks
	list  []*hook
	round int
	// called may be called again should something change; again must be.
	called, again map[*hook]bool
	last          runtime.Object // the object as the last webhook left it
}

// Begin takes the webhooks as they are now.
func (h *Hooks) Begin() *Mutation {
	return &Mutation{hooks: h, list: h.mutating.now(), called: map[*hook]bool{}, again: map[*hook]bool{}}
}

// Run calls the webhooks that the request is for, and tells whether one changed it. The second Run calls again those that ask for it and were called before
// the last change.
func (m *Mutation) Run(ctx context.Context, r *matching.Request) (changed bool, err error) {
	if m.round > 0 && !equality.Semantic.DeepEqual(m.last, object(r)) {
		m.recall()
	}
	for i, w := range m.list {
		if m.round > 0 && !m.again[w] {
			continue
		}
		did, err := m.one(ctx, r, w, i)
		if err != nil {
			return changed, err
		}
		if did {
			changed = true
			m.recall()
		}
	}
	m.round++
	if obj := object(r); obj != nil && len(m.called) > 0 {
		m.last = obj.DeepCopyObject()
	}
	return changed, nil
}

// recall marks all that were called so far and ask for it.
func (m *Mutation) recall() {
	for w := range m.called {
		m.again[w] = true
	}
	clear(m.called)
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

func (m *Mutation) one(ctx context.Context, r *matching.Request, w *hook, index int) (bool, error) {
	t, ok, err := w.wanted(ctx, r)
	if !ok || err != nil {
		return false, err
	}
	began := time.Now()
	changed, err := w.mutate(ctx, r, t)
	r.Annotate(fmt.Sprintf("mutation.webhook.admission.k8s.io/round_%d_index_%d", m.round, index), mutationNote(w, changed))
	if w.reinvoke {
		defer func() { m.called[w] = true }()
	}
	open, err := m.hooks.settle(ctx, r, w, err, time.Since(began))
	if !open {
		return changed && err == nil, err
	}
	r.Annotate(fmt.Sprintf("failed-open.mutation.webhook.admission.k8s.io/round_%d_index_%d", m.round, index), w.name)
	return false, nil
}

func mutationNote(w *hook, changed bool) string {
	note, err := json.Marshal(struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{w.configuration, w.name, changed})
	if err != nil {
		return err.Error()
	}
	return string(note)
}

// mutate asks one webhook and carries out its patch.
func (h *hook) mutate(ctx context.Context, r *matching.Request, t matching.Target) (bool, error) {
	q, err := h.prepare(r, t)
	if err != nil {
		return false, err
	}
	a, err := h.call(ctx, q, true)
	if err != nil {
		return false, err
	}
	h.record(r, a)
	if !a.allowed {
		return false, h.denied(a.status)
	}
	if len(a.patch) == 0 {
		return false, nil
	}
	patch, err := jsonpatch.DecodePatch(a.patch)
	if err != nil {
		return false, &callError{h.name, fmt.Errorf("received undecodable patch in webhook response: %w", err)}
	}
	if len(patch) == 0 {
		return false, nil
	}
	if !r.Mutable() {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.name))
	}
	return h.patch(r, t, patch)
}

func (h *hook) patch(r *matching.Request, t matching.Target, patch jsonpatch.Patch) (bool, error) {
	shown, err := r.Shown(t)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	doc, err := jsonwrite.Marshal(shown.VersionedObject)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	patched, err := patch.Apply(doc)
	if err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("the patch of admission webhook %q does not apply: %w", h.name, err))
	}
	next, err := r.Decode(t, patched, false)
	if err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("after the patch of admission webhook %q the object cannot be read: %w", h.name, err))
	}
	before := object(r).DeepCopyObject()
	if err := r.Set(t, next); err != nil {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return false, err
		}
		return false, apierrors.NewInternalError(err)
	}
	return !equality.Semantic.DeepEqual(before, object(r)), nil
}
