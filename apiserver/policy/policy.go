// Package policy decides requests by the expressions that users write: ValidatingAdmissionPolicy and MutatingAdmissionPolicy, each bound to requests, and to
// parameters, by its bindings.
//
// Expressions are CEL in Kubernetes' environment, bounded in cost; they are compiled when a request first needs them. A policy whose expressions fail, or whose
// parameters are missing, refuses the request or is passed over by its failurePolicy. Policies run in the order of their names, bindings too. Reviews, which
// are answered and not stored, are never shown to policies: they could lock everybody out.
//
// A policy counts from the moment that its [Policies] is given it. Policies is safe for concurrent use; it watches nothing itself.
package policy

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	regv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/apiserver/measure"
	"github.com/yare-project/yare/kind"
)

// Config is what policies need.
type Config struct {
	// Kinds are those that are served, with a number that changes when they do: parameters may be of any.
	Kinds func() ([]*kind.Kind, uint64)
	// Types merges apply configurations into objects of the built-in kinds.
	Types    func() managedfields.TypeConverter
	Compiler *matching.Compiler
	Measure  *measure.Admission // nil: nothing is counted
}

// Policies are the policies and bindings that are stored now.
type Policies struct {
	cfg        Config
	validating set[*validator, *regv1.ValidatingAdmissionPolicyBinding]
	mutating   set[*mutator, *regv1.MutatingAdmissionPolicyBinding]
	params     kindIndex
}

// New makes an empty Policies.
func New(cfg Config) *Policies { return &Policies{cfg: cfg, params: kindIndex{kinds: cfg.Kinds}} }

// SetValidating and the like tell of policies and bindings that came, changed or went.
func (p *Policies) SetValidating(v *regv1.ValidatingAdmissionPolicy) {
	p.validating.setPolicy(v.Name, newValidator(v, p.cfg))
}

// DropValidating forgets a policy.
func (p *Policies) DropValidating(name string) { p.validating.dropPolicy(name) }

// BindValidating adds or changes a binding.
func (p *Policies) BindValidating(b *regv1.ValidatingAdmissionPolicyBinding) {
	p.validating.setBinding(b.Name, &bound[*regv1.ValidatingAdmissionPolicyBinding]{object: b, policy: b.Spec.PolicyName,
		binding: binding{name: b.Name, choice: choiceOf(b.Spec.MatchResources, true), params: b.Spec.ParamRef}})
}

// UnbindValidating forgets a binding.
func (p *Policies) UnbindValidating(name string) { p.validating.dropBinding(name) }

// SetMutating adds or changes a policy.
func (p *Policies) SetMutating(v *regv1.MutatingAdmissionPolicy) {
	p.mutating.setPolicy(v.Name, newMutator(v, p.cfg))
}

// DropMutating forgets a policy.
func (p *Policies) DropMutating(name string) { p.mutating.dropPolicy(name) }

// BindMutating adds or changes a binding.
func (p *Policies) BindMutating(b *regv1.MutatingAdmissionPolicyBinding) {
	p.mutating.setBinding(b.Name, &bound[*regv1.MutatingAdmissionPolicyBinding]{object: b, policy: b.Spec.PolicyName,
		binding: binding{name: b.Name, choice: choiceOf(b.Spec.MatchResources, true), params: b.Spec.ParamRef}})
}

// UnbindMutating forgets a binding.
func (p *Policies) UnbindMutating(name string) { p.mutating.dropBinding(name) }

// Mutating tells whether any policy may change requests.
func (p *Policies) Mutating() bool { return len(p.mutating.now()) > 0 }

// Validating tells whether there is any policy that may refuse objects.
func (p *Policies) Validating() bool { return len(p.validating.now()) > 0 }

// choiceOf compiles a policy's or a binding's choice; nil for a binding that leaves it to the policy.
func choiceOf(m *regv1.MatchResources, all bool) *matching.Choice {
	if m == nil {
		return nil
	}
	c := matching.NewChoice(m.ResourceRules, m.ExcludeResourceRules, m.MatchPolicy, m.NamespaceSelector, m.ObjectSelector)
	c.All = all
	return c
}

// binding is what bindings of both sorts have.
type binding struct {
	name   string
	choice *matching.Choice
	params *regv1.ParamRef
}

// bound is a binding with the object that it was made from.
type bound[B any] struct {
	binding
	object B
	policy string
}

// pair is a policy with its bindings, by name. One without bindings decides nothing and is left out.
type pair[P, B any] struct {
	policy   P
	bindings []*bound[B]
}

// set keeps policies and bindings and, behind a pointer that readers load, the pairs in order.
type set[P, B any] struct {
	mu       sync.Mutex
	policies map[string]P
	bindings map[string]*bound[B]
	ordered  atomic.Pointer[[]pair[P, B]]
}

func (s *set[P, B]) now() []pair[P, B] {
	if p := s.ordered.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *set[P, B]) setPolicy(name string, p P) {
	s.change(func() {
		if s.policies == nil {
			s.policies = map[string]P{}
		}
		s.policies[name] = p
	})
}

func (s *set[P, B]) dropPolicy(name string) { s.change(func() { delete(s.policies, name) }) }

func (s *set[P, B]) setBinding(name string, b *bound[B]) {
	s.change(func() {
		if s.bindings == nil {
			s.bindings = map[string]*bound[B]{}
		}
		s.bindings[name] = b
	})
}

func (s *set[P, B]) dropBinding(name string) { s.change(func() { delete(s.bindings, name) }) }

func (s *set[P, B]) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	by := map[string][]*bound[B]{}
	for _, b := range s.bindings {
		by[b.policy] = append(by[b.policy], b)
	}
	var pairs []pair[P, B]
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		if bindings := by[name]; len(bindings) > 0 {
			slices.SortFunc(bindings, func(a, b *bound[B]) int { return cmp.Compare(a.name, b.name) })
			pairs = append(pairs, pair[P, B]{s.policies[name], bindings})
		}
	}
	s.ordered.Store(&pairs)
}
