package core

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/yare-project/yare/kind"
)

// A node's agent registers it with its whole status; later writes of the status go through the subresource.
var _ = kind.Add(&Group, kind.Def[corev1.Node]{
	Names:          kind.Names{Plural: "nodes", Short: []string{"no"}},
	Scope:          kind.Cluster,
	Default:        defaultNode,
	Prepare:        prepareNode,
	Validate:       validateNode,
	PrepareStatus:  dropNodeConfig,
	ValidateStatus: validateNodeStatus,
	Warn:           warnNode,
	StatusOnCreate: true,
	NoGeneration:   true,
	Columns:        nodeColumns,
	NoAge:          true, // the columns have it before the version, where users look for it
	Fields: map[string]func(*corev1.Node) string{
		"spec.unschedulable": func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) },
	},
	Subs: []kind.Sub[corev1.Node]{{Name: "proxy", Body: corev1.SchemeGroupVersion.WithKind("NodeProxyOptions"), New: func() runtime.Object { return &corev1.NodeProxyOptions{} }, Connect: nodeProxy, Methods: proxyMethods, Named: true}},
})

func defaultNode(n *corev1.Node) {
	if len(n.Status.Allocatable) == 0 && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	roundUp(n.Status.Capacity)
	roundUp(n.Status.Allocatable)
	switch {
	case n.Spec.PodCIDR == "" && len(n.Spec.PodCIDRs) > 0:
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	case n.Spec.PodCIDR != "" && (len(n.Spec.PodCIDRs) == 0 || n.Spec.PodCIDRs[0] != n.Spec.PodCIDR):
		n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
	}
}

// prepareNode drops the configuration source, a removed feature.
func prepareNode(n, old *corev1.Node) {
	if old == nil || old.Spec.ConfigSource == nil {
		n.Spec.ConfigSource = nil
	}
	dropNodeConfig(n, old)
}

func dropNodeConfig(n, old *corev1.Node) {
	if old == nil || old.Status.Config == nil {
		n.Status.Config = nil
	}
}

func validateNode(n, old *corev1.Node) field.ErrorList {
	var p problems
	path := field.NewPath("spec")
	checkTaints(&p, n.Spec.Taints, field.NewPath("metadata", "taints")) // clients know the causes by this path
	for i, cidr := range n.Spec.PodCIDRs {
		p.add(validation.IsValidCIDRForLegacyField(path.Child("podCIDRs").Index(i), cidr, true, nil)...)
	}
	if len(n.Spec.PodCIDRs) > 1 {
		if dual, err := netutils.IsDualStackCIDRStrings(n.Spec.PodCIDRs); err != nil || !dual || len(n.Spec.PodCIDRs) > 2 {
			p.invalid(path.Child("podCIDRs"), n.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family")
		}
	}
	checkNodeStatus(&p, n)
	if old == nil {
		return p.list
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		p.forbidden(path.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid")
	}
	if old.Spec.ProviderID != "" && old.Spec.ProviderID != n.Spec.ProviderID {
		p.forbidden(path.Child("providerID"), "node updates may not change providerID except from \"\" to valid")
	}
	if old.Spec.DoNotUseExternalID != n.Spec.DoNotUseExternalID {
		p.forbidden(path.Child("externalID"), "may not be updated")
	}
	return p.list
}

func validateNodeStatus(n, _ *corev1.Node) field.ErrorList {
	var p problems
	checkNodeStatus(&p, n)
	seen := sets.New[corev1.NodeAddress]()
	for i, a := range n.Status.Addresses {
		if seen.Has(a) {
			p.add(field.Duplicate(field.NewPath("status", "addresses").Index(i), a))
		}
		seen.Insert(a)
	}
	return p.list
}

var declaredFeature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

func checkNodeStatus(p *problems, n *corev1.Node) {
	path := field.NewPath("status")
	for name, amount := range n.Status.Capacity {
		checkAmount(p, name, amount, path.Child("capacity", string(name)))
	}
	for name, amount := range n.Status.Allocatable {
		checkAmount(p, name, amount, path.Child("allocatable", string(name)))
	}
	if s := n.Status.NodeInfo.Swap; s != nil && s.Capacity != nil {
		p.positive(path.Child("nodeInfo", "swap", "capacity"), *s.Capacity)
	}
	features := n.Status.DeclaredFeatures
	for i, f := range features {
		at := path.Child("declaredFeatures").Index(i)
		switch {
		case len(f) > validation.DNS1123SubdomainMaxLength:
			p.invalid(at, f, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", f, validation.DNS1123SubdomainMaxLength))
		case !declaredFeature.MatchString(f):
			p.invalid(at, f, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", f))
		}
		switch {
		case i > 0 && f == features[i-1]:
			p.add(field.Duplicate(at, f))
		case i > 0 && f < features[i-1]:
			p.invalid(at, f, "list must be sorted alphabetically")
		}
	}
}

func checkTaints(p *problems, taints []corev1.Taint, path *field.Path) {
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := sets.New[key]()
	for i, t := range taints {
		at := path.Index(i)
		p.qualified(at.Child("key"), t.Key)
		if messages := validation.IsValidLabelValue(t.Value); len(messages) > 0 {
			p.invalid(at.Child("value"), t.Value, strings.Join(messages, ";"))
		}
		checkTaintEffect(p, t.Effect, at.Child("effect"))
		if k := (key{t.Key, t.Effect}); seen.Has(k) {
			e := field.Duplicate(at, t)
			e.Detail = "taints must be unique by key and effect pair"
			p.add(e)
		} else {
			seen.Insert(k)
		}
	}
}

func warnNode(n, _ *corev1.Node) []string {
	var out []string
	if n.Spec.ConfigSource != nil {
		out = append(out, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		out = append(out, validation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return out
}

// nodeProxy is a node's agent, or another port of the node's own address.
func nodeProxy(ctx context.Context, env kind.Env, n *corev1.Node, path string, query url.Values) (kind.Target, error) {
	via := kind.ViaOf(ctx)
	host, err := agentHost(env, n)
	if err != nil {
		return kind.Target{}, err
	}
	address, port, err := net.SplitHostPort(host)
	if err != nil {
		return kind.Target{}, fmt.Errorf("address of node %s: %w", n.Name, err)
	}
	if via.Port != "" && via.Port != port {
		return proxyTarget(via.Scheme, address, via.Port, path, query)
	}
	return kind.Target{URL: &url.URL{Scheme: "https", Host: host, Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query.Encode()}, Node: n.Name, Stream: true}, nil
}
