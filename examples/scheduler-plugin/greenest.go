package main

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/scheduler/framework"
)

// Name is what a profile of a KubeSchedulerConfiguration enables the plugin by.
const Name = "Greenest"

// greenest keeps pods from nodes whose power is too dirty, and prefers the cleanest. A node says how many grams of CO2 a kilowatt-hour costs there by the annotation
// example.com/carbon; one that does not say is taken for the worst.
type greenest struct {
	nodes *framework.Nodes
	// Most is how many grams a node may have.
	Most int64 `json:"most"`
}

// New implements framework.Factory.
func New(args []byte, h *framework.Handle) (framework.Plugin, error) {
	g := &greenest{nodes: h.Nodes, Most: 1000}
	if err := yaml.Unmarshal(args, g); err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", Name, err)
	}
	return g, nil
}

func (*greenest) Name() string { return Name }

func (g *greenest) carbon(node int) int64 {
	n, err := strconv.ParseInt(g.nodes.Object[node].Annotations["example.com/carbon"], 10, 64)
	if err != nil || n < 0 {
		return g.Most
	}
	return n
}

// FilterScope says that the verdict depends on the node object alone: it is kept until that changes.
func (*greenest) FilterScope() framework.Scope { return framework.OnNode }

// Filter implements framework.FilterPlugin.
func (g *greenest) Filter(_ *framework.Cycle, node int) *framework.Status {
	if n := g.carbon(node); n > g.Most {
		return framework.Refuse(framework.Unresolvable, Name, fmt.Sprintf("node(s) had power of more than %d g/kWh", g.Most))
	}
	return nil
}

// ScoreScope is FilterScope for scores.
func (*greenest) ScoreScope() framework.Scope { return framework.OnNode }

// Score implements framework.ScorePlugin.
func (g *greenest) Score(_ *framework.Cycle, node int) int64 { return g.carbon(node) }

// Normalization says that the largest raw score is the worst.
func (*greenest) Normalization() framework.Normalization { return framework.ByMaxReversed }
