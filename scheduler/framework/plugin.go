package framework

import (
	"context"
	"strings"
	"time"
)

// MaxScore is the best score that a plugin may give a node; 0 is the worst.
const MaxScore = 100

// Code is the kind of an answer.
type Code uint8

// The answers of plugins.
const (
	Success       Code = iota
	Skip               // this plugin has nothing to say about this pod
	Wait               // Permit only: hold the pod back for now
	Unschedulable      // not here as things are; removing pods might help
	Unresolvable       // not here, whichever pods are removed
	Failed             // the plugin itself failed; the pod is tried again
)

// Status is a plugin's answer. A nil Status is Success. Statuses are immutable and may be shared.
type Status struct {
	Code    Code
	Reasons []string // as users see them in events, such as "Insufficient cpu"
	Plugin  string
	Err     error // of Failed
}

// Refuse makes a status with reasons.
func Refuse(code Code, plugin string, reasons ...string) *Status {
	return &Status{Code: code, Plugin: plugin, Reasons: reasons}
}

// Fail makes a status from an error.
func Fail(plugin string, err error) *Status {
	return &Status{Code: Failed, Plugin: plugin, Reasons: []string{err.Error()}, Err: err}
}

// OK tells whether s is Success.
func (s *Status) OK() bool { return s == nil || s.Code == Success }

// Is tells whether s has the code.
func (s *Status) Is(c Code) bool { return s != nil && s.Code == c || s == nil && c == Success }

// Rejected tells whether the plugin refused the pod.
func (s *Status) Rejected() bool {
	return s != nil && (s.Code == Unschedulable || s.Code == Unresolvable)
}

// Message joins the reasons.
func (s *Status) Message() string {
	if s == nil {
		return ""
	}
	return strings.Join(s.Reasons, ", ")
}

// Scope says on what a verdict or score of one node depends, besides the pod's namespace, labels, annotations and spec. A plugin of a narrow scope must not
// judge by the pod's name, its index in a StatefulSet or Job, or its claims: pods that differ in nothing else are taken for the same.
type Scope uint8

// The scopes, from what is known longest to what must be asked each time.
const (
	OnNode     Scope = iota // the node object alone
	OnNodePods              // the node object and the pods on it
	OnCluster               // anything
)

// Plugin is the base of all plugins. One plugin may implement several of the interfaces below.
type Plugin interface{ Name() string }

// PreEnqueuePlugin says whether a pod may be queued; a refused pod waits until it changes.
type PreEnqueuePlugin interface {
	Plugin
	PreEnqueue(p *Pod) *Status
}

// QueueSortPlugin orders pods; a profile set has exactly one.
type QueueSortPlugin interface {
	Plugin
	Less(a, b QueueItem) bool
}

// QueueItem is what a QueueSortPlugin sees of a waiting pod.
type QueueItem struct {
	Pod   *Pod
	Since time.Time // when it was last added to the active queue
}

// PreFilterPlugin looks at a pod before any node is judged: it may refuse it (with Unschedulable, preemption is tried), prepare (Cycle.Put), restrict the nodes (Cycle.Restrict), or answer Skip, so that its
// Filter is not asked.
type PreFilterPlugin interface {
	Plugin
	PreFilter(c *Cycle) *Status
}

// FilterPlugin judges one node. Nil means that the pod may go there.
type FilterPlugin interface {
	Plugin
	FilterScope() Scope
	Filter(c *Cycle, node int) *Status
}

// BatchFilter is a FilterPlugin of scope OnCluster that judges many nodes at once: it calls refuse for those of in that it refuses, which takes them out of in. It must
// say the same as Filter, which is still asked about single nodes.
type BatchFilter interface {
	FilterAll(c *Cycle, in Bits, refuse func(node int, s *Status))
}

// ShiftPlugin is a FilterPlugin of scope OnCluster that can follow, in what its PreFilter prepared, a pod's coming to (sign 1) or leaving (-1) a node. One that can't is prepared anew
// for each step of a simulation.
type ShiftPlugin interface {
	Shift(c *Cycle, pod *Pod, node int, sign int)
}

