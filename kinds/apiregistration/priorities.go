package apiregistration

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// groupPriorities and versionPriorities are Kubernetes' own (its DefaultAPIServicePriorities): clients that find a name in several groups take the group
// that comes first.
var groupPriorities = map[string]int32{
	"": 18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700, "authorization.k8s.io": 17600, "autoscaling": 17500, "batch": 17400,
	"certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100, "rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800,
	"apiextensions.k8s.io": 16700, "admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600, "coordination.k8s.io": 16500, "node.k8s.io": 16300,
	"discovery.k8s.io": 16200, "resource.k8s.io": 16200, "flowcontrol.apiserver.k8s.io": 16100, "internal.apiserver.k8s.io": 16000,
	"storagemigration.k8s.io": 15800,
	// Yare's own come after Kubernetes'.
	"scheduling.yare.io": 15500,
	// This group has no APIService: it comes before all that have one.
	"apiregistration.k8s.io": maxGroupPriority + 1,
}

var versionPriorities = map[schema.GroupVersion]int32{
	{Version: "v1"}:                                             1,
	{Group: "autoscaling", Version: "v2"}:                       30,
	{Group: "resource.k8s.io", Version: "v1"}:                   21,
	{Group: "resource.k8s.io", Version: "v1beta2"}:              15,
	{Group: "resource.k8s.io", Version: "v1alpha3"}:             1,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:      21,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3"}: 18,
	{Group: "admissionregistration.k8s.io", Version: "v1beta1"}: 12,
	{Group: "coordination.k8s.io", Version: "v1beta1"}:          13,
	{Group: "coordination.k8s.io", Version: "v1alpha2"}:         12,
	{Group: "scheduling.k8s.io", Version: "v1alpha2"}:           2,
}

// Priorities are the place of a built-in group among the groups, and of a version among its group's: higher comes first. Zero means that it has none of its
// own.
func Priorities(gv schema.GroupVersion) (group, version int32) {
	group = groupPriorities[gv.Group]
	switch v, ok := versionPriorities[gv]; {
	case group == 0:
		return 0, 0
	case ok:
		return group, v
	case gv.Version == apiregistrationv1.SchemeGroupVersion.Version: // v1
		return group, 15
	}
	return group, 9
}
