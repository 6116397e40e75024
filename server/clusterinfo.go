package server

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/bootstrap"
	"github.com/yare-project/yare/controllers/serviceaccounttoken"
)

// publishClusterInfo writes the kubeconfig, without a user, by which machines find the cluster. The loop bootstrap-signer signs it for those who hold a token.
func (p *plane) publishClusterInfo(ctx context.Context, api client.Transport) error {
	config := clientcmdapi.NewConfig()
	at := netip.AddrPortFrom(p.config.AdvertiseAddress, uint16(p.config.HTTPSPort))
	config.Clusters[""] = &clientcmdapi.Cluster{Server: "https://" + at.String(), CertificateAuthorityData: p.pki.Cluster.CertPEM()}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", metav1.NamespacePublic, bootstrap.ClusterInfo, err)
	}
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: bootstrap.ClusterInfo},
		Data: map[string]string{bootstrap.Kubeconfig: string(text)}}
	return put(ctx, client.Of[*corev1.ConfigMap](api), want, func(have *corev1.ConfigMap) bool {
		return have.Data[bootstrap.Kubeconfig] == string(text) // signatures of another are worthless
	})
}

// trackTokens notes the day since which the use of tokens in Secrets is noted on them.
func (p *plane) trackTokens(ctx context.Context, api client.Transport) error {
	today := p.config.Clock.Now().UTC().Format(time.DateOnly)
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: serviceaccounttoken.TrackingConfigMap},
		Data: map[string]string{serviceaccounttoken.TrackingSince: today}}
	return put(ctx, client.Of[*corev1.ConfigMap](api), want, func(have *corev1.ConfigMap) bool {
		// One from the future would have been written by a wrong clock.
		since, err := time.Parse(time.DateOnly, have.Data[serviceaccounttoken.TrackingSince])
		return err == nil && since.Format(time.DateOnly) <= today
	})
}

// clusterInfoRoles let everybody read it. Without --anonymous-auth, that is everybody who has a credential.
func clusterInfoRoles() []runtime.Object {
	const name = "yare:cluster-info"
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	return []runtime.Object{
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{bootstrap.ClusterInfo}, Verbs: []string{"get"}}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{group("system:authenticated"), group("system:unauthenticated")},
		},
	}
}
