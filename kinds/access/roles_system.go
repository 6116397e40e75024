package access

import rbacv1 "k8s.io/api/rbac/v1"

// systemRoles are for the parts that a cluster is made of, or that add-ons bring.
func systemRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole("system:node", NodeRules()...),
		clusterRole("system:node-problem-detector",
			allow("get", core, "nodes"), allow("patch", core, "nodes/status"), writeEvents()),
		clusterRole("system:node-bootstrapper", allow("create "+read, certGroup, "certificatesigningrequests")),
		clusterRole("system:node-proxier",
			allow("list watch", core, "endpoints services"), allow(read, core, "nodes"), writeEvents(),
			allow("list watch", "networking.k8s.io", "servicecidrs"),
			allow("list watch", "discovery.k8s.io", "endpointslices")),
		clusterRole("system:auth-delegator", reviews()...),
		clusterRole("system:kube-aggregator", allow(read, core, "endpoints services")),
		clusterRole("system:kubelet-api-admin",
			allow(read, core, "nodes"), allow("proxy", core, "nodes"),
			allow("*", core, "nodes/log nodes/metrics nodes/proxy nodes/stats"),
			allow("*", core, "nodes/configz nodes/healthz nodes/pods")),
		clusterRole("system:kube-dns", allow("list watch", core, "endpoints services")),
		clusterRole("system:heapster",
			allow(read, core, "events namespaces nodes pods"), allow(read, "extensions", "deployments")),
		clusterRole("system:persistent-volume-provisioner",
			allow("create delete "+read, core, "persistentvolumes"), allow("update "+read, core, "persistentvolumeclaims"),
			allow(read, storageGroup, "storageclasses"), allow("watch", core, "events"), writeEvents()),
		clusterRole("system:volume-scheduler",
			allow("patch update "+read, core, "persistentvolumes persistentvolumeclaims"), allow(read, storageGroup, "storageclasses")),
		clusterRole("system:kube-scheduler", schedulerRules()...),
		clusterRole("system:kube-controller-manager", controllerManagerRules()...),
	}
}

// certificateRoles let their holders ask for or approve certificates of one kind.
func certificateRoles() []*rbacv1.ClusterRole {
	const prefix = "system:certificates.k8s.io:"
	out := []*rbacv1.ClusterRole{
		clusterRole(prefix+"certificatesigningrequests:nodeclient", allow("create", certGroup, "certificatesigningrequests/nodeclient")),
		clusterRole(prefix+"certificatesigningrequests:selfnodeclient", allow("create", certGroup, "certificatesigningrequests/selfnodeclient")),
	}
	for _, signer := range []string{"kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown"} {
		out = append(out, clusterRole(prefix+signer+"-approver", named(allow("approve", certGroup, "signers"), "kubernetes.io/"+signer)))
	}
	return out
}

func reviews() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{allow("create", authnGroup, "tokenreviews"), allow("create", authzGroup, "subjectaccessreviews")}
}

// NodeRules is what any node may do, before the Node authorizer looks closer at what belongs to which node.
func NodeRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		allow("create", authnGroup, "tokenreviews"),
		allow("create", authzGroup, "subjectaccessreviews localsubjectaccessreviews"),
		allow(read, core, "services"),
		allow("create "+read, core, "nodes"),
		allow("update patch", core, "nodes/status"),
		allow("update patch", core, "nodes"),
		allow("create update patch", events, "events"),
		allow(read, core, "pods"),
		allow("create delete", core, "pods"),
		allow("update patch", core, "pods/status"),
		allow("create", core, "pods/eviction"),
		allow(read, core, "secrets configmaps"),
		allow("get", core, "persistentvolumeclaims persistentvolumes"),
		allow("get", core, "endpoints"),
		allow("create "+read, certGroup, "certificatesigningrequests"),
		allow("get create update patch delete", leaseGroup, "leases"),
		allow("get", storageGroup, "volumeattachments"),
		allow("create", core, "serviceaccounts/token"),
		allow("get update patch", core, "persistentvolumeclaims/status"),
		allow(read, storageGroup, "csidrivers"),
		allow("get create update patch delete", storageGroup, "csinodes"),
		allow(read, "node.k8s.io", "runtimeclasses"),
		allow("get", draGroup, "resourceclaims"),
		allow("deletecollection", draGroup, "resourceslices"),
		allow("get", core, "serviceaccounts"),
	}
}

func schedulerRules() []rbacv1.PolicyRule {
	return append([]rbacv1.PolicyRule{
		writeEvents(),
		allow("create", leaseGroup, "leases"),
		named(allow("update "+read, leaseGroup, "leases"), "kube-scheduler"),
		allow(all, leaseGroup, "leasecandidates"),
		allow(read, core, "nodes"),
		allow("delete "+read, core, "pods"),
		allow("create", core, "bindings pods/binding"),
		allow("patch update", core, "pods/status"),
		allow(read, core, "replicationcontrollers services"),
		allow(read, "apps extensions", "replicasets"),
		allow(read, "apps", "statefulsets"),
		allow(read, "policy", "poddisruptionbudgets"),
		allow(read, core, "persistentvolumeclaims persistentvolumes"),
		allow(read, storageGroup, "csinodes volumeattachments csidrivers csistoragecapacities"),
		allow(read, core, "namespaces"),
		allow(read, draGroup, "deviceclasses resourceslices"),
		allow("create delete patch update "+read, draGroup, "resourceclaims"),
		allow("patch update "+read, draGroup, "resourceclaims/status"),
		allow("patch update", draGroup, "resourceclaims/binding"),
		allow("update", core, "pods/finalizers"),
		allow(read, schedulingGroup, "podgroups"),
		allow("patch update", schedulingGroup, "podgroups/status"),
	}, reviews()...)
}

func controllerManagerRules() []rbacv1.PolicyRule {
	return append([]rbacv1.PolicyRule{
		writeEvents(),
		allow("create", leaseGroup, "leases"),
		named(allow("get update", leaseGroup, "leases"), "kube-controller-manager"),
		allow("create", core, "secrets serviceaccounts"),
		allow("delete", core, "secrets"),
		allow("get", core, "configmaps namespaces secrets serviceaccounts"),
		allow("update", core, "secrets serviceaccounts"),
		allow("list watch", "*", "*"),
		allow("create", core, "serviceaccounts/token"),
	}, reviews()...)
}

// namespaceRoles are Roles in the system's namespaces.
func namespaceRoles() []*rbacv1.Role {
	const system, public = "kube-system", "kube-public"
	locking := func(who string) *rbacv1.Role {
		return role(system, "system::leader-locking-"+who,
			allow("create update "+read, leaseGroup, "leases"), allow("create update "+read, leaseGroup, "leasecandidates"))
	}
	return []*rbacv1.Role{
		role(system, "extension-apiserver-authentication-reader", named(allow(read, core, "configmaps"), "extension-apiserver-authentication")),
		role(system, "system:controller:bootstrap-signer", allow(read, core, "secrets")),
		role(system, "system:controller:cloud-provider", allow("create "+read, core, "configmaps")),
		role(system, "system:controller:token-cleaner", allow("delete "+read, core, "secrets"), writeEvents()),
		locking("kube-controller-manager"),
		locking("kube-scheduler"),
		role(public, "system:controller:bootstrap-signer",
			allow(read, core, "configmaps"), named(allow("update", core, "configmaps"), "cluster-info"), writeEvents()),
	}
}
