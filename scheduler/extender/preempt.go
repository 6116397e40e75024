package extender

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Victims are the pods that would have to leave a node, and how many of them budgets protect.
type Victims struct {
	Pods       []*corev1.Pod
	Violations int
}

// Preempts tells whether any extender wants to be asked who may be preempted for the pod.
func (s *Set) Preempts(pod *corev1.Pod) bool {
	for _, e := range s.list {
		if e.PreemptVerb != "" && e.interested(pod) {
			return true
		}
	}
	return false
}

// Preempt asks the extenders one after the other which of the choices, by the name of the node, they agree to, and with which victims. present are all pods of
// these nodes by UID: an extender may choose others than it was shown. Nothing left means that none will do.
func (s *Set) Preempt(ctx context.Context, pod *corev1.Pod, choices map[string]Victims, present map[string]map[types.UID]*corev1.Pod) (map[string]Victims, error) {
	for _, e := range s.list {
		if e.PreemptVerb == "" || !e.interested(pod) {
			continue
		}
		if len(choices) == 0 {
			break
		}
		left, err := e.preempt(ctx, pod, choices, present)
		if err != nil {
			if e.Ignorable && ctx.Err() == nil {
				s.log.Warn("an extender failed; pods are preempted without asking it", "extender", e.URLPrefix, "pod", pod.Namespace+"/"+pod.Name, "error", err)
				continue
			}
			return nil, err
		}
		choices = left
	}
	return choices, nil
}

func (e *extender) preempt(ctx context.Context, pod *corev1.Pod, choices map[string]Victims, present map[string]map[types.UID]*corev1.Pod) (map[string]Victims, error) {
	args := &preemptArgs{Pod: pod}
	if e.NodeCacheCapable {
		args.NodeNameToMetaVictims = map[string]*metaVictims{}
	} else {
		args.NodeNameToVictims = map[string]*victims{}
	}
	for node, v := range choices {
		if !e.NodeCacheCapable {
			args.NodeNameToVictims[node] = &victims{v.Pods, int64(v.Violations)}
			continue
		}
		meta := &metaVictims{NumPDBViolations: int64(v.Violations)}
		for _, p := range v.Pods {
			meta.Pods = append(meta.Pods, &metaPod{string(p.UID)})
		}
		args.NodeNameToMetaVictims[node] = meta
	}
	var got preemptResult
	if err := e.send(ctx, e.PreemptVerb, args, &got); err != nil {
		return nil, err
	}
	left := map[string]Victims{}
	for node, meta := range got.NodeNameToMetaVictims {
		if _, offered := choices[node]; !offered {
			return nil, fmt.Errorf("extender %s claims to preempt on node %q, which it was not asked about", e.URLPrefix, node)
		}
		v, err := e.resolve(node, meta, present[node])
		if err != nil {
			return nil, err
		}
		if len(v.Pods) > 0 {
			left[node] = v
		} else if !e.Ignorable {
			return nil, fmt.Errorf("expected at least one victim pod on node %q", node)
		}
	}
	return left, nil
}

// resolve finds the pods that an extender names.
func (e *extender) resolve(node string, meta *metaVictims, present map[types.UID]*corev1.Pod) (v Victims, err error) {
	if meta == nil {
		return v, nil
	}
	v.Violations = int(meta.NumPDBViolations)
	for _, m := range meta.Pods {
		if m == nil || present[types.UID(m.UID)] == nil {
			return v, fmt.Errorf("extender: %s claims to preempt pod (UID: %v) on node: %s, but the pod is not found on that node", e.URLPrefix, m, node)
		}
		v.Pods = append(v.Pods, present[types.UID(m.UID)])
	}
	return v, nil
}
