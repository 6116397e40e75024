package endpoints_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/endpoints"
)

func backend(name, ip string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}}
}

func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1",
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "admin", Port: 81}}}}
}

// shape is what a client reads: addresses by readiness, and ports, of each subset.
func shape(e *corev1.Endpoints) []string {
	if e == nil {
		return nil
	}
	var out []string
	for _, s := range e.Subsets {
		l := ""
		for _, a := range s.Addresses {
			l += a.IP + " "
		}
		l += "/"
		for _, a := range s.NotReadyAddresses {
			l += " " + a.IP
		}
		for _, p := range s.Ports {
			l += fmt.Sprintf(" %s:%d/%s", p.Name, p.Port, p.Protocol)
		}
		out = append(out, l)
	}
	return out
}

func TestEndpointsFollowPodsAndService(t *testing.T) {
	s := ct.New(t, endpoints.Descriptor()).Go()
	svc := s.Put(service()).(*corev1.Service)
	a := s.Put(backend("a", "10.1.0.1", true)).(*corev1.Pod)
	s.Put(backend("b", "10.1.0.2", false))
	get := func() []string { return shape(ct.Get[*corev1.Endpoints](s, "web")) }
	ct.UntilEqual(s, "one ready, one not", []string{"10.1.0.1 / 10.1.0.2 http:80/TCP admin:81/TCP"}, get)
	if l := ct.Get[*corev1.Endpoints](s, "web").Labels["endpoints.kubernetes.io/managed-by"]; l != "endpoint-controller" {
		t.Errorf("managed-by is %q", l)
	}
	ct.Delete(s, a, metav1.DeleteOptions{})
	ct.UntilEqual(s, "a deleted pod is out", []string{"/ 10.1.0.2 http:80/TCP admin:81/TCP"}, get)
	ct.Delete(s, svc, metav1.DeleteOptions{})
	ct.UntilEqual(s, "gone with the Service", nil, get)
}

func TestCapacity(t *testing.T) {
	s := ct.New(t, endpoints.Descriptor()).Go()
	for i := range 1010 {
		s.Put(backend(fmt.Sprintf("p%04d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), i%2 == 0))
	}
	s.Put(service())
	got := func() [3]any {
		e := ct.Get[*corev1.Endpoints](s, "web")
		if e == nil {
			return [3]any{}
		}
		return [3]any{len(e.Subsets[0].Addresses), len(e.Subsets[0].NotReadyAddresses), e.Annotations[corev1.EndpointsOverCapacity]}
	}
	s.Until("endpoints", func() bool { return ct.Get[*corev1.Endpoints](s, "web") != nil }, func() any { return "none" })
	s.Settled()
	if diff := cmp.Diff([3]any{505, 495, "truncated"}, got()); diff != "" {
		t.Errorf("ready, not ready, annotation (-want +got):\n%s", diff)
	}
}
