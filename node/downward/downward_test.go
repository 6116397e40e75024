package downward_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/node/downward"
)

func TestFields(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", Labels: map[string]string{"b": "2", "a": "x\"y"}, Annotations: map[string]string{"k/l": "v"}}}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName = "n", "sa"
	facts := downward.Facts{PodIPs: []string{"10.0.0.1", "fd00::1"}, HostIPs: []string{"192.0.2.1"}}
	for path, want := range map[string]string{"metadata.name": "p", "metadata.namespace": "ns", "metadata.uid": "u", "metadata.labels": "a=\"x\\\"y\"\nb=\"2\"",
		"metadata.annotations['k/l']": "v", "metadata.labels['none']": "", "spec.nodeName": "n", "spec.serviceAccountName": "sa", "status.podIP": "10.0.0.1",
		"status.podIPs": "10.0.0.1,fd00::1", "status.hostIP": "192.0.2.1", "status.hostIPs": "192.0.2.1"} {
		if got, err := downward.Field(pod, path, facts); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"spec.containers", "metadata.name['x']", ""} {
		if got, err := downward.Field(pod, path, facts); err == nil {
			t.Errorf("%q gave %q", path, got)
		}
	}
}

func TestResources(t *testing.T) {
	q := resource.MustParse
	c := &corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": q("1500m")}, Requests: corev1.ResourceList{"memory": q("33Mi")}}}
	facts := downward.Facts{Allocatable: corev1.ResourceList{"memory": q("2Gi"), "cpu": q("4")}}
	for _, test := range []struct{ resource, divisor, want string }{
		{"limits.cpu", "", "2"}, {"limits.cpu", "1m", "1500"}, {"requests.memory", "1Mi", "33"}, {"limits.memory", "1Gi", "2"}, {"requests.cpu", "", "0"},
	} {
		sel := &corev1.ResourceFieldSelector{Resource: test.resource}
		if test.divisor != "" {
			sel.Divisor = q(test.divisor)
		}
		if got, err := downward.Resource(&corev1.Pod{}, c, sel, facts); err != nil || got != test.want {
			t.Errorf("%s / %s = %q, %v, want %s", test.resource, test.divisor, got, err, test.want)
		}
	}
	if _, err := downward.Resource(&corev1.Pod{}, c, &corev1.ResourceFieldSelector{Resource: "limits.gpus"}, facts); err == nil {
		t.Error("an unknown resource was accepted")
	}
}
