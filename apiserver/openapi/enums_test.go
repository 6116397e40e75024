package openapi

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestFixedValuesAreListed(t *testing.T) {
	d := newDefinitions(nil, builtinRules())
	pod := d.byName[d.add(reflect.TypeFor[corev1.ContainerPort]())]
	if diff := cmp.Diff([]any{"SCTP", "TCP", "UDP"}, pod.Properties["protocol"].Enum); diff != "" {
		t.Errorf("protocol (-want +got):\n%s", diff)
	}
	if free := pod.Properties["name"].Enum; free != nil {
		t.Errorf("a name is one of %v", free)
	}
	service := d.byName[d.add(reflect.TypeFor[corev1.ServiceSpec]())]
	families := service.Properties["ipFamilies"]
	if diff := cmp.Diff([]any{"", "IPv4", "IPv6"}, families.Items.Schema.Enum); diff != "" {
		t.Errorf("items of a list (-want +got):\n%s", diff)
	}
}
