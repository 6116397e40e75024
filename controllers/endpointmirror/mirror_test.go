package endpointmirror_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/endpointmirror"
)

func lines(s *ct.Stage) []string {
	out := []string{}
	for _, slice := range ct.All[*discoveryv1.EndpointSlice](s) {
		for _, e := range slice.Endpoints {
			out = append(out, fmt.Sprintf("%s %s %s:%d ready=%v", slice.Labels["kubernetes.io/service-name"], e.Addresses[0], *slice.Ports[0].Name, *slice.Ports[0].Port, *e.Conditions.Ready))
		}
	}
	slices.Sort(out)
	return out
}

func TestHandMadeEndpointsAreMirrored(t *testing.T) {
	s := ct.New(t, endpointmirror.Descriptor()).Go()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ct.Namespace, Name: name} }
	s.Put(&corev1.Service{ObjectMeta: meta("db")}, &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}}})
	subsets := []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}},
		NotReadyAddresses: []corev1.EndpointAddress{{IP: "192.0.2.2"}}, Ports: []corev1.EndpointPort{{Name: "sql", Port: 5432}}}}
	e := s.Put(&corev1.Endpoints{ObjectMeta: meta("db"), Subsets: subsets}).(*corev1.Endpoints)
	s.Put(&corev1.Endpoints{ObjectMeta: meta("web"), Subsets: subsets})
	ct.UntilEqual(s, "mirrored", []string{"db 192.0.2.1 sql:5432 ready=true", "db 192.0.2.2 sql:5432 ready=false", "db 2001:db8::1 sql:5432 ready=true"}, func() []string { return lines(s) })
	ct.Change(s, e, func(e *corev1.Endpoints) {
		e.Subsets[0].Addresses = e.Subsets[0].Addresses[:1]
		e.Subsets[0].NotReadyAddresses = nil
	})
	ct.UntilEqual(s, "followed", []string{"db 192.0.2.1 sql:5432 ready=true"}, func() []string { return lines(s) })
	ct.Change(s, e, func(e *corev1.Endpoints) {
		e.Labels = map[string]string{"endpointslice.kubernetes.io/skip-mirror": "true"}
	})
	ct.UntilEqual(s, "skipped", []string{}, func() []string { return lines(s) })
}
