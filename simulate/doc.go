// Package simulate says where pods would go in a cluster, by running the scheduler on a copy of it.
//
// A [Cluster] is what the scheduler reads of a cluster: read from a live one ([Read], which only lists), or from a file that [Cluster.Save] wrote. [Run] fills an API server in
// memory with it, defaults and admits the new pods as the real one would, and lets the scheduler of package scheduler decide, one pod after the other, until
// nothing is left to decide. No cluster is changed, and nothing is asked of one while it runs.
//
// Around the scheduler stands what it waits for in a real cluster, without the time that takes: evicted pods go once nothing else can be decided, pods that
// a controller would replace come back, volumes are bound and provisioned. Kubelets, quotas, webhooks and autoscalers take no part.
//
// The same cluster, pods, configuration and seed give the same report. A Cluster is not safe for concurrent use while it is changed; Run leaves it as it was.
package simulate
