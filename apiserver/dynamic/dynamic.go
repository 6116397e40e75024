// Package dynamic is the admission that users write: webhooks (package webhook) and policies in CEL (package policy), as one plugin of the gate.
//
// Before validation: mutating policies, then mutating webhooks. If any of them changed the object, the built-in mutators and then those policies and
// webhooks that ask for it run once more, as Kubernetes' plugins do. After validation: validating policies, then validating webhooks.
//
// The plugin follows what is registered by watches, so a change counts within a moment of its write. Until the first complete view it holds requests
// back, within their own time limits: none slips past a webhook while the server starts. Safe for concurrent use.
package dynamic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	regv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/apiserver/policy"
	"github.com/yare-project/yare/apiserver/webhook"
	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

// Config is all that a Plugin needs.
type Config struct {
	// Env resolves Services and records type checks. It need not be usable before the first request.
	Env kind.Env
	// Kinds are those that are served, with a number that changes when they do: a policy's parameters may be of any. Nil: none is.
	Kinds func() ([]*kind.Kind, uint64)
	// Types merges policies' apply configurations into objects of the built-in kinds; nil refuses those.
	Types func() managedfields.TypeConverter
	// OpenAPI serves the documents by which policies are type-checked; nil: they are not.
	OpenAPI http.Handler
	// Exempt are requests that no webhook or policy is asked about: the server's own while it starts, for a webhook that it would have to run first could
	// keep it from starting. Nil: none but those about webhooks and policies themselves.
	Exempt func(r *kind.AdmissionRequest) bool
	// Credentials says how to tell a webhook at host:port who calls. Nil: it is not told.
	Credentials func(kind measure.Kind, host string) (*rest.Config, error)
	// Measure counts what webhooks and policies do. Nil: nothing does.
	Measure *measure.Admission
	// Off are Kubernetes' plugins that are switched off: MutatingAdmissionPolicy, MutatingAdmissionWebhook, ValidatingAdmissionPolicy,
	// ValidatingAdmissionWebhook. Nil: none is.
	Off func(plugin string) bool
	// Static are the mutators that run before the plugin, which run again if it changed an object.
	Static []kind.Mutator
	Clock  clock.WithTicker // nil: the real one
	Log    *slog.Logger     // nil: discards
}

// Plugin is a kind.Mutator and a kind.Validator.
type Plugin struct {
	cfg      Config
	hooks    *webhook.Hooks
	policies *policy.Policies
	statuses *statuses
	synced   chan struct{}
}

var (
	_ kind.Mutator   = (*Plugin)(nil)
	_ kind.Validator = (*Plugin)(nil)
)

// New makes a plugin that knows of no webhook or policy yet: see Run.
func New(cfg Config) *Plugin {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Kinds == nil {
		cfg.Kinds = func() ([]*kind.Kind, uint64) { return nil, 0 }
	}
	compiler := &matching.Compiler{}
	p := &Plugin{cfg: cfg, synced: make(chan struct{}),
		hooks:    webhook.New(webhook.Config{Resolve: Resolve(cfg.Env), Credentials: cfg.Credentials, Compiler: compiler, Measure: cfg.Measure, Log: cfg.Log}),
		policies: policy.New(policy.Config{Kinds: cfg.Kinds, Types: cfg.Types, Compiler: compiler, Measure: cfg.Measure})}
	p.statuses = newStatuses(p)
	return p
}

// Name names the plugin in refusals that are not a webhook's or policy's own.
func (p *Plugin) Name() string { return "DynamicAdmission" }

// Synced is closed once everything that was registered at the start is known.
func (p *Plugin) Synced() <-chan struct{} { return p.synced }

// Calls tells whether the webhooks of a configuration of this name count by now.
func (p *Plugin) Calls(configuration string) bool { return p.hooks.Has(configuration) }

// Run follows webhooks and policies until ctx ends. It may run once.
func (p *Plugin) Run(ctx context.Context, source follow.Source) error {
	follows := p.follows()
	var done sync.WaitGroup
	done.Go(func() { p.statuses.run(ctx) })
	known := make(chan struct{}, len(follows))
	for plural, f := range follows {
		f.Source, f.Clock, f.Log = source, p.cfg.Clock, p.cfg.Log
		f.Ref = resource.Ref{GroupVersionResource: regv1.SchemeGroupVersion.WithResource(plural)}
		f.Synced = func() { known <- struct{}{} }
		done.Go(func() {
			if err := follow.Run(ctx, f); err != nil {
				p.cfg.Log.Error("webhooks and policies are no longer followed", "resource", plural, "error", err)
			}
		})
	}
	defer done.Wait()
	for range follows {
		select {
		case <-known:
		case <-ctx.Done():
			return nil
		}
	}
	close(p.synced)
	return nil
}

