package simulate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// firstBatch and largestBatch bound how many more pods are tried together.
const firstBatch, largestBatch = 16, 1024

// more tries how many more pods of the manifest's only workload find a place, up to most. They evict nobody.
func (r *run) more(most int) error {
	if len(r.workloads) != 1 {
		return fmt.Errorf("how many more fit can be asked of one workload at a time; there are %d", len(r.workloads))
	}
	w := r.workloads[0]
	if !w.more {
		return fmt.Errorf("%s has one pod on each node; it can't have more", w.name)
	}
	r.fit = &Fit{Workload: w.name}
	for batch := firstBatch; r.fit.More < most; batch = min(2*batch, largestBatch) {
		subjects := r.extra(w, min(batch, most-r.fit.More))
		if err := r.rest(); err != nil {
			return err
		}
		refused := 0
		for _, s := range subjects {
			p, ok := find[*corev1.Pod](r.memory, s.key.Namespace, s.key.Name)
			switch {
			case ok && p.Spec.NodeName != "":
				r.fit.More++
			case refused == 0:
				r.explainFit(s)
				fallthrough
			default:
				refused++
			}
		}
		if refused > 0 {
			return nil
		}
	}
	return nil
}

// extra makes n more pods of a workload, which are in no list of the report.
func (r *run) extra(w *workload, n int) []*subject {
	var out []*subject
	for range n {
		pod, claims := w.member(w.next)
		w.next++
		if pod.Name == "" {
			r.number(pod)
		} else if _, taken := find[*corev1.Pod](r.memory, pod.Namespace, pod.Name); taken {
			continue
		}
		pod.Spec.PreemptionPolicy = nil
		s := r.create(w.name, pod, claims)
		if s.gone == "" {
			r.meek(s)
		}
		out = append(out, s)
	}
	return out
}

// meek makes a pod evict nobody, whatever its class says.
func (r *run) meek(s *subject) {
	if p, ok := find[*corev1.Pod](r.memory, s.key.Namespace, s.key.Name); ok {
		p = shallow(p)
		p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever)
		r.memory.put(p)
	}
}

func (r *run) explainFit(s *subject) {
	if s.gone != "" {
		r.fit.Why = s.gone
		return
	}
	for _, u := range r.trial.Unplaced() {
		if u.Pod.UID == s.uid {
			r.fit.Why, r.fit.Changes = u.Message, u.Changes
		}
	}
}
