// Package framework is the pure core of the scheduler: the state of all nodes as columns, the plugin interfaces, and the decision where one pod goes.
//
// A decision is a function of [Nodes], a [Profile] and a [Pod]; it reads no clock and no network. Filters narrow a bitmap of nodes, scores fill arrays.
// A plugin judges one node at a time and says on what its verdict depends ([Scope]); from that the framework knows what it need not ask again: pods
// with the same demands are one [Class], whose verdicts and scores are kept and renewed only for the nodes that changed since. A plugin that looks
// beyond one node ([OnCluster]) is asked in every decision, and only about nodes that are still in question; of nodes that a class can't tell apart, with all that such
// plugins say they judge by ([ColumnPlugin]), about one. What they count of pods around ([Tally]) follows changes, too, so that a decision costs as much as there are
// differences between nodes, not nodes.
//
// Guarantees: every node is judged (none is sampled); filters that judge by the node object run first, then those that look at the node's pods, then those that look at
// the cluster, each group in configured order; the first that refuses a node gives the reason. Of several best nodes one is chosen at random.
//
// Concurrency: one goroutine owns a Nodes and all profiles over it. Only Reserve, Permit, PreBind, Bind and PostBind plugins are called from others;
// they must not touch Nodes.
//
// The package does not queue, bind, or talk to the API.
package framework
