package plugins

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// gang holds back the pods of a PodGroup until there are enough of them (KEP-4671), and keeps a group in its topology domain. That they are placed together
// is the scheduler's own doing.
type gang struct{ groups framework.Groups }

func newGang(args []byte, h *framework.Handle) (framework.Plugin, error) {
	if err := decode(args, GangScheduling, &struct {
		metav1.TypeMeta `json:",inline"`
	}{}); err != nil {
		return nil, err
	}
	return gang{h.Groups}, nil
}

func (gang) Name() string { return GangScheduling }

// PreEnqueue implements framework.PreEnqueuePlugin.
func (g gang) PreEnqueue(p *framework.Pod) *framework.Status {
	name, ok := p.Group()
	if !ok || g.groups == nil {
		return nil
	}
	least, pods, known := g.groups.Group(p)
	switch {
	case !known:
		return framework.Refuse(framework.Unresolvable, GangScheduling, fmt.Sprintf("its pod group %q does not exist", name))
	case pods < least:
		return framework.Refuse(framework.Unresolvable, GangScheduling, fmt.Sprintf("its pod group %q needs %d pods, and there are fewer", name, least))
	}
	return nil
}

// PreFilter implements framework.PreFilterPlugin.
func (g gang) PreFilter(c *framework.Cycle) *framework.Status {
	if g.groups == nil || g.groups.Domain(c.Pod) == nil {
		return skipFilter
	}
	return nil
}

func (gang) FilterScope() framework.Scope { return framework.OnCluster }

var elsewhere = framework.Refuse(framework.Unresolvable, GangScheduling, "node(s) weren't in the pod group's topology domain")

// Filter implements framework.FilterPlugin.
func (g gang) Filter(c *framework.Cycle, node int) *framework.Status {
	if in := g.groups.Domain(c.Pod); in != nil && !in.Has(node) {
		return elsewhere
	}
	return nil
}

// FilterAll implements framework.BatchFilter.
func (g gang) FilterAll(c *framework.Cycle, in framework.Bits, refuse func(int, *framework.Status)) {
	domain := g.groups.Domain(c.Pod)
	for i := range in.All() {
		if domain != nil && !domain.Has(i) {
			refuse(i, elsewhere)
		}
	}
}

// Columns implements framework.ColumnPlugin.
func (g gang) Columns(c *framework.Cycle, columns []*framework.Column) ([]*framework.Column, bool) {
	if g.groups == nil || g.groups.Domain(c.Pod) == nil {
		return columns, true
	}
	return append(columns, c.Nodes.Label(g.groups.Topology(c.Pod)).Column()), true
}

// Domain implements framework.DomainFilter.
func (g gang) Domain(c *framework.Cycle) (framework.Bits, *framework.Status) {
	return g.groups.Domain(c.Pod), elsewhere
}

// Steady implements framework.SteadyFilter.
func (gang) Steady() {}

// Shift implements framework.ShiftPlugin: where pods are does not matter to it.
func (gang) Shift(*framework.Cycle, *framework.Pod, int, int) {}

// Events implements framework.HintPlugin. What helps a gang's refused pods is told by the plugins that refused them, and the scheduler wakes a group itself.
func (gang) Events() framework.EventKind                     { return framework.NodeAdded | framework.NodeLabels }
func (gang) Helps(p *framework.Pod, e *framework.Event) bool { return true }
