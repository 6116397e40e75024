package aggregation

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// verdict is what the condition Available says. Reasons and messages are Kubernetes'.
type verdict struct {
	status          apiregistrationv1.ConditionStatus
	reason, message string
}

func (v verdict) passed() bool { return v.status == apiregistrationv1.ConditionTrue }

var passed = verdict{apiregistrationv1.ConditionTrue, "Passed", "all checks passed"}

func refuse(reason, format string, args ...any) verdict {
	return verdict{apiregistrationv1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
}

func unsure(reason, format string, args ...any) verdict {
	return verdict{apiregistrationv1.ConditionUnknown, reason, fmt.Sprintf(format, args...)}
}

// findings are what was found of an APIService's Service.
type findings struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice // of that Service
	// noService and noSlices are why these could not be read.
	noService, noSlices error
}

// judge says whether it is worth asking the endpoints of a Service.
func judge(of apiregistrationv1.ServiceReference, f findings) verdict {
	where := fmt.Sprintf("service/%s in %q", of.Name, of.Namespace)
	switch {
	case apierrors.IsNotFound(f.noService):
		return refuse("ServiceNotFound", "%s is not present", where)
	case f.noService != nil:
		return unsure("ServiceAccessError", "%s cannot be checked due to: %v", where, f.noService)
	case f.service.Spec.Type != corev1.ServiceTypeClusterIP && f.service.Spec.Type != "":
		return passed // only the attempt can tell
	}
	port := ptr.Deref(of.Port, 443)
	at := slices.IndexFunc(f.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	switch {
	case at < 0:
		return refuse("ServicePortError", "%s is not listening on port %d", where, port)
	case f.noSlices != nil:
		return unsure("EndpointsAccessError", "%s cannot be checked due to: %v", where, f.noSlices)
	case len(f.slices) == 0:
		return refuse("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", of.Name, of.Namespace)
	}
	if name := f.service.Spec.Ports[at].Name; !slices.ContainsFunc(f.slices, func(s *discoveryv1.EndpointSlice) bool { return answers(s, name) }) {
		return refuse("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", of.Name, of.Namespace, name)
	}
	return passed
}

// answers tells whether a slice has a ready endpoint for the named port.
func answers(s *discoveryv1.EndpointSlice, port string) bool {
	ready := slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
	return ready && slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == port && p.Port != nil })
}