// DomainFilter is a FilterPlugin of scope OnCluster that keeps some pods within few nodes: it refuses all others, with the same status, and none within.
type DomainFilter interface {
	// Domain is asked after PreFilter; nil means that the pod may go anywhere.
	Domain(c *Cycle) (within Bits, outside *Status)
}

// SteadyFilter is a FilterPlugin of scope OnCluster whose verdict of a node does not depend on where pods are.
type SteadyFilter interface{ Steady() }

// PostFilterPlugin acts when no node fits. It returns the node to nominate the pod for; keep means to leave the present nomination as it is.
type PostFilterPlugin interface {
	Plugin
	PostFilter(c *Cycle, d *Diagnosis) (nominate string, keep bool, s *Status)
}

// VictimChooser is a PostFilterPlugin that can also say, without doing anything, who would have to leave which node for a pod.
type VictimChooser interface {
	Choose(c *Cycle, d *Diagnosis) (Choice, *Status)
}

// PreScorePlugin prepares scores; feasible are the nodes in question. Skip leaves the plugin's Score out.
type PreScorePlugin interface {
	Plugin
	PreScore(c *Cycle, feasible Bits) *Status
}

// Normalization says how raw scores become 0..MaxScore.
type Normalization uint8

// The normalizations.
const (
	None          Normalization = iota // they are already
	ByMax                              // in proportion to the largest
	ByMaxReversed                      // the same, and the largest raw score is the worst
	Own                                // the plugin is a Normalizer
)

// ScorePlugin rates one node.
type ScorePlugin interface {
	Plugin
	ScoreScope() Scope
	Score(c *Cycle, node int) int64
	Normalization() Normalization
}

// WideScore is a ScorePlugin of narrow scope that rates some pods by more than its scope: of those, all feasible nodes are rated in each decision.
type WideScore interface{ Wide(c *Cycle) bool }

// BatchScore is a ScorePlugin of scope OnCluster that rates many nodes at once: it writes the score of each of in to the node's place in scores. It must say the same as
// Score.
type BatchScore interface {
	ScoreAll(c *Cycle, in Bits, scores []int64)
}

// Normalizer turns the raw scores of the feasible nodes into 0..MaxScore, in place.
type Normalizer interface {
	Normalize(c *Cycle, feasible Bits, scores []int64)
}

// EpochPlugin is a plugin whose verdicts or scores of narrow scope all become void when its epoch changes.
type EpochPlugin interface{ Epoch() uint64 }

// ReservePlugin sets something aside for a pod on its node, and gives it back if the pod does not get there. Unreserve may come without Reserve.
type ReservePlugin interface {
	Plugin
	Reserve(c *Cycle, node string) *Status
	Unreserve(c *Cycle, node string)
}

// PermitPlugin may refuse a placed pod or, with Wait, hold it back for up to the duration.
type PermitPlugin interface {
	Plugin
	Permit(c *Cycle, node string) (*Status, time.Duration)
}

// PreBindPlugin does what must be done before the pod is bound. It may take its time: decisions go on meanwhile.
type PreBindPlugin interface {
	Plugin
	PreBind(ctx context.Context, c *Cycle, node string) *Status
}

// PreBindTeller is a PreBindPlugin that can say, after Reserve, whether it has anything to do for a pod. If it has, others are told at once where the pod is going
// to be (status.nominatedNodeName); of a plugin that can't say, they are not.
type PreBindTeller interface {
	WillPreBind(c *Cycle) bool
}

// BindPlugin binds the pod, or answers Skip to leave that to the next.
type BindPlugin interface {
	Plugin
	Bind(ctx context.Context, c *Cycle, node string) *Status
}

// PostBindPlugin hears of bound pods.
type PostBindPlugin interface {
	Plugin
	PostBind(ctx context.Context, c *Cycle, node string)
}

// HintPlugin says which events may let a pod go that this plugin refused. A plugin without hints has its pods woken by every event.
type HintPlugin interface {
	Plugin
	// Events are the kinds of events that can help at all.
	Events() EventKind
	// Helps looks closer: could e let p go?
	Helps(p *Pod, e *Event) bool
}
