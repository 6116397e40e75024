package discovery_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apidiscovery "github.com/yare-project/yare/apiserver/discovery"
)

// Other servers' group versions stand among this server's own, by their places; a version may be another server's in a group that is this one's.
func TestServicesOfOthers(t *testing.T) {
	s := &source{kinds: groups(), revision: 1}
	gv := func(group, version string) schema.GroupVersion {
		return schema.GroupVersion{Group: group, Version: version}
	}
	widgets := []discoveryv2.APIResourceDiscovery{{Resource: "widgets", Scope: discoveryv2.ScopeNamespace, ResponseKind: &metav1.GroupVersionKind{Kind: "Widget"}}}
	services := []apidiscovery.Service{
		{GroupVersion: gv("example.com", "v1beta1"), Place: apidiscovery.Place{Group: 17790, Version: 5}, Remote: true, Fresh: true, Resources: widgets},
		{GroupVersion: gv("example.com", "v2"), Place: apidiscovery.Place{Group: 100, Version: 10}, Remote: true},
		{GroupVersion: gv("autoscaling", "v1"), Place: apidiscovery.Place{Group: 17500, Version: 99}},
		{GroupVersion: gv("apps", "v1"), Place: apidiscovery.Place{Group: 17800, Version: 1}, Remote: true, Fresh: true, Resources: widgets},
		{GroupVersion: gv("gone.example.com", "v1"), Place: apidiscovery.Place{Group: 17500, Version: 99}},
	}
	known := uint64(1)
	place := map[string]int32{"apps": 17800, "events.k8s.io": 17750, "autoscaling": 17500}
	server := httptest.NewServer(apidiscovery.New(apidiscovery.Config{Kinds: s.get,
		Place: func(gv schema.GroupVersion) apidiscovery.Place {
			return apidiscovery.Place{Group: place[gv.Group], Version: 1}
		},
		Services: func() ([]apidiscovery.Service, uint64) { return services, known }}))
	t.Cleanup(server.Close)

	list := func() (out []string) {
		t.Helper()
		_, _, body := get(t, server, "/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		var groups discoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal([]byte(body), &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups.Items {
			for _, v := range g.Versions {
				var resources []string
				for _, r := range v.Resources {
					resources = append(resources, r.Resource)
				}
				out = append(out, g.Name+"/"+v.Version+" "+string(v.Freshness)+" "+strings.Join(resources, ","))
			}
		}
		return out
	}
	want := []string{"apps/v1 Current widgets", "example.com/v2 Stale ", "example.com/v1beta1 Current widgets", "events.k8s.io/v1 Current events",
		"autoscaling/v1 Current horizontalpodautoscalers", "autoscaling/v2 Current horizontalpodautoscalers"}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The unaggregated form names them too; what is in a version, its server says.
	_, _, body := get(t, server, "/apis/example.com")
	if !strings.Contains(body, `"preferredVersion":{"groupVersion":"example.com/v2","version":"v2"}`) {
		t.Error(body)
	}
	if status, _, _ := get(t, server, "/apis/apps/v1"); status != 404 {
		t.Errorf("another server's version is answered with %d", status)
	}
	services, known = services[:1], 2
	if got := list(); got[1] != "example.com/v1beta1 Current widgets" || got[0] != "apps/v1 Current deployments" {
		t.Errorf("after a change: %q", got)
	}
}
