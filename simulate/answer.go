package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler"
)

// report says what came of it.
func (r *run) report() (*Report, error) {
	unplaced := map[types.UID]scheduler.Unplaced{}
	for _, u := range r.trial.Unplaced() {
		unplaced[u.Pod.UID] = u
	}
	list := func(subjects []*subject) []Placement {
		var out []Placement
		for _, s := range subjects {
			out = append(out, r.placement(s, unplaced))
		}
		return out
	}
	out := &Report{Pods: list(r.asked), Moved: list(r.moved), Evicted: list(r.evicted), Waiting: list(r.waiting), Fit: r.fit, Nodes: r.added, Notes: r.notes}
	slices.SortStableFunc(out.Evicted, func(a, b Placement) int { return cmp.Or(strings.Compare(a.For, b.For), strings.Compare(a.Pod, b.Pod)) })
	return out, r.ctx.Err()
}

func (r *run) placement(s *subject, unplaced map[types.UID]scheduler.Unplaced) Placement {
	out := Placement{Pod: s.key.String(), Workload: s.workload, From: s.from, Evicts: s.evicts, For: s.yields, Why: s.gone}
	slices.Sort(out.Evicts)
	if s.gone != "" {
		return out
	}
	p, ok := find[*corev1.Pod](r.memory, s.key.Namespace, s.key.Name)
	switch u, waits := unplaced[s.uid]; {
	case !ok || p.UID != s.uid:
		out.Why = alone
	case p.Spec.NodeName != "":
		out.Node, out.Note = p.Spec.NodeName, r.unmet(p)
	case waits:
		out.Why, out.Changes = u.Message, u.Changes
	default:
		out.Why = fmt.Sprintf("no profile is called %s: another scheduler places it", p.Spec.SchedulerName)
	}
	return out
}
