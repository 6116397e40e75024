package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/kinds/access"
)

// Joiners is the group of those who hold a join token.
const Joiners = "system:bootstrappers:yare:node"

// bootstrap brings into the cluster what every cluster has: namespaces, roles, the Service of the API server itself and that of DNS.
func (p *plane) bootstrap(ctx context.Context) error {
	api := p.gate.Local(superuser)
	roles := p.loops.roles()
	if !p.config.APIOnly {
		roles = slices.Concat(roles, joinBindings(), settingsRoles(), clusterInfoRoles())
	}
	facts, err := p.published()
	if err != nil {
		return err
	}
	flows := make(chan error, 1)
	go func() { flows <- p.ensureFlows(ctx) }()
	err = access.Ensure(ctx, api, access.Bootstrap{Roles: roles, Log: p.config.Log, Authentication: facts})
	if err = errors.Join(err, <-flows); err != nil {
		return err
	}
	if !p.config.APIOnly {
		if err := publishSettings(ctx, api, p.config); err != nil {
			return err
		}
		if err := errors.Join(p.publishClusterInfo(ctx, api), p.trackTokens(ctx, api)); err != nil {
			return err
		}
	}
	if err := p.ensureServiceCIDR(ctx, api); err != nil {
		return err
	}
	for _, s := range p.ownServices() {
		if err := ensureService(ctx, api, s); err != nil {
			return err
		}
	}
	return nil
}

// ensureServiceCIDR shows the range that --service-cidr gave as the object that clients look for (KEP-1880).
func (p *plane) ensureServiceCIDR(ctx context.Context, api client.Transport) error {
	cidrs := client.Of[*networkingv1.ServiceCIDR](api)
	have, err := cidrs.Get(ctx, "", "kubernetes")
	if apierrors.IsNotFound(err) {
		have, err = cidrs.Create(ctx, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{p.config.ServiceCIDR.String()}},
		})
	}
	if err != nil {
		return fmt.Errorf("ServiceCIDR kubernetes: %w", err)
	}
	if meta.IsStatusConditionTrue(have.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
		return nil
	}
	have = have.DeepCopy()
	meta.SetStatusCondition(&have.Status.Conditions, metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes default Service CIDR is ready",
		LastTransitionTime: metav1.NewTime(p.config.Clock.Now()),
	})
	if _, err := cidrs.UpdateStatus(ctx, have); err != nil {
		return fmt.Errorf("ServiceCIDR kubernetes: %w", err)
	}
	return nil
}

// joinBindings let the holder of a join token ask for a node's certificate, and nodes renew theirs, without a person's approval (Kubernetes
// documentation, "TLS bootstrapping").
func joinBindings() []runtime.Object {
	bind := func(name, role, group string) runtime.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		}
	}
	return []runtime.Object{
		bind("yare:node-bootstrapper", "system:node-bootstrapper", Joiners),
		bind("yare:node-autoapprove", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", Joiners),
		bind("yare:node-autoapprove-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
		// A node of another machine reads Services for its proxy, and namespaces for its DNS, as itself.
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "yare:node-network"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"services", "namespaces", "nodes"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{discoveryv1.GroupName}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch"}},
			},
		},
		bind("yare:node-network", "yare:node-network", "system:nodes"),
	}
}

// ownService is a Service that Yare's own process answers.
type ownService struct {
	namespace, name string
	labels          map[string]string
	ip              netip.Addr
	ports           []corev1.ServicePort
	// at is the endpoint's address; its ports are the ports' target ports.
	at netip.Addr
}

func (p *plane) ownServices() []ownService {
	c := p.config
	port := func(name string, protocol corev1.Protocol, number, target int) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: protocol, Port: int32(number), TargetPort: intstr.FromInt(target)}
	}
	services := []ownService{
		{
			namespace: metav1.NamespaceDefault, name: "kubernetes", labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
			ip: c.KubernetesService(), at: c.AdvertiseAddress, ports: []corev1.ServicePort{port("https", corev1.ProtocolTCP, 443, c.HTTPSPort)},
		},
	}
	if c.APIOnly {
		return services
	}
	return append(services, ownService{
		// Each node answers DNS at the Service's own address.
		namespace: metav1.NamespaceSystem, name: "kube-dns",
		labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
		ip:     c.ClusterDNS, at: c.ClusterDNS,
		ports: []corev1.ServicePort{port("dns", corev1.ProtocolUDP, 53, 53), port("dns-tcp", corev1.ProtocolTCP, 53, 53)},
	})
}

func ensureService(ctx context.Context, api client.Transport, s ownService) error {
	services := client.Of[*corev1.Service](api)
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, Labels: s.labels},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: s.ip.String(), Ports: s.ports,
			SessionAffinity: corev1.ServiceAffinityNone},
	}
	have, err := services.Get(ctx, s.namespace, s.name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = services.Create(ctx, want)
	case err == nil && have.Spec.ClusterIP != want.Spec.ClusterIP:
		return fmt.Errorf("the data folder's cluster has its Service %s/%s at %s, not at %s: keep --service-cidr and --cluster-dns as they were, or take another --data-dir",
			s.namespace, s.name, have.Spec.ClusterIP, want.Spec.ClusterIP)
	case err == nil && !equality.Semantic.DeepEqual(have.Spec.Ports, want.Spec.Ports):
		have = have.DeepCopy()
		have.Spec.Ports = want.Spec.Ports
		_, err = services.Update(ctx, have)
	}
	if err != nil {
		return fmt.Errorf("Service %s/%s: %w", s.namespace, s.name, err)
	}
	return ensureEndpoints(ctx, api, s)
}

// ensureEndpoints keeps both forms in which clients look for a Service's addresses.
func ensureEndpoints(ctx context.Context, api client.Transport, s ownService) error {
	var slicePorts []discoveryv1.EndpointPort
	var ports []corev1.EndpointPort
	for _, p := range s.ports {
		number := p.TargetPort.IntVal
		slicePorts = append(slicePorts, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
		ports = append(ports, corev1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: number})
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, Labels: map[string]string{discoveryv1.LabelServiceName: s.name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: slicePorts,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{s.at.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if s.at.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	if err := put(ctx, client.Of[*discoveryv1.EndpointSlice](api), slice, func(have *discoveryv1.EndpointSlice) bool {
		return equality.Semantic.DeepEqual(have.Endpoints, slice.Endpoints) && equality.Semantic.DeepEqual(have.Ports, slice.Ports)
	}); err != nil {
		return err
	}
	endpoints := &corev1.Endpoints{
		// The mirror loop must not make a second slice of it.
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: s.at.String()}}, Ports: ports}},
	}
	return put(ctx, client.Of[*corev1.Endpoints](api), endpoints, func(have *corev1.Endpoints) bool {
		return equality.Semantic.DeepEqual(have.Subsets, endpoints.Subsets)
	})
}

// put creates want, or replaces what is there unless it is the same already.
func put[T client.Object](ctx context.Context, api client.API[T], want T, same func(have T) bool) error {
	have, err := api.Get(ctx, want.GetNamespace(), want.GetName())
	switch {
	case apierrors.IsNotFound(err):
		_, err = api.Create(ctx, want)
	case err == nil && !same(have):
		want.SetResourceVersion(have.GetResourceVersion())
		_, err = api.Update(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("%T %s/%s: %w", want, want.GetNamespace(), want.GetName(), err)
	}
	return nil
}
