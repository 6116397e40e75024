// Package nodeexpr compiles and evaluates CEL expressions about a pod, a node and the node's numbers, as SchedulingPolicies have them.
//
// An expression sees
//
//	pod        namespace, labels, annotations, nodeSelector, priority, schedulerName, requests, images
//	node       name, labels, annotations, allocatable, requested, conditions, unschedulable
//	metrics    numbers by name
//	variables  what the expressions before it named
//
// and the functions that expressions have everywhere in Kubernetes. Of a pod it sees what all pods of one template share, so that a verdict holds for all of
// them; there is no clock and no randomness. Fields are checked when an expression is compiled; whether a node has a label or a metric shows when it is
// evaluated.
//
// Cost: an expression whose worst case, for maps and texts of the sizes below, exceeds MaxCost is refused; one that exceeds it all the same is stopped. A
// unit is about what reading one field takes; some hundred nanoseconds.
//
// A Compiler is for one goroutine, an Expression for any number, an Input for one at a time.
package nodeexpr
