// Package policy is the scheduler plugin SchedulingPolicy: it filters and scores nodes by the CEL expressions of the SchedulingPolicies that select a pod.
//
// A [Book] holds the compiled policies and the numbers of the nodes; it belongs to the goroutine that owns the scheduler's [framework.Nodes], as all plugins
// made from it do. Numbers come from the nodes' annotations under metrics.yare.io/ and from any [Source]; where both name one, the annotation counts.
//
// A node passes if the filters of all policies that select the pod are true. Its score is the sum over all their scores of weight times
// round(clamp((x - worst) / (best - worst) * 100, 0, 100)); one of weight 3 counts like a score plugin of weight 3.
//
// Guarantees: an expression that reads neither what pods request of the node nor anything else that pods change is evaluated once for each class of pods and node, and
// again only when the node's object or its numbers change, or the policy does. A pod that no policy selects costs nothing to speak of: no evaluation and no
// allocation. An evaluation costs at most nodeexpr.MaxCost; what it can't do is decided by the expression's failure policy.
//
// The package neither reads policies from the API nor writes their status: scheduler does.
package policy
