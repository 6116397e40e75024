package apiregistration_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/kinds/apiregistration"
)

// Every built-in group has a place of its own, Kubernetes', and nothing else has one.
func TestPriorities(t *testing.T) {
	for _, g := range kinds.Groups() {
		for _, k := range g.Kinds {
			for i := range k.Versions {
				gv := k.Versions[i].GroupVersion()
				if group, version := apiregistration.Priorities(gv); group <= 15000 || version <= 0 {
					t.Errorf("%s has priorities %d, %d", gv, group, version)
				}
			}
		}
	}
	place := func(group, version string) [2]int32 {
		g, v := apiregistration.Priorities(schema.GroupVersion{Group: group, Version: version})
		return [2]int32{g, v}
	}
	for _, c := range []struct {
		group, version string
		want           [2]int32
	}{
		{"", "v1", [2]int32{18000, 1}}, {"apps", "v1", [2]int32{17800, 15}}, {"autoscaling", "v2", [2]int32{17500, 30}}, {"autoscaling", "v1", [2]int32{17500, 15}},
		{"storage.k8s.io", "v1beta1", [2]int32{16800, 9}}, {"apiregistration.k8s.io", "v1", [2]int32{20001, 15}}, {"example.com", "v1", [2]int32{0, 0}},
	} {
		if got := place(c.group, c.version); got != c.want {
			t.Errorf("%s/%s: %v, want %v", c.group, c.version, got, c.want)
		}
	}
}