// follows are what the plugin hears of, by plural.
func (p *Plugin) follows() map[string]follow.Config {
	return map[string]follow.Config{
		"mutatingwebhookconfigurations":     on(p.hooks.SetMutating, func(c *regv1.MutatingWebhookConfiguration) { p.hooks.DropMutating(c.Name) }),
		"validatingwebhookconfigurations":   on(p.hooks.SetValidating, func(c *regv1.ValidatingWebhookConfiguration) { p.hooks.DropValidating(c.Name) }),
		"mutatingadmissionpolicies":         on(p.policies.SetMutating, func(o *regv1.MutatingAdmissionPolicy) { p.policies.DropMutating(o.Name) }),
		"mutatingadmissionpolicybindings":   on(p.policies.BindMutating, func(o *regv1.MutatingAdmissionPolicyBinding) { p.policies.UnbindMutating(o.Name) }),
		"validatingadmissionpolicies":       on(p.setValidating, func(o *regv1.ValidatingAdmissionPolicy) { p.policies.DropValidating(o.Name) }),
		"validatingadmissionpolicybindings": on(p.policies.BindValidating, func(o *regv1.ValidatingAdmissionPolicyBinding) { p.policies.UnbindValidating(o.Name) }),
	}
}

func (p *Plugin) setValidating(v *regv1.ValidatingAdmissionPolicy) {
	p.policies.SetValidating(v)
	if p.cfg.OpenAPI != nil {
		p.statuses.add(v)
	}
}

func on[T runtime.Object](set, drop func(T)) follow.Config {
	call := func(f func(T)) func(runtime.Object) {
		return func(obj runtime.Object) {
			if t, ok := obj.(T); ok {
				f(t)
			}
		}
	}
	return follow.Config{Set: call(set), Drop: call(drop)}
}

func (p *Plugin) wait(ctx context.Context) error {
	select {
	case <-p.synced:
		return nil
	default:
	}
	select {
	case <-p.synced:
		return nil
	case <-ctx.Done():
		return apierrors.NewServiceUnavailable("the server is starting: it does not know yet which admission webhooks and policies there are")
	}
}

func (p *Plugin) off(plugin string) bool { return p.cfg.Off != nil && p.cfg.Off(plugin) }

func (p *Plugin) exempt(r *kind.AdmissionRequest) bool {
	return matching.Exempt(r) || p.cfg.Exempt != nil && p.cfg.Exempt(r)
}

// Mutate lets mutating policies and webhooks change the request's object.
func (p *Plugin) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if p.exempt(r) {
		return nil
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	if !p.hooks.Mutating() && !p.policies.Mutating() {
		return nil
	}
	request, policies, hooks := matching.New(env, r), p.policies.Begin(), p.hooks.Begin()
	round := func() (changed bool, err error) {
		if !p.off("MutatingAdmissionPolicy") {
			changed, err = policies.Run(ctx, request)
		}
		if err != nil || p.off("MutatingAdmissionWebhook") {
			return changed, err
		}
		more, err := hooks.Run(ctx, request)
		return changed || more, err
	}
	changed, err := round()
	if err != nil || !changed {
		return err
	}
	if err := p.again(ctx, env, request); err != nil {
		return err
	}
	_, err = round()
	return err
}

// again runs the built-in mutators on what policies and webhooks made.
func (p *Plugin) again(ctx context.Context, env kind.Env, r *matching.Request) error {
	for _, m := range p.cfg.Static {
		if err := m.Mutate(ctx, env, r.AdmissionRequest); err != nil {
			var status apierrors.APIStatus
			if errors.As(err, &status) {
				return err
			}
			return fmt.Errorf("admission plugin %s, after a webhook or policy changed the object: %w", m.Name(), err)
		}
	}
	if r.Object != nil && r.Kind.Default != nil {
		r.Kind.Default(r.Object)
	}
	r.Changed()
	return nil
}

// Validate asks validating policies and webhooks whether the request may go on.
func (p *Plugin) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if p.exempt(r) {
		return nil
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	if !p.hooks.Validating() && !p.policies.Validating() {
		return nil
	}
	request := matching.New(env, r)
	if !p.off("ValidatingAdmissionPolicy") {
		if err := p.policies.Validate(ctx, request); err != nil {
			return err
		}
	}
	if p.off("ValidatingAdmissionWebhook") {
		return nil
	}
	return p.hooks.Validate(ctx, request)
}

// Before puts a validator in front of the one that is named: what charges for an object must come after all that may refuse it.
func Before(validators []kind.Validator, name string, v kind.Validator) []kind.Validator {
	at := slices.IndexFunc(validators, func(o kind.Validator) bool { return o.Name() == name })
	if at < 0 {
		at = len(validators)
	}
	return slices.Insert(slices.Clone(validators), at, v)
}
