// Package dra gives devices to pods: the plugin DynamicResources, and the allocator behind it (KEP-4381 and its successors, as Kubernetes 1.36 has them on).
//
// A [Book] knows what drivers publish in ResourceSlices, the DeviceClasses, and which claims have which devices. It is told of every change; an allocation
// counts from the moment that Reserve decides on it, before anything is written, and until the claim that carries it is known to have given it back, so that no
// device goes to two claims.
//
// For each node that is still in question a search finds devices for all requests of all claims of a pod: the first solution in the order of pools, slices and
// devices, with alternatives in the order in which they were asked for. The search is complete: it refuses a node only if there is no solution, but for a bound on its steps,
// which its refusal then names. Devices that differ in nothing that the claims can see are tried once.
//
// Built: exact counts and all devices, prioritized lists, administrators' access, matchAttribute and distinctAttribute, taints and tolerations, shared counters, devices
// that several requests share by capacity, binding conditions, and extended resources that device classes stand for. Attributes with lists of values, resources of the node
// behind devices, claims of pod groups and DeviceTaintRules are features that 1.36 has off.
//
// Concurrency: a Book may be used from any goroutine. The plugin decides on the scheduler's goroutine and writes from others.
//
// It does not prepare devices on nodes and does not create or free claims of templates: package node and controllers/resourceclaim do.
package dra
