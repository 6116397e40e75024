package dns

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/yare-project/yare/client"
)

const (
	byClusterIP = "dns/cluster-ip"
	byService   = "dns/service"
	byAddress   = "dns/address"
)

// view is the zone's View over caches.
type view struct {
	namespaces client.Cache[*corev1.Namespace]
	services   client.Cache[*corev1.Service]
	slices     client.Cache[*discoveryv1.EndpointSlice]
}

func newView(caches *client.Caches) *view {
	v := &view{
		namespaces: client.CacheOf[*corev1.Namespace](caches, client.CacheOptions{}),
		services:   client.CacheOf[*corev1.Service](caches, client.CacheOptions{}),
		slices:     client.CacheOf[*discoveryv1.EndpointSlice](caches, client.CacheOptions{}),
	}
	v.services.AddIndex(byClusterIP, func(s *corev1.Service) []string {
		if headless(s) || s.Spec.Type == corev1.ServiceTypeExternalName {
			return nil
		}
		return s.Spec.ClusterIPs
	})
	v.slices.AddIndex(byService, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	v.slices.AddIndex(byAddress, func(s *discoveryv1.EndpointSlice) []string {
		var out []string
		for _, e := range s.Endpoints {
			if len(e.Addresses) > 0 {
				out = append(out, e.Addresses[0])
			}
		}
		return out
	})
	return v
}

func (v *view) Namespace(name string) bool {
	_, ok := v.namespaces.Get("", name)
	return ok
}

func (v *view) Service(namespace, name string) (*corev1.Service, bool) {
	return v.services.Get(namespace, name)
}

func (v *view) Slices(namespace, service string) []*discoveryv1.EndpointSlice {
	return v.slices.By(byService, namespace+"/"+service)
}

func (v *view) ServiceOf(ip string) (*corev1.Service, bool) {
	found := v.services.By(byClusterIP, ip)
	if len(found) == 0 {
		return nil, false
	}
	return found[0], true
}

func (v *view) SlicesOf(ip string) []*discoveryv1.EndpointSlice {
	return v.slices.By(byAddress, ip)
}
