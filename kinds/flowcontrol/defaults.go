package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"
)

// Objects are levels and the schemas that lead to them.
type Objects struct {
	Levels  []*flowcontrolv1.PriorityLevelConfiguration
	Schemas []*flowcontrolv1.FlowSchema
}

// Mandatory are the objects that hold in every cluster, whether it has them or not. Nobody can change their spec, but for the shares of the
// level "exempt" (Kubernetes documentation, "API Priority and Fairness"). The result is the caller's own.
func Mandatory() Objects {
	return Objects{
		Levels: []*level{
			object(exempt, flowcontrolv1.PriorityLevelConfigurationSpec{
				Type:   flowcontrolv1.PriorityLevelEnablementExempt,
				Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: ptr.To[int32](0), LendablePercent: ptr.To[int32](0)},
			}),
			limited(catchAll, 5, 0, nil),
		},
		Schemas: []*flowcontrolv1.FlowSchema{
			flows(exempt, exempt, 1, "", everything(groups(user.SystemPrivilegedGroup))),
			flows(catchAll, catchAll, maxPrecedence, byUser, everything(everybody())),
		},
	}
}

// Suggested are the objects that a cluster starts with, with the names, shares and precedences of Kubernetes 1.36. An administrator may take
// one over by setting its annotation apf.kubernetes.io/autoupdate-spec to "false". The result is the caller's own.
func Suggested() Objects {
	return Objects{Levels: suggestedLevels(), Schemas: suggestedSchemas()}
}

func suggestedLevels() []*level {
	return []*level{
		limited("system", 30, 33, queues(64, 6)),
		limited("node-high", 40, 25, queues(64, 6)),
		limited("leader-election", 10, 0, queues(16, 4)),
		limited("workload-high", 40, 50, queues(128, 6)),
		limited("workload-low", 100, 90, queues(128, 6)),
		limited("global-default", 20, 50, queues(128, 6)),
	}
}

const (
	catchAll    = flowcontrolv1.FlowSchemaNameCatchAll
	byUser      = flowcontrolv1.FlowDistinguisherMethodByUserType
	byNamespace = flowcontrolv1.FlowDistinguisherMethodByNamespaceType
)

func suggestedSchemas() []*flowcontrolv1.FlowSchema {
	any := []string{"*"}
	system := accounts(metav1.NamespaceSystem)
	leases := func(verbs ...string) flowcontrolv1.ResourcePolicyRule {
		return flowcontrolv1.ResourcePolicyRule{Verbs: verbs, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Namespaces: any}
	}
	only := func(who []flowcontrolv1.Subject, rules ...flowcontrolv1.ResourcePolicyRule) flowcontrolv1.PolicyRulesWithSubjects {
		return flowcontrolv1.PolicyRulesWithSubjects{Subjects: who, ResourceRules: rules}
	}
	return []*flowcontrolv1.FlowSchema{
		flows("probes", exempt, 2, "", flowcontrolv1.PolicyRulesWithSubjects{Subjects: everybody(), NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"}}}}),
		flows("system-leader-election", "leader-election", 100, byUser,
			only(append(users(user.KubeControllerManager, user.KubeScheduler), system...), leases("get", "create", "update"))),
		flows("system-node-high", "node-high", 400, byUser, only(groups(user.NodesGroup),
			flowcontrolv1.ResourcePolicyRule{Verbs: any, APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, ClusterScope: true, Namespaces: any}, leases("*"))),
		flows("system-nodes", "system", 500, byUser, everything(groups(user.NodesGroup))),
		flows("kube-controller-manager", "workload-high", 800, byNamespace, everything(users(user.KubeControllerManager))),
		flows("kube-scheduler", "workload-high", 800, byNamespace, everything(users(user.KubeScheduler))),
		flows("kube-system-service-accounts", "workload-high", 900, byNamespace, everything(system)),
		flows("service-accounts", "workload-low", 9000, byUser, everything(groups(serviceaccount.AllServiceAccountsGroup))),
		flows("global-default", "global-default", 9900, byUser, everything(everybody())),
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}
}

func object(name string, spec flowcontrolv1.PriorityLevelConfigurationSpec) *level {
	return &level{ObjectMeta: meta(name), Spec: spec}
}

// limited makes a level; without queues it turns away who finds no seat.
func limited(name string, shares, lendable int32, q *flowcontrolv1.QueuingConfiguration) *level {
	response := flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
	if q != nil {
		response = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: q}
	}
	return object(name, flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LendablePercent: &lendable, LimitResponse: response}})
}

func queues(n, hand int32) *flowcontrolv1.QueuingConfiguration {
	return &flowcontrolv1.QueuingConfiguration{Queues: n, HandSize: hand, QueueLengthLimit: 50}
}

func flows(name, to string, precedence int32, by flowcontrolv1.FlowDistinguisherMethodType, rule flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
	s := &flowcontrolv1.FlowSchema{ObjectMeta: meta(name), Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: to}, MatchingPrecedence: precedence,
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{rule},
	}}
	if by != "" {
		s.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: by}
	}
	return s
}

// everything is all requests of some.
func everything(who []flowcontrolv1.Subject) flowcontrolv1.PolicyRulesWithSubjects {
	all := []string{"*"}
	return flowcontrolv1.PolicyRulesWithSubjects{
		Subjects:         who,
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}
}

func everybody() []flowcontrolv1.Subject {
	return groups(user.AllUnauthenticated, user.AllAuthenticated)
}

func groups(names ...string) (out []flowcontrolv1.Subject) {
	for _, n := range names {
		out = append(out, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: n}})
	}
	return out
}

func users(names ...string) (out []flowcontrolv1.Subject) {
	for _, n := range names {
		out = append(out, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: n}})
	}
	return out
}

// accounts are all service accounts of a namespace.
func accounts(namespace string) []flowcontrolv1.Subject {
	return []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
		ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: flowcontrolv1.NameAll}}}
}
