// Package quota measures what an object uses of a ResourceQuota, for the two that must agree about it: admission, which charges a request, and the loop that
// counts.
//
// Measuring is pure: objects and quotas in, lists of amounts out; nothing given is changed. [Ledger] is the one thing with state: it remembers what was
// charged for requests whose objects no watcher has seen yet, so that a count does not take the charge back.
package quota

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is anything that can be counted.
type Object interface {
	runtime.Object
	metav1.Object
}

var (
	pods     = schema.GroupResource{Resource: "pods"}
	services = schema.GroupResource{Resource: "services"}
	claims   = schema.GroupResource{Resource: "persistentvolumeclaims"}
	devices  = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
)

// plain are the resources whose number had a name before count/ was there for all (Kubernetes documentation, "Resource Quotas").
var plain = map[schema.GroupResource]corev1.ResourceName{
	services:                             corev1.ResourceServices,
	claims:                               corev1.ResourcePersistentVolumeClaims,
	{Resource: "replicationcontrollers"}: corev1.ResourceReplicationControllers,
	{Resource: "resourcequotas"}:         corev1.ResourceQuotas,
	{Resource: "secrets"}:                corev1.ResourceSecrets,
	{Resource: "configmaps"}:             corev1.ResourceConfigMaps,
}

const countPrefix = "count/"

// CountName is the amount that every object of a resource uses one of, whatever its state.
func CountName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName(countPrefix + gr.String())
}

// Ignored are resources that no quota counts: they are answered, not kept, or come and go by themselves.
func Ignored(gr schema.GroupResource) bool {
	return gr.Resource == "events" || gr.Group == "" && (gr.Resource == "bindings" || gr.Resource == "componentstatuses")
}

// Measured tells whether more than the number of its objects counts, so that an update may change what is used.
func Measured(gr schema.GroupResource) bool {
	return gr == pods || gr == services || gr == claims || gr == devices
}

// Covers tells whether objects of a resource use of what a quota calls name.
func Covers(gr schema.GroupResource, name corev1.ResourceName) bool {
	if name == CountName(gr) || name != "" && plain[gr] == name {
		return true
	}
	switch gr {
	case pods:
		return podCovers(name)
	case services:
		return name == corev1.ResourceServicesNodePorts || name == corev1.ResourceServicesLoadBalancers
	case claims:
		return claimCovers(name)
	case devices:
		return strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass)
	}
	return false
}

// Covered are the names of hard, in order, of which objects of a resource use.
func Covered(gr schema.GroupResource, hard corev1.ResourceList) []corev1.ResourceName {
	return slices.DeleteFunc(Names(hard), func(n corev1.ResourceName) bool { return !Covers(gr, n) })
}

// Usage is what an object uses at a time. The time matters for pods that should be gone by now.
func Usage(gr schema.GroupResource, obj Object, now time.Time) corev1.ResourceList {
	out := corev1.ResourceList{CountName(gr): one}
	if name, ok := plain[gr]; ok {
		out[name] = one
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		usePod(out, o, now)
	case *corev1.Service:
		useService(out, o)
	case *corev1.PersistentVolumeClaim:
		useClaim(out, o)
	case *resourcev1.ResourceClaim:
		useDevices(out, o)
	}
	return out
}

var one = *resource.NewQuantity(1, resource.DecimalSI)

// Missing are the amounts that a quota bounds and an object must therefore name, as a text for its author; empty when all is there.
func Missing(obj Object, bounded []corev1.ResourceName) string {
	if pod, ok := obj.(*corev1.Pod); ok {
		return missing(pod, bounded)
	}
	return ""
}
