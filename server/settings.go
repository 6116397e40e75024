package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/client"
)

// settingsName is the ConfigMap, in kube-system, from which a node that joins learns what all nodes must agree on.
const settingsName = "yare-cluster"

// The keys of settingsName have the names of the flags.
const (
	keyClusterCIDR   = "cluster-cidr"
	keyServiceCIDR   = "service-cidr"
	keyClusterDNS    = "cluster-dns"
	keyClusterDomain = "cluster-domain"
)

// publishSettings writes down what this cluster was started with.
func publishSettings(ctx context.Context, api client.Transport, c *Config) error {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: settingsName},
		Data: map[string]string{
			keyClusterCIDR: c.ClusterCIDR.String(), keyServiceCIDR: c.ServiceCIDR.String(),
			keyClusterDNS: c.ClusterDNS.String(), keyClusterDomain: c.ClusterDomain,
		},
	}
	return put(ctx, client.Of[*corev1.ConfigMap](api), want, func(have *corev1.ConfigMap) bool {
		return equality.Semantic.DeepEqual(have.Data, want.Data)
	})
}

// settingsRoles let nodes read the settings, and anybody the authority's certificate: it is public, and a machine that holds nothing but a token
// checks it against the token's pin.
func settingsRoles() []runtime.Object {
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	return []runtime.Object{
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "yare:cluster-settings"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{settingsName}, Verbs: []string{"get"}}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "yare:cluster-settings"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "yare:cluster-settings"},
			Subjects:   []rbacv1.Subject{group("system:nodes")},
		},
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "yare:authority"},
			Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/cacerts"}, Verbs: []string{"get"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "yare:authority"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "yare:authority"},
			Subjects:   []rbacv1.Subject{group("system:authenticated"), group("system:unauthenticated")},
		},
	}
}

// learnSettings takes over what the cluster was started with.
func (c *Config) learnSettings(ctx context.Context, api client.Transport) error {
	settings, err := client.Of[*corev1.ConfigMap](api).Get(ctx, metav1.NamespaceSystem, settingsName)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the server does not say which networks the cluster has (ConfigMap %s/%s): is it an older Yare? Upgrade and restart it first", metav1.NamespaceSystem, settingsName)
	}
	if err != nil {
		return err
	}
	cluster, errCluster := netip.ParsePrefix(settings.Data[keyClusterCIDR])
	service, errService := netip.ParsePrefix(settings.Data[keyServiceCIDR])
	dns, errDNS := netip.ParseAddr(settings.Data[keyClusterDNS])
	if err := errors.Join(errCluster, errService, errDNS); err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w; restart the server to have it written anew", metav1.NamespaceSystem, settingsName, err)
	}
	c.ClusterCIDR, c.ServiceCIDR, c.ClusterDNS = cluster, service, dns
	if domain := settings.Data[keyClusterDomain]; domain != "" {
		c.ClusterDomain = domain
	}
	return c.completeNetwork()
}
