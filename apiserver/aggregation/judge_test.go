package aggregation

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

func TestJudge(t *testing.T) {
	service := func(typ corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: typ, Ports: ports}}
	}
	slice := func(port string, ready *bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &port, Port: ptr.To[int32](8443)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}}}
	}
	web := corev1.ServicePort{Name: "web", Port: 443}
	for name, c := range map[string]struct {
		findings
		status, reason, message string
	}{
		"no service":       {findings{noService: apierrors.NewNotFound(corev1.Resource("services"), "api")}, "False", "ServiceNotFound", `service/api in "ns" is not present`},
		"unread service":   {findings{noService: errors.New("later")}, "Unknown", "ServiceAccessError", `service/api in "ns" cannot be checked due to: later`},
		"other port":       {findings{service: service("ClusterIP", corev1.ServicePort{Port: 80})}, "False", "ServicePortError", `service/api in "ns" is not listening on port 443`},
		"unread endpoints": {findings{service: service("ClusterIP", web), noSlices: errors.New("later")}, "Unknown", "EndpointsAccessError", `service/api in "ns" cannot be checked due to: later`},
		"no endpoints":     {findings{service: service("ClusterIP", web)}, "False", "EndpointsNotFound", `cannot find endpointslices for service/api in "ns"`},
		"not ready": {findings{service: service("ClusterIP", web), slices: []*discoveryv1.EndpointSlice{slice("web", ptr.To(false)), slice("other", nil)}},
			"False", "MissingEndpoints", `endpointslices for service/api in "ns" have no addresses with port name "web"`},
		"ready":         {findings{service: service("ClusterIP", web), slices: []*discoveryv1.EndpointSlice{slice("web", nil)}}, "True", "Passed", "all checks passed"},
		"external name": {findings{service: service("ExternalName")}, "True", "Passed", "all checks passed"},
	} {
		got := judge(apiregistrationv1.ServiceReference{Namespace: "ns", Name: "api"}, c.findings)
		want := verdict{apiregistrationv1.ConditionStatus(c.status), c.reason, c.message}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(verdict{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
