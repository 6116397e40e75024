package scheduler

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/loop"
	"github.com/yare-project/yare/scheduler/policy"
)

// Reads lists what the scheduler watches, for the loop graph and its role.
func Reads() []loop.Access {
	var out []loop.Access
	for _, r := range []schema.GroupResource{{Resource: "pods"}, {Resource: "nodes"}, {Resource: "namespaces"}, {Resource: "services"}, {Resource: "replicationcontrollers"},
		{Resource: "persistentvolumeclaims"}, {Resource: "persistentvolumes"}, {Group: "apps", Resource: "replicasets"}, {Group: "apps", Resource: "statefulsets"},
		{Group: "policy", Resource: "poddisruptionbudgets"}, {Group: "storage.k8s.io", Resource: "storageclasses"}, {Group: "storage.k8s.io", Resource: "csinodes"},
		{Group: "storage.k8s.io", Resource: "csidrivers"}, {Group: "storage.k8s.io", Resource: "csistoragecapacities"}, {Group: "storage.k8s.io", Resource: "volumeattachments"},
		{Group: "resource.k8s.io", Resource: "resourceclaims"}, {Group: "resource.k8s.io", Resource: "resourceslices"}, {Group: "resource.k8s.io", Resource: "deviceclasses"},
		{Group: "scheduling.k8s.io", Resource: "podgroups"}, {Group: "scheduling.yare.io", Resource: "schedulingpolicies"}} {
		out = append(out, loop.Access{GroupResource: r, Verbs: []string{"get", "list", "watch"}})
	}
	return append(out, loop.Access{GroupResource: policy.NodeMetrics.GroupResource(), Verbs: []string{"list"}})
}

// Writes lists what the scheduler changes. Binding volumes needs more than Kubernetes' role system:kube-scheduler grants: that of system:volume-scheduler.
func Writes() []loop.Access {
	core := func(name string, verbs ...string) loop.Access {
		return loop.Access{GroupResource: schema.GroupResource{Resource: name}, Verbs: verbs}
	}
	return []loop.Access{core("pods/binding", "create"), core("pods/status", "patch", "update"), core("pods", "delete"), core("persistentvolumeclaims", "patch", "update"),
		core("persistentvolumes", "patch", "update"),
		{GroupResource: schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}, Verbs: []string{"create", "delete", "update"}},
		{GroupResource: schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims/status"}, Verbs: []string{"patch", "update"}},
		{GroupResource: schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims/binding"}, Verbs: []string{"patch", "update"}},
		{GroupResource: schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups/status"}, Verbs: []string{"patch"}},
		{GroupResource: schema.GroupResource{Group: "scheduling.yare.io", Resource: "schedulingpolicies/status"}, Verbs: []string{"patch"}}}
}
