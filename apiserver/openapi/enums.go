package openapi

import "reflect"

// enumOf lists the values of a string type that has a fixed set of them; nil for any other.
func enumOf(t reflect.Type) []any {
	values := enums[t.PkgPath()+"."+t.Name()]
	if values == nil {
		return nil
	}
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// enums are the string types whose source says, in a comment that reflection cannot see, that there are no values but the constants. The facts are those of
// Kubernetes 1.36's published documents.
var enums = map[string][]string{
	"k8s.io/api/admissionregistration/v1.FailurePolicyType":      {"Fail", "Ignore"},
	"k8s.io/api/admissionregistration/v1.MatchPolicyType":        {"Equivalent", "Exact"},
	"k8s.io/api/admissionregistration/v1.OperationType":          {"*", "CONNECT", "CREATE", "DELETE", "UPDATE"},
	"k8s.io/api/admissionregistration/v1.PatchType":              {"ApplyConfiguration", "JSONPatch"},
	"k8s.io/api/admissionregistration/v1.ReinvocationPolicyType": {"IfNeeded", "Never"},
	"k8s.io/api/admissionregistration/v1.ScopeType":              {"*", "Cluster", "Namespaced"},
	"k8s.io/api/admissionregistration/v1.SideEffectClass":        {"None", "NoneOnDryRun", "Some", "Unknown"},
	"k8s.io/api/admissionregistration/v1.ValidationAction":       {"Audit", "Deny", "Warn"},
	"k8s.io/api/apps/v1.DaemonSetUpdateStrategyType":             {"OnDelete", "RollingUpdate"},
	"k8s.io/api/apps/v1.DeploymentStrategyType":                  {"Recreate", "RollingUpdate"},
	"k8s.io/api/apps/v1.PodManagementPolicyType":                 {"OrderedReady", "Parallel"},
	"k8s.io/api/apps/v1.StatefulSetUpdateStrategyType":           {"OnDelete", "RollingUpdate"},
	"k8s.io/api/batch/v1.CompletionMode":                         {"Indexed", "NonIndexed"},
	"k8s.io/api/batch/v1.ConcurrencyPolicy":                      {"Allow", "Forbid", "Replace"},
	"k8s.io/api/batch/v1.PodFailurePolicyAction":                 {"Count", "FailIndex", "FailJob", "Ignore"},
	"k8s.io/api/batch/v1.PodFailurePolicyOnExitCodesOperator":    {"In", "NotIn"},
	"k8s.io/api/batch/v1.PodReplacementPolicy":                   {"Failed", "TerminatingOrFailed"},
	"k8s.io/api/certificates/v1.KeyUsage": {
		"any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature",
		"email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc",
		"netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping",
	},
	"k8s.io/api/core/v1.AppArmorProfileType":                     {"Localhost", "RuntimeDefault", "Unconfined"},
	"k8s.io/api/core/v1.AzureDataDiskCachingMode":                {"None", "ReadOnly", "ReadWrite"},
	"k8s.io/api/core/v1.AzureDataDiskKind":                       {"Dedicated", "Managed", "Shared"},
	"k8s.io/api/core/v1.ClaimResourceStatus":                     {"ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"},
	"k8s.io/api/core/v1.DNSPolicy":                               {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
	"k8s.io/api/core/v1.HostPathType":                            {"", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"},
	"k8s.io/api/core/v1.IPFamily":                                {"", "IPv4", "IPv6"},
	"k8s.io/api/core/v1.IPFamilyPolicy":                          {"PreferDualStack", "RequireDualStack", "SingleStack"},
	"k8s.io/api/core/v1.MountPropagationMode":                    {"Bidirectional", "HostToContainer", "None"},
	"k8s.io/api/core/v1.NamespacePhase":                          {"Active", "Terminating"},
	"k8s.io/api/core/v1.NodeInclusionPolicy":                     {"Honor", "Ignore"},
	"k8s.io/api/core/v1.NodePhase":                               {"Pending", "Running", "Terminated"},
	"k8s.io/api/core/v1.NodeSelectorOperator":                    {"DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"},
	"k8s.io/api/core/v1.PersistentVolumeAccessMode":              {"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"},
	"k8s.io/api/core/v1.PersistentVolumeClaimModifyVolumeStatus": {"InProgress", "Infeasible", "Pending"},
	"k8s.io/api/core/v1.PersistentVolumeClaimPhase":              {"Bound", "Lost", "Pending"},
	"k8s.io/api/core/v1.PersistentVolumeMode":                    {"Block", "Filesystem"},
	"k8s.io/api/core/v1.PersistentVolumePhase":                   {"Available", "Bound", "Failed", "Pending", "Released"},
	"k8s.io/api/core/v1.PersistentVolumeReclaimPolicy":           {"Delete", "Recycle", "Retain"},
	"k8s.io/api/core/v1.PodFSGroupChangePolicy":                  {"Always", "OnRootMismatch"},
	"k8s.io/api/core/v1.PodPhase":                                {"Failed", "Pending", "Running", "Succeeded", "Unknown"},
	"k8s.io/api/core/v1.PodQOSClass":                             {"BestEffort", "Burstable", "Guaranteed"},
	"k8s.io/api/core/v1.PreemptionPolicy":                        {"Never", "PreemptLowerPriority"},
	"k8s.io/api/core/v1.ProcMountType":                           {"Default", "Unmasked"},
	"k8s.io/api/core/v1.Protocol":                                {"SCTP", "TCP", "UDP"},
	"k8s.io/api/core/v1.PullPolicy":                              {"Always", "IfNotPresent", "Never"},
	"k8s.io/api/core/v1.ResourceQuotaScope": {
		"BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating", "VolumeAttributesClass",
	},
	"k8s.io/api/core/v1.RestartPolicy":                {"Always", "Never", "OnFailure"},
	"k8s.io/api/core/v1.ScopeSelectorOperator":        {"DoesNotExist", "Exists", "In", "NotIn"},
	"k8s.io/api/core/v1.SeccompProfileType":           {"Localhost", "RuntimeDefault", "Unconfined"},
	"k8s.io/api/core/v1.ServiceAffinity":              {"ClientIP", "None"},
	"k8s.io/api/core/v1.ServiceExternalTrafficPolicy": {"Cluster", "Local"},
	"k8s.io/api/core/v1.ServiceInternalTrafficPolicy": {"Cluster", "Local"},
	"k8s.io/api/core/v1.ServiceType":                  {"ClusterIP", "ExternalName", "LoadBalancer", "NodePort"},
	"k8s.io/api/core/v1.Signal": {
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE",
		"SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX", "SIGRTMAX-1", "SIGRTMAX-10", "SIGRTMAX-11", "SIGRTMAX-12", "SIGRTMAX-13", "SIGRTMAX-14",
		"SIGRTMAX-2", "SIGRTMAX-3", "SIGRTMAX-4", "SIGRTMAX-5", "SIGRTMAX-6", "SIGRTMAX-7", "SIGRTMAX-8", "SIGRTMAX-9", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+10",
		"SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14", "SIGRTMIN+15", "SIGRTMIN+2", "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6",
		"SIGRTMIN+7", "SIGRTMIN+8", "SIGRTMIN+9", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU",
		"SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
	},
	"k8s.io/api/core/v1.SupplementalGroupsPolicy":         {"Merge", "Strict"},
	"k8s.io/api/core/v1.TaintEffect":                      {"NoExecute", "NoSchedule", "PreferNoSchedule"},
	"k8s.io/api/core/v1.TerminationMessagePolicy":         {"FallbackToLogsOnError", "File"},
	"k8s.io/api/core/v1.TolerationOperator":               {"Equal", "Exists", "Gt", "Lt"},
	"k8s.io/api/core/v1.URIScheme":                        {"HTTP", "HTTPS"},
	"k8s.io/api/core/v1.UnsatisfiableConstraintAction":    {"DoNotSchedule", "ScheduleAnyway"},
	"k8s.io/api/discovery/v1.AddressType":                 {"FQDN", "IPv4", "IPv6"},
	"k8s.io/api/networking/v1.PathType":                   {"Exact", "ImplementationSpecific", "Prefix"},
	"k8s.io/api/networking/v1.PolicyType":                 {"Egress", "Ingress"},
	"k8s.io/api/policy/v1.UnhealthyPodEvictionPolicyType": {"AlwaysAllow", "IfHealthyBudget"},
	"k8s.io/api/resource/v1.AllocationConfigSource":       {"FromClaim", "FromClass"},
	"k8s.io/api/resource/v1.DeviceAllocationMode":         {"All", "ExactCount"},
	"k8s.io/api/resource/v1.DeviceTaintEffect":            {"NoExecute", "NoSchedule", "None"},
	"k8s.io/api/resource/v1.DeviceTolerationOperator":     {"Equal", "Exists"},
	"k8s.io/api/storage/v1.VolumeBindingMode":             {"Immediate", "WaitForFirstConsumer"},
}
