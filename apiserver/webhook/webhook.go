// Package webhook asks the admission webhooks that users register (MutatingWebhookConfiguration, ValidatingWebhookConfiguration) about requests.
//
// Mutating webhooks are called one after another, configurations by name and webhooks in the order written; validating ones all at once. A webhook that
// cannot be asked refuses the request or is passed over, by its failurePolicy. Requests about webhooks and policies themselves are never shown to any.
// Texts, codes and audit annotations are those that clients of the Kubernetes API know.
//
// A configuration counts from the moment that its [Hooks] is given it; requests under way go on with what they began with. Hooks is safe for concurrent
// use. It watches nothing itself and keeps connections to webhooks open between requests.
package webhook

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	regv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/measure"
)

// Config is what webhooks need.
type Config struct {
	// Resolve finds the addresses (host:port) of a Service's port, the best first.
	Resolve Resolver
	// Credentials says how to tell a webhook at host:port who calls. Nil: it is not told.
	Credentials func(kind measure.Kind, host string) (*rest.Config, error)
	Compiler    *matching.Compiler
	Measure     *measure.Admission // nil: nothing is counted
	Log         *slog.Logger
}

// Hooks are the webhooks that are registered now.
type Hooks struct {
	cfg        Config
	mutating   set[*regv1.MutatingWebhookConfiguration]
	validating set[*regv1.ValidatingWebhookConfiguration]
}

// New makes an empty Hooks.
func New(cfg Config) *Hooks {
	h := &Hooks{cfg: cfg}
	h.mutating.compile = func(c *regv1.MutatingWebhookConfiguration) []*hook {
		return compileAll(cfg, measure.Mutate, c.Name, c.Webhooks, fromMutating)
	}
	h.validating.compile = func(c *regv1.ValidatingWebhookConfiguration) []*hook {
		return compileAll(cfg, measure.Validate, c.Name, c.Webhooks, fromValidating)
	}
	return h
}

// SetMutating and the like tell of configurations that came, changed or went.
func (h *Hooks) SetMutating(c *regv1.MutatingWebhookConfiguration)     { h.mutating.put(c.Name, c) }
func (h *Hooks) DropMutating(name string)                              { h.mutating.drop(name) }
func (h *Hooks) SetValidating(c *regv1.ValidatingWebhookConfiguration) { h.validating.put(c.Name, c) }
func (h *Hooks) DropValidating(name string)                            { h.validating.drop(name) }

// Mutating tells whether there is any webhook that may change requests.
func (h *Hooks) Mutating() bool { return len(h.mutating.now()) > 0 }

// Validating tells whether there is any webhook that may refuse objects.
func (h *Hooks) Validating() bool { return len(h.validating.now()) > 0 }

// Has tells whether the webhooks of a configuration of this name, of either sort, count by now.
func (h *Hooks) Has(name string) bool { return h.mutating.has(name) || h.validating.has(name) }

// set is a set of configurations and, behind a pointer that readers load, their webhooks in order.
type set[C any] struct {
	compile func(C) []*hook
	mu      sync.Mutex
	by      map[string][]*hook
	ordered atomic.Pointer[[]*hook]
}

func (s *set[C]) now() []*hook {
	if p := s.ordered.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *set[C]) put(name string, c C) { s.change(name, s.compile(c)) }
func (s *set[C]) drop(name string)     { s.change(name, nil) }

func (s *set[C]) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.by[name]) > 0
}

func (s *set[C]) change(name string, hooks []*hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string][]*hook{}
	}
	for _, old := range s.by[name] {
		old.retire()
	}
	delete(s.by, name)
	if len(hooks) > 0 {
		s.by[name] = hooks
	}
	var all []*hook
	for _, n := range slices.Sorted(maps.Keys(s.by)) {
		all = append(all, s.by[n]...)
	}
	s.ordered.Store(&all)
}

// hook is one webhook, ready to be asked.
type hook struct {
	configuration string
	name          string
	kind          measure.Kind
	measure       *measure.Admission
	choice        *matching.Choice
	conditions    *matching.Conditions
	open          bool // a failure to ask counts as consent
	dry           bool // may be asked about dry runs
	reinvoke      bool
	timeout       time.Duration
	reviews       []string
	client        *client
	err           error // why it cannot be asked
}

// plain is what the two sorts of webhook have in common.
type plain struct {
	name       string
	client     regv1.WebhookClientConfig
	rules      []regv1.RuleWithOperations
	failure    *regv1.FailurePolicyType
	match      *regv1.MatchPolicyType
	namespaces *metav1.LabelSelector
	objects    *metav1.LabelSelector
	effects    *regv1.SideEffectClass
	timeout    *int32
	reviews    []string
	conditions []regv1.MatchCondition
	reinvoke   *regv1.ReinvocationPolicyType
}

func fromMutating(w *regv1.MutatingWebhook) plain {
	return plain{w.Name, w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector, w.SideEffects, w.TimeoutSeconds,
		w.AdmissionReviewVersions, w.MatchConditions, w.ReinvocationPolicy}
}

func fromValidating(w *regv1.ValidatingWebhook) plain {
	return plain{w.Name, w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.NamespaceSelector, w.ObjectSelector, w.SideEffects, w.TimeoutSeconds,
		w.AdmissionReviewVersions, w.MatchConditions, nil}
}

func compileAll[W any](cfg Config, kind measure.Kind, configuration string, webhooks []W, from func(*W) plain) []*hook {
	out := make([]*hook, len(webhooks))
	for i := range webhooks {
		out[i] = compile(cfg, kind, configuration, from(&webhooks[i]))
	}
	return out
}

// defaultTimeout is a webhook's when it names none (admissionregistration/v1 timeoutSeconds).
const defaultTimeout = 10

func compile(cfg Config, kind measure.Kind, configuration string, w plain) *hook {
	rules := make([]regv1.NamedRuleWithOperations, len(w.rules))
	for i, r := range w.rules {
		rules[i].RuleWithOperations = r
	}
	effects := ptr.Deref(w.effects, regv1.SideEffectClassUnknown)
	h := &hook{
		configuration: configuration, name: w.name, kind: kind, measure: cfg.Measure,
		choice:     matching.NewChoice(rules, nil, w.match, w.namespaces, w.objects),
		conditions: matching.NewConditions(w.conditions, false, cfg.Compiler),
		open:       ptr.Deref(w.failure, regv1.Fail) == regv1.Ignore,
		dry:        effects == regv1.SideEffectClassNone || effects == regv1.SideEffectClassNoneOnDryRun,
		reinvoke:   ptr.Deref(w.reinvoke, regv1.NeverReinvocationPolicy) == regv1.IfNeededReinvocationPolicy,
		timeout:    time.Duration(cmp.Or(ptr.Deref(w.timeout, 0), defaultTimeout)) * time.Second,
		reviews:    w.reviews,
	}
	h.client, h.err = newClient(w.client, cfg.Resolve, credentialsOf(cfg, kind))
	return h
}

// credentialsOf are those for webhooks of one sort; nil for none.
func credentialsOf(cfg Config, kind measure.Kind) func(host string) (*rest.Config, error) {
	if cfg.Credentials == nil {
		return nil
	}
	return func(host string) (*rest.Config, error) { return cfg.Credentials(kind, host) }
}

// retire lets go of the connections of a webhook that is no longer registered; calls under way end as they would have.
func (h *hook) retire() {
	if h.client != nil {
		h.client.close()
	}
}
