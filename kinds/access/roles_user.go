package access

import rbacv1 "k8s.io/api/rbac/v1"

// userRoles are for people and their tools: the four roles that are given out, their parts, and what everybody may do.
func userRoles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		clusterRole("cluster-admin", allow("*", "*", "*"), urls("*", "*")),
		whole("admin"),
		part(whole("edit"), "admin"),
		part(whole("view"), "edit"),
		part(adminPart(), "admin"),
		part(editPart(), "edit"),
		part(viewPart(), "view"),
		clusterRole("system:basic-user",
			allow("create", authzGroup, "selfsubjectaccessreviews selfsubjectrulesreviews"),
			allow("create", authnGroup, "selfsubjectreviews")),
		clusterRole("system:discovery",
			urls("get", "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/")),
		clusterRole("system:public-info-viewer", urls("get", "/healthz /livez /readyz /version /version/")),
		clusterRole("system:monitoring",
			urls("get", "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"),
			allow("get", core, "nodes/metrics")),
		clusterRole("system:service-account-issuer-discovery",
			urls("get", "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/")),
	}
}

// adminPart is what a namespace's administrator may do beyond editing.
func adminPart() *rbacv1.ClusterRole {
	return clusterRole("system:aggregate-to-admin",
		allow("create", authzGroup, "localsubjectaccessreviews"),
		allow(all, rbacv1.GroupName, "rolebindings roles"))
}

// editPart lets its holder run anything in a namespace, and so see its secrets and act as its service accounts.
func editPart() *rbacv1.ClusterRole {
	return clusterRole("system:aggregate-to-edit",
		allow(read, core, "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
		allow("impersonate", core, "serviceaccounts"),
		allow(write, core, "pods pods/attach pods/exec pods/portforward pods/proxy"),
		allow("create", core, "pods/eviction"),
		allow(write, core, "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services services/proxy"),
		allow("create", core, "serviceaccounts/token"),
		allow(write, events, "events"),
		allow(write, "apps", "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"),
		allow(write, "autoscaling", "horizontalpodautoscalers"),
		allow(write, "batch", "cronjobs jobs"),
		allow(write, "extensions", "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets replicasets/scale replicationcontrollers/scale"),
		allow(write, "policy", "poddisruptionbudgets"),
		allow(write, "networking.k8s.io", "ingresses networkpolicies"),
		allow(all, leaseGroup, "leases"),
		allow(write, draGroup, "resourceclaims resourceclaimtemplates"),
		allow(write, schedulingGroup, "podgroups workloads"))
}

// viewPart leaves out what would let its holder become somebody else: secrets, and streams into pods.
func viewPart() *rbacv1.ClusterRole {
	return clusterRole("system:aggregate-to-view",
		allow(read, core, "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status"),
		allow(read, core, "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas resourcequotas/status"),
		allow(read, core, "namespaces"),
		allow(read, events, "events"),
		allow(read, "discovery.k8s.io", "endpointslices"),
		allow(read, "apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"),
		allow(read, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
		allow(read, "batch", "cronjobs cronjobs/status jobs jobs/status"),
		allow(read, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale"),
		allow(read, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
		allow(read, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
		allow(read, draGroup, "resourceclaims resourceclaims/status resourceclaimtemplates"),
		allow(read, schedulingGroup, "podgroups podgroups/status workloads"))
}
