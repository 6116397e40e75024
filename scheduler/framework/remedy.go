package framework

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RemedyKind says what sort of change a remedy is.
type RemedyKind string

// The kinds of remedies, the smaller changes first: this is the order in which explanations prefer them.
const (
	MoreResource   RemedyKind = "Resource"   // Amount more of Resource on the node
	Uncordon       RemedyKind = "Uncordon"   // spec.unschedulable off
	Label          RemedyKind = "Label"      // the node's label Key set to one of Values; with no values, set at all; with Absent, removed
	Tolerate       RemedyKind = "Toleration" // a toleration of Taint in the pod
	FreePort       RemedyKind = "Port"       // the host port that Pods hold
	ApartFrom      RemedyKind = "AntiAffinity"
	Companion      RemedyKind = "Affinity" // a pod that the affinity term selects
	Skew           RemedyKind = "Spread"   // the constraint's maxSkew raised to Amount
	MorePriority   RemedyKind = "Priority" // a priority above Amount, so that Pods are preempted
	Storage        RemedyKind = "Volume"   // what is missing of the claim or volume Name
	Device         RemedyKind = "Device"   // what is missing for the request Name of a ResourceClaim, or the claim Name
	OtherCondition RemedyKind = "Other"    // what a plugin asks for that says no more
)

var remedyOrder = []RemedyKind{MoreResource, Uncordon, Label, Tolerate, FreePort, ApartFrom, Companion, Skew, MorePriority, Storage, Device, OtherCondition}

// Rank orders kinds of remedies; smaller is preferred.
func (k RemedyKind) Rank() int {
	if r := slices.Index(remedyOrder, k); r >= 0 {
		return r
	}
	return len(remedyOrder)
}

// Remedy is one change that takes away one reason why a pod is refused. Which fields are set depends on Kind.
type Remedy struct {
	Kind     RemedyKind             `json:"kind"`
	Plugin   string                 `json:"plugin,omitempty"`
	Do       string                 `json:"do"` // the change in words, such as "250m more cpu on node a"
	Resource string                 `json:"resource,omitempty"`
	Amount   int64                  `json:"amount,omitempty"` // thousandths of a CPU, else units or bytes
	Taint    *corev1.Taint          `json:"taint,omitempty"`
	Key      string                 `json:"key,omitempty"`
	Values   []string               `json:"values,omitempty"`
	Absent   bool                   `json:"absent,omitempty"`
	Name     string                 `json:"name,omitempty"`
	Pods     []types.NamespacedName `json:"pods,omitempty"`
	Part     float64                `json:"-"` // how large the change is beside the node, where that has a meaning; of two of a kind the smaller is preferred
}

// Remedier is a FilterPlugin or PreFilterPlugin that knows what would change its mind. It is asked only about pods that were refused, after the decision,
// about few nodes; node is -1 if its PreFilter refused the pod as a whole. All that it returns is needed together; nothing means that no change is known
// that would help. It must be deterministic.
type Remedier interface {
	Remedies(c *Cycle, node int, refusal *Status) []Remedy
}

// Obstacle is one plugin's refusal of a node.
type Obstacle struct {
	Plugin Plugin
	Status *Status
}

// Obstacles asks all filters about one node, where a decision stops at the first that refuses. The cycle must be past PreFilter.
func (f *Profile) Obstacles(c *Cycle, node int) []Obstacle {
	var out []Obstacle
	for _, filters := range [][]FilterPlugin{f.onNode, f.onPods, f.onCluster} {
		for _, p := range filters {
			if slices.Contains(c.skipFilter, p.Name()) {
				continue
			}
			if s := p.Filter(c, node); !s.OK() {
				out = append(out, Obstacle{p, s})
			}
		}
	}
	return out
}

// Signature is the same for all pods that differ in nothing on which a plugin of narrow scope may judge: those of one class.
func (p *Pod) Signature() string {
	return p.template.full.signature + p.Object.Spec.NodeName
}

// Changes grows with every change of a node, of the pods on one, or of a namespace's labels; simulations that are undone do not count.
func (n *Nodes) Changes() uint64 {
	return n.objects.end() + n.pods.end() + n.spaceEpoch - n.simulated
}
