package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rbac"
	"github.com/yare-project/yare/kinds/resource"
)

// Choice is which plugins run, as kube-apiserver's --enable-admission-plugins and --disable-admission-plugins say.
type Choice struct {
	// Enable are plugins to run beside those that run by default; Disable are not to run.
	Enable, Disable []string
}

// dynamic are the plugins of the names under which Kubernetes knows webhooks and policies. They are not of this package.
var dynamic = []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"}

// inert are plugins of Kubernetes 1.36 that do nothing there unless an alpha feature is on, which are not to be had here. The beta API that
// ClusterTrustBundleAttest guards is off by default, too.
var inert = []string{"ClusterTrustBundleAttest"}

// plugin is one of Kubernetes' plugins under its name there.
type plugin struct {
	name      string
	off       bool // unless enabled
	mutator   kind.Mutator
	validator kind.Validator
}

// Names are the plugins that can be switched, sorted.
func Names() []string {
	out := slices.Concat(dynamic, inert)
	for _, p := range plugins(Config{}, settings{}) {
		out = append(out, p.name)
	}
	slices.Sort(out)
	return out
}

// Check refuses what Kubernetes refuses: a name that no plugin has, and one that is both enabled and disabled.
func (c Choice) Check() error {
	known := Names()
	for _, f := range []struct {
		flag  string
		names []string
	}{{"enable", c.Enable}, {"disable", c.Disable}} {
		for _, name := range f.names {
			if !slices.Contains(known, name) {
				return fmt.Errorf("--%s-admission-plugins: plugin %q is unknown; there are %s", f.flag, name, strings.Join(known, ", "))
			}
		}
	}
	for _, name := range c.Enable {
		if slices.Contains(c.Disable, name) {
			return fmt.Errorf("admission plugin %q is in --enable-admission-plugins and in --disable-admission-plugins", name)
		}
	}
	return nil
}

// Runs tells whether a plugin runs that does (or, off, does not) by default.
func (c Choice) Runs(name string, off bool) bool {
	if off {
		return slices.Contains(c.Enable, name)
	}
	return !slices.Contains(c.Disable, name)
}

// plugins are all that there are, in the order in which Kubernetes runs them.
func plugins(cfg Config, s settings) []plugin {
	account := serviceAccount{cfg}
	return []plugin{
		{name: "AlwaysAdmit", off: true},
		{name: "NamespaceAutoProvision", off: true, mutator: namespaceProvision{cfg.Provision}},
		{name: "NamespaceLifecycle", mutator: namespaceLifecycle{}, validator: namespaceProtection{}},
		{name: "NamespaceExists", off: true, validator: namespaceExists{}},
		{name: "LimitPodHardAntiAffinityTopology", off: true, validator: hardAntiAffinity{}},
		{name: "LimitRanger", mutator: limitRanger{}, validator: limitRanger{}},
		{name: "ServiceAccount", mutator: account, validator: account},
		{name: "NodeRestriction", mutator: nodeRestriction{}},
		{name: "TaintNodesByCondition", mutator: newNodeTaint{}},
		{name: "AlwaysPullImages", off: true, mutator: alwaysPull{}, validator: alwaysPull{}},
		{name: "ImagePolicyWebhook", off: true, validator: s.images},
		{name: "PodSecurity", validator: s.security},
		{name: "PodNodeSelector", off: true, mutator: s.selectors, validator: s.selectors},
		{name: "Priority", mutator: priority{}, validator: priority{}},
		{name: "DefaultTolerationSeconds", mutator: newDefaultTolerations(cfg)},
		{name: "PodTolerationRestriction", off: true, mutator: s.tolerations, validator: s.tolerations},
		{name: "EventRateLimit", off: true, validator: s.events},
		{name: "ExtendedResourceToleration", off: true, mutator: extendedTolerations{}},
		{name: "DefaultStorageClass", mutator: defaultStorageClass{}},
		{name: "StorageObjectInUseProtection", mutator: storageProtection{}},
		{name: "PodGroupProtection", mutator: podGroupProtection{}},
		{name: "OwnerReferencesPermissionEnforcement", off: true, validator: ownerPermission{cfg.Kinds}},
		{name: "PersistentVolumeClaimResize", validator: claimResize{}},
		{name: "RuntimeClass", mutator: runtimeClass{}, validator: runtimeClass{}},
		{name: "CertificateApproval", validator: certificateApproval{}},
		{name: "CertificateSigning", validator: certificateSigning{}},
		{name: "CertificateSubjectRestriction", validator: certificateSubject{}},
		{name: "DefaultIngressClass", mutator: defaultIngressClass{}},
		{name: "DenyServiceExternalIPs", off: true, validator: denyExternalIPs{}},
		{name: "PodTopologyLabels", mutator: podTopology{}},
		{name: "PodGroupWorkloadExists", validator: podGroupWorkload{}},
		// Off, unlike in Kubernetes: the nodes here can do what it guards, and do not declare it.
		{name: "NodeDeclaredFeatureValidator", off: true, validator: declaredFeatures{}},
		{name: "JobValidation", validator: jobOfGang{}},
		{name: "PodResizeValidator", validator: podResize{}},
		// The last one: what it charges is taken back only when a later one refuses.
		{name: "ResourceQuota", validator: resourceQuota{cfg.Quota, s.limited}},
		{name: "AlwaysDeny", off: true, mutator: alwaysDeny{}},
	}
}

// Build returns the plugins that run, in order. The error names the flag or the part of the configuration file that cannot be.
func Build(cfg Config) ([]kind.Mutator, []kind.Validator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Choice.Check(); err != nil {
		return nil, nil, err
	}
	s, err := readSettings(cfg)
	if err != nil {
		return nil, nil, err
	}
	var mutators []kind.Mutator
	var validators []kind.Validator
	// What Kubernetes does outside of its plugins, for the API would not be what it is without.
	standing := []kind.Validator{rbac.Escalation{}, resource.AdminAccess{}, resource.StatusRights{}}
	for _, p := range plugins(cfg, s) {
		if !cfg.Choice.Runs(p.name, p.off) {
			continue
		}
		if p.name == "ResourceQuota" { // it comes after all that may refuse
			validators = append(validators, standing...)
		}
		if p.mutator != nil {
			mutators = append(mutators, p.mutator)
		}
		if p.validator != nil {
			validators = append(validators, p.validator)
		}
	}
	if !cfg.Choice.Runs("ResourceQuota", false) {
		validators = append(validators, standing...)
	}
	return append(mutators, certificateRequester{}, rbac.Escalation{}), validators, nil
}
