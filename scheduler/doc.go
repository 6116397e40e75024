// Package scheduler gives every pod without a node the best one.
//
// It decides on a snapshot and commits elsewhere: one goroutine owns the state of all nodes (scheduler/framework), applies the changes that the caches told of between two
// decisions, and decides; binding, status and preemption are written by others, many at a time, so that no write to disk holds up a decision. A decided
// pod counts on its node at once; if it can't be bound it is taken off again and retried after a back-off.
//
// Pods are taken by priority, then by age. One that fits nowhere is parked with the plugins that refused it, and woken only by a change which those plugins say may
// help it, after a back-off of 1 s doubling to 10 s if there is other work; after five minutes it is tried in any case. Its user sees an event
// FailedScheduling and the condition PodScheduled with the reason of every node.
//
// Guarantees: no pod is bound twice; a node is never given more than it has, as far as the caches know of it; all nodes are judged.
//
// New and Run are all there is to call; what a scheduler does per pod is a matter of its Profiles, read from a KubeSchedulerConfiguration.
package scheduler
