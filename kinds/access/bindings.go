package access

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// subjects are written as group:<name>, user:<name> or account:<namespace>/<name>.
func subjects(in []string) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, s := range in {
		kind, name, _ := strings.Cut(s, ":")
		switch kind {
		case "group":
			out = append(out, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name})
		case "user":
			out = append(out, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name})
		case "account":
			namespace, name, _ := strings.Cut(name, "/")
			out = append(out, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
		}
	}
	return out
}

// bind gives the cluster role of the same name.
func bind(name string, to ...string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: defaultMeta("", name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   subjects(to),
	}
}

func clusterBindings() []*rbacv1.ClusterRoleBinding {
	const (
		everybody = "group:" + user.AllAuthenticated
		strangers = "group:" + user.AllUnauthenticated
		scheduler = "user:" + user.KubeScheduler
	)
	return []*rbacv1.ClusterRoleBinding{
		bind("cluster-admin", "group:"+user.SystemPrivilegedGroup),
		bind("system:monitoring", "group:"+user.MonitoringGroup),
		bind("system:discovery", everybody),
		bind("system:basic-user", everybody),
		bind("system:public-info-viewer", everybody, strangers),
		bind("system:node-proxier", "user:"+user.KubeProxy),
		bind("system:kube-controller-manager", "user:"+user.KubeControllerManager),
		bind("system:kube-dns", "account:kube-system/kube-dns"),
		bind("system:kube-scheduler", scheduler),
		bind("system:volume-scheduler", scheduler),
		bind("system:service-account-issuer-discovery", "group:system:serviceaccounts"),
		// Nodes have their rights from the Node authorizer; the binding is there, without anybody, because tools expect it.
		bind("system:node"),
	}
}

func bindRole(namespace, name, role string, to ...string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: defaultMeta(namespace, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   subjects(to),
	}
}

func namespaceBindings() []*rbacv1.RoleBinding {
	const system, public = "kube-system", "kube-public"
	same := func(namespace, name string, to ...string) *rbacv1.RoleBinding {
		return bindRole(namespace, name, name, to...)
	}
	const managers, scheduler = "user:" + user.KubeControllerManager, "user:" + user.KubeScheduler
	return []*rbacv1.RoleBinding{
		bindRole(system, "system::extension-apiserver-authentication-reader", "extension-apiserver-authentication-reader", managers, scheduler),
		same(system, "system::leader-locking-kube-controller-manager", managers, "account:kube-system/kube-controller-manager", "account:kube-system/leader-election-controller"),
		same(system, "system::leader-locking-kube-scheduler", scheduler, "account:kube-system/kube-scheduler"),
		same(system, "system:controller:bootstrap-signer", "account:kube-system/bootstrap-signer"),
		same(system, "system:controller:cloud-provider", "account:kube-system/cloud-provider"),
		same(system, "system:controller:token-cleaner", "account:kube-system/token-cleaner"),
		same(public, "system:controller:bootstrap-signer", "account:kube-system/bootstrap-signer"),
	}
}
