package core

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

var sliceResource = schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}

// serviceProxy is one ready pod behind a service: at the port with the name or number asked for, else at the unnamed one.
func serviceProxy(ctx context.Context, env kind.Env, s *corev1.Service, path string, query url.Values) (kind.Target, error) {
	via := kind.ViaOf(ctx)
	name := via.Port
	if n, err := strconv.ParseInt(via.Port, 10, 32); err == nil {
		found := false
		for _, p := range s.Spec.Ports {
			if int64(p.Port) == n {
				name, found = p.Name, true
				break
			}
		}
		if !found {
			return kind.Target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", n, s.Name))
		}
	}
	list, err := env.List(ctx, sliceResource, s.Namespace)
	if err != nil {
		return kind.Target{}, fmt.Errorf("list endpoint slices: %w", err)
	}
	type address struct {
		ip   string
		port int32
	}
	var ready []address
	for _, obj := range list {
		slice := obj.(*discoveryv1.EndpointSlice)
		port := slicePort(slice, name)
		if slice.Labels[discoveryv1.LabelServiceName] != s.Name || port == 0 {
			continue
		}
		for _, e := range slice.Endpoints {
			isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
			// Only pods are proxied to: an endpoint written by hand could point anywhere.
			if isReady && len(e.Addresses) > 0 && isPodOf(ctx, env, s.Namespace, e.TargetRef, e.Addresses[0]) {
				ready = append(ready, address{e.Addresses[0], port})
			}
		}
	}
	if len(ready) == 0 {
		return kind.Target{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", s.Name))
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, env.Now().UnixNano())
	to := ready[int(h.Sum32()%uint32(len(ready)))]
	return proxyTarget(via.Scheme, to.ip, strconv.Itoa(int(to.port)), path, query)
}

func slicePort(slice *discoveryv1.EndpointSlice, name string) int32 {
	for _, p := range slice.Ports {
		if p.Port != nil && (p.Name == nil && name == "" || p.Name != nil && *p.Name == name) {
			return *p.Port
		}
	}
	return 0
}

func isPodOf(ctx context.Context, env kind.Env, namespace string, ref *corev1.ObjectReference, ip string) bool {
	if ref == nil || ref.Kind != "Pod" || ref.Namespace != namespace {
		return false
	}
	obj, err := env.Get(ctx, podResource, namespace, ref.Name)
	if err != nil {
		return false
	}
	for _, own := range obj.(*corev1.Pod).Status.PodIPs {
		if own.IP == ip {
			return true
		}
	}
	return false
}
