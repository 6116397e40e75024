package simulate

import "github.com/yare-project/yare/scheduler/explain"

// Report is the answer.
type Report struct {
	// Pods are those that were asked about, in the order given.
	Pods []Placement `json:"pods"`
	// Moved are the pods of lost nodes.
	Moved []Placement `json:"moved,omitempty"`
	// Evicted are the pods that make room for others.
	Evicted []Placement `json:"evicted,omitempty"`
	// Waiting are the pods that have no node in the cluster as it is.
	Waiting []Placement `json:"waiting,omitempty"`
	Fit     *Fit        `json:"fit,omitempty"`
	Nodes   *Nodes      `json:"nodes,omitempty"`
	Notes   []string    `json:"notes,omitempty"`
}

// Placement is what becomes of a pod.
type Placement struct {
	Pod      string           `json:"pod"`                // namespace/name
	Workload string           `json:"workload,omitempty"` // kind/name of what brought it
	Node     string           `json:"node,omitempty"`     // where it goes; empty if nowhere
	From     string           `json:"from,omitempty"`     // where it was
	Evicts   []string         `json:"evicts,omitempty"`   // pods that make room for it
	For      string           `json:"for,omitempty"`      // of an evicted pod: which pod it makes room for
	Note     string           `json:"note,omitempty"`     // what it has to wait for before it is bound there
	Why      string           `json:"why,omitempty"`      // it has no node
	Changes  []explain.Change `json:"changes,omitempty"`  // the smallest that would give it one
}

// Fit is how many more pods like those of a workload find a node without an eviction, when all others are placed.
type Fit struct {
	Workload string `json:"workload"`
	More     int    `json:"more"`
	// Why the next one does not; empty if more were not tried.
	Why     string           `json:"why,omitempty"`
	Changes []explain.Change `json:"changes,omitempty"`
}

// Nodes is how many more nodes of one sort it takes until all pods have one.
type Nodes struct {
	Like  string `json:"like"`  // name of a node, or a shape
	Added int    `json:"added"` // how many were added
	// Enough tells whether all pods have a node then; if not, more such nodes do not help.
	Enough bool `json:"enough"`
}

// Unplaced counts the pods that were asked about, or that lost their node, and find none.
func (r *Report) Unplaced() int {
	n := 0
	for _, list := range [][]Placement{r.Pods, r.Moved} {
		for _, p := range list {
			if p.Node == "" {
				n++
			}
		}
	}
	return n
}
