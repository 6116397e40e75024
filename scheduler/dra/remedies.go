package dra

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/yare-project/yare/scheduler/framework"
)

// How large changes are beside each other, the smaller ones first.
const (
	partTolerate = 0.2
	partFree     = 0.4
	partLoosen   = 0.6
	partRepair   = 0.8
	partMore     = 1.0 // and more by how much is missing
)

func deviceRemedy(name string, part float64, do string, args ...any) framework.Remedy {
	return framework.Remedy{Kind: framework.Device, Plugin: Name, Name: name, Part: part, Do: fmt.Sprintf(do, args...)}
}

// Remedies implements framework.Remedier: what claims wait for, or what would let them have devices on a node. A change that is a matter of what is taken, tainted or tied is
// tried before it is told, so that it is enough.
func (p *plugin) Remedies(c *framework.Cycle, i int, refusal *framework.Status) []framework.Remedy {
	if i < 0 {
		return p.ofThePod(c.Pod.Object, refusal)
	}
	s, ok := c.Get(Name).(*state)
	if !ok {
		return nil
	}
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	node := c.Nodes.Object[i]
	demands, status := p.book.demandsOn(c, s, i)
	if status != nil {
		if e := s.extended; e != nil && e.stale != nil {
			return []framework.Remedy{deviceRemedy(e.stale.Name, partRepair, "ResourceClaim %s deleted, which is left of an earlier attempt to place the pod", e.stale.Name)}
		}
		return []framework.Remedy{deviceRemedy("", partMore, "an end to this: %s", status.Message())}
	}
	if out := p.elsewhere(s, node); len(out) > 0 {
		return out
	}
	if refusal.Message() == tooLong || refusal.Message() == overall.Message() {
		return []framework.Remedy{deviceRemedy("", partMore, "claims with fewer requests, or narrower selectors: the search for devices on node %s is given up after %d steps", node.Name, stepsPerNode)}
	}
	t := &trial{book: p.book, state: s, node: node, demands: demands, budget: looksPerExplanation}
	return t.remedies()
}

// ofThePod says what the pod's claims wait for wherever it goes.
func (p *plugin) ofThePod(pod *corev1.Pod, refusal *framework.Status) []framework.Remedy {
	var out []framework.Remedy
	tell := func(name, do string, args ...any) { out = append(out, deviceRemedy(name, partRepair, do, args...)) }
	for i := range pod.Spec.ResourceClaims {
		pc := &pod.Spec.ResourceClaims[i]
		name, owned, err := resourceclaim.Name(pod, pc)
		if err != nil {
			if pc.ResourceClaimTemplateName == nil {
				tell(pc.Name, "an end to this: %s", err)
			} else {
				tell(pc.Name, "a ResourceClaim made for the pod's claim %s from template %s", pc.Name, *pc.ResourceClaimTemplateName)
			}
			continue
		}
		if name == nil {
			continue
		}
		claim, ok := p.book.Claim(pod.Namespace, *name)
		switch {
		case !ok:
			tell(*name, "ResourceClaim %s created", *name)
		case claim.DeletionTimestamp != nil:
			tell(*name, "ResourceClaim %s gone, which is being deleted, and created anew", *name)
		case owned && resourceclaim.IsForPod(pod, claim, false) != nil:
			tell(*name, "a ResourceClaim that belongs to this pod in place of %s, which belongs to another", *name)
		default:
			out = append(out, p.ofClaim(pod, claim)...)
		}
	}
	if len(out) == 0 && refusal != nil {
		tell("", "an end to this: %s", refusal.Message())
	}
	return out
}

// ofClaim says why a claim that is there can't be used or get devices anywhere.
func (p *plugin) ofClaim(pod *corev1.Pod, claim *resourcev1.ResourceClaim) []framework.Remedy {
	if claim.Status.Allocation != nil {
		if len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize && !resourceclaim.IsReservedForPod(pod, claim, false) {
			return []framework.Remedy{deviceRemedy(claim.Name, partFree, "one of the %d pods that share claim %s gone, or another claim", len(claim.Status.ReservedFor), claim.Name)}
		}
		return nil
	}
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	if p.book.pending[claim.UID] != nil {
		return []framework.Remedy{deviceRemedy(claim.Name, 0, "claim %s written with the devices that it gets for another pod at this moment", claim.Name)}
	}
	var out []framework.Remedy
	for i := range claim.Spec.Devices.Requests {
		q := &claim.Spec.Devices.Requests[i]
		for _, name := range classesOf(q) {
			if _, ok := p.book.class(name); !ok {
				out = append(out, deviceRemedy(name, partRepair, "DeviceClass %s created, which request %s of claim %s names", name, q.Name, claim.Name))
			}
		}
	}
	return out
}

func classesOf(q *resourcev1.DeviceRequest) []string {
	if q.Exactly != nil {
		return []string{q.Exactly.DeviceClassName}
	}
	var out []string
	for i := range q.FirstAvailable {
		if name := q.FirstAvailable[i].DeviceClassName; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// elsewhere says of claims whose devices are not for this node who must leave them, so that they may get others.
func (p *plugin) elsewhere(s *state, node *corev1.Node) []framework.Remedy {
	var out []framework.Remedy
	for _, pc := range s.claims {
		if pc.claim.Status.Allocation == nil || p.usable(pc, node) {
			continue
		}
		name := pc.claim.Name
		if pc.selector == nil || pc.selector.Match(node) {
			out = append(out, deviceRemedy(name, partRepair, "the devices of claim %s ready to be used: their binding conditions were not met in time", name))
			continue
		}
		m := deviceRemedy(name, partFree, "claim %s given up by all pods, so that it may get devices on node %s (it has them %s)", name, node.Name, placeOf(pc.claim.Status.Allocation.NodeSelector))
		m.Pods = podsOf(pc.claim)
		if len(m.Pods) > 0 {
			m.Do = fmt.Sprintf("claim %s given up by %s, so that it may get devices on node %s (it has them %s)", name, listed("pod", m.Pods), node.Name, placeOf(pc.claim.Status.Allocation.NodeSelector))
		}
		out = append(out, m)
	}
	return out
}

// placeOf writes down a selector of nodes.
func placeOf(s *corev1.NodeSelector) string {
	var terms []string
	for _, t := range s.NodeSelectorTerms {
		var parts []string
		for _, f := range t.MatchFields {
			if f.Key == metadataName && f.Operator == corev1.NodeSelectorOpIn {
				parts = append(parts, "on node "+strings.Join(f.Values, " or "))
			}
		}
		for _, e := range t.MatchExpressions {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("where label %s is %s %s", e.Key, e.Operator, strings.Join(e.Values, ", "))))
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	return strings.Join(terms, " or ")
}

const metadataName = "metadata.name"

// podsOf lists the pods that a claim is reserved for.
func podsOf(claim *resourcev1.ResourceClaim) []types.NamespacedName {
	var out []types.NamespacedName
	for _, r := range claim.Status.ReservedFor {
		if r.Resource == "pods" && r.APIGroup == "" {
			out = append(out, types.NamespacedName{Namespace: claim.Namespace, Name: r.Name})
		}
	}
	slices.SortFunc(out, compareNames)
	return out
}

func compareNames(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

// listed names the first few of several things.
func listed(word string, list []types.NamespacedName) string {
	const most = 2
	var names []string
	for k, n := range list {
		if k == most {
			names = append(names, fmt.Sprintf("%d more", len(list)-most))
			break
		}
		names = append(names, n.String())
	}
	if len(list) > 1 {
		word += "s"
	}
	return word + " " + strings.Join(names, ", ")
}
