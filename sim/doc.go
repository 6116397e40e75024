// Package sim runs a whole cluster in one process and in virtual time: the real scheduler against simulated nodes, a workload that arrives and ends, and faults.
//
// Nothing sleeps: the clock jumps to whatever happens next, so that hours of a large cluster pass in seconds. The same [Config] leads to the same run, placement by
// placement; [Report.Digest] tells two runs apart. After each step the run is held to what a cluster must keep: no node is given more than it has, a pod is
// bound once and to a node that exists, pods that must be apart are, gangs are whole, and what fits is placed in time. The first breach ends the run
// with an error that names it.
//
// The API server is one in memory (package simulate); what is simulated here is what stands around a scheduler, not the gate or the node agent.
package sim
