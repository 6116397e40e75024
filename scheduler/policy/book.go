package policy

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/scheduler/framework"
)

// Book is what the policies say and what is known of the nodes besides their objects. Make one with NewBook.
type Book struct {
	nodes    *framework.Nodes
	policies []*compiled // by name
	taken    map[string]taken
	spaces   bool   // a policy selects by namespace labels
	epoch    uint64 // changes with the policies

	outside map[string]numbers // by source
	version map[string]uint64  // by node: changes with its outside numbers

	demand    atomic.Bool // a policy reads numbers
	listeners []chan struct{}

	evaluations uint64
}

// taken is what a policy said when it was last taken in.
type taken struct {
	spec  *v1alpha1.SchedulingPolicySpec
	fault error
}

// numbers are by node, then by name.
type numbers map[string]map[string]float64

// NewBook makes a book without policies about the nodes.
func NewBook(nodes *framework.Nodes) *Book {
	return &Book{nodes: nodes, taken: map[string]taken{}, outside: map[string]numbers{}, version: map[string]uint64{}}
}

// Set takes in a policy's newest state, and tells whether it says anything new. If it can't be understood, the policy no longer counts, and the error says why.
func (b *Book) Set(p *v1alpha1.SchedulingPolicy) (changed bool, err error) {
	if t, known := b.taken[p.Name]; known && equality.Semantic.DeepEqual(t.spec, &p.Spec) {
		return false, t.fault
	}
	b.Remove(p.Name)
	c, err := compile(p)
	b.taken[p.Name] = taken{&p.Spec, err}
	if err != nil {
		return true, err
	}
	at, _ := slices.BinarySearchFunc(b.policies, p.Name, func(c *compiled, name string) int { return strings.Compare(c.name, name) })
	b.policies = slices.Insert(b.policies, at, c)
	b.changed()
	return true, nil
}

// Remove forgets a policy.
func (b *Book) Remove(name string) {
	delete(b.taken, name)
	b.policies = slices.DeleteFunc(b.policies, func(c *compiled) bool { return c.name == name })
	b.changed()
}

func (b *Book) changed() {
	b.epoch++
	b.spaces = slices.ContainsFunc(b.policies, func(c *compiled) bool { return c.namespaces != nil })
	b.demand.Store(slices.ContainsFunc(b.policies, func(c *compiled) bool { return c.metrics }))
	for _, l := range b.listeners {
		select {
		case l <- struct{}{}:
		default:
		}
	}
}

// Demand tells whether a policy reads numbers of nodes. It may be called from any goroutine.
func (b *Book) Demand() bool { return b.demand.Load() }

// OnDemand is a channel that hears when Demand may have changed.
func (b *Book) OnDemand() <-chan struct{} {
	l := make(chan struct{}, 1)
	b.listeners = append(b.listeners, l)
	return l
}

// SetNumbers replaces what a source knows of all nodes, and calls changed for each slot whose numbers differ.
func (b *Book) SetNumbers(source string, all map[string]map[string]float64, changed func(slot int)) {
	before := b.outside[source]
	b.outside[source] = all
	note := func(node string) {
		if maps.Equal(before[node], all[node]) {
			return
		}
		i, known := b.nodes.Lookup(node)
		if !known && all[node] == nil { // it is gone for good
			delete(b.version, node)
			return
		}
		b.version[node]++
		if known {
			b.nodes.Touch(i)
			changed(i)
		}
	}
	for node := range all {
		note(node)
	}
	for node := range before {
		if all[node] == nil {
			note(node)
		}
	}
}

// Factory makes the plugin for a profile.
func (b *Book) Factory(args []byte, h *framework.Handle) (framework.Plugin, error) {
	if err := noArgs(args); err != nil {
		return nil, err
	}
	return &plugin{book: b, scheduler: h.Scheduler, known: map[*framework.Pod]*judgements{}}, nil
}
