package dynamic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

var (
	serviceResource = schema.GroupResource{Resource: "services"}
	sliceResource   = schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}
)

// resolver finds Services' endpoints in the server's own store, so that a webhook is reached before any proxy has heard of it.
type resolver struct{ env kind.Env }

// Resolve finds the addresses (host:port) of a Service's port, the best first, by what env holds.
func Resolve(env kind.Env) func(ctx context.Context, namespace, name string, port int32) ([]string, error) {
	return resolver{env}.resolve
}

// resolve returns the ready endpoints of a Service's port in random order, and then the Service's own address.
func (r resolver) resolve(ctx context.Context, namespace, name string, port int32) ([]string, error) {
	obj, err := r.env.Get(ctx, serviceResource, namespace, name)
	if err != nil {
		return nil, err
	}
	service, ok := obj.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("service %s/%s is stored as %T", namespace, name, obj)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []string{join(service.Spec.ExternalName, port)}, nil
	}
	at := portOf(service, port)
	if at == nil {
		return nil, fmt.Errorf("no service port %d found for service %q", port, name)
	}
	slices, err := r.env.List(ctx, sliceResource, namespace)
	if err != nil {
		return nil, err
	}
	addresses := endpoints(slices, name, at.Name)
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no endpoints available for service %q", name)
	}
	if ip := service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
		addresses = append(addresses, join(ip, port))
	}
	return addresses, nil
}

func join(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

func portOf(s *corev1.Service, number int32) *corev1.ServicePort {
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Port == number && p.Protocol != corev1.ProtocolUDP && p.Protocol != corev1.ProtocolSCTP {
			return p
		}
	}
	return nil
}

// endpoints are the addresses that answer a Service's port, by the port's name.
func endpoints(slices []kind.Object, service, port string) []string {
	var out []string
	for _, obj := range slices {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || s.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		number := numberOf(s.Ports, port)
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; number != 0 && ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
				out = append(out, join(e.Addresses[0], number))
			}
		}
	}
	return out
}

func numberOf(ports []discoveryv1.EndpointPort, name string) int32 {
	for _, p := range ports {
		if ptr.Deref(p.Name, "") == name {
			return ptr.Deref(p.Port, 0)
		}
	}
	return 0
}
