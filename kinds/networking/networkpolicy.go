package networking

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[networkingv1.NetworkPolicy]{
	Names:           kind.Names{Plural: "networkpolicies", Short: []string{"netpol"}},
	AnyGenerateName: true,
	Default:         defaultNetworkPolicy,
	Validate:        validateNetworkPolicy,
	Warn:            warnNetworkPolicy,
	Columns: []kind.Column[networkingv1.NetworkPolicy]{
		{Name: "Pod-Selector", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"],
			Value: func(p *networkingv1.NetworkPolicy, _ time.Time) any { return cell.Selector(&p.Spec.PodSelector) }},
	},
})

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		defaultPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			ports[i].Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

func validateNetworkPolicy(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	path := field.NewPath("spec")
	var known []string // blocks from before stricter rules stay
	if old != nil {
		eachBlock(old, func(b *networkingv1.IPBlock, _ *field.Path) { known = append(append(known, b.CIDR), b.Except...) })
	}
	errs := rule.Selector(&p.Spec.PodSelector, path.Child("podSelector"))
	eachRule(p, func(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, portsPath, peersPath *field.Path) {
		for i := range ports {
			errs = append(errs, validatePort(&ports[i], portsPath.Index(i))...)
		}
		for i := range peers {
			errs = append(errs, validatePeer(&peers[i], known, peersPath.Index(i))...)
		}
	})
	types := path.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(types, p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range p.Spec.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			errs = append(errs, field.NotSupported(types.Index(i), t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}))
		}
	}
	return errs
}

// eachRule visits both directions alike.
func eachRule(p *networkingv1.NetworkPolicy, visit func(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, portsPath, peersPath *field.Path)) {
	for i := range p.Spec.Ingress {
		r, at := &p.Spec.Ingress[i], field.NewPath("spec", "ingress").Index(i)
		visit(r.Ports, r.From, at.Child("ports"), at.Child("from"))
	}
	for i := range p.Spec.Egress {
		r, at := &p.Spec.Egress[i], field.NewPath("spec", "egress").Index(i)
		visit(r.Ports, r.To, at.Child("ports"), at.Child("to"))
	}
}

func eachBlock(p *networkingv1.NetworkPolicy, visit func(b *networkingv1.IPBlock, path *field.Path)) {
	eachRule(p, func(_ []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, _, path *field.Path) {
		for i := range peers {
			if b := peers[i].IPBlock; b != nil {
				visit(b, path.Index(i).Child("ipBlock"))
			}
		}
	})
}

func validatePort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	end := path.Child("endPort")
	if p.Protocol != nil {
		errs = append(errs, rule.InOrder(*p.Protocol, path.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
	case p.Port.Type == intstr.Int:
		errs = append(errs, rule.Port(p.Port.IntVal, path.Child("port"))...)
		if p.EndPort != nil {
			if *p.EndPort < p.Port.IntVal {
				errs = append(errs, field.Invalid(end, p.Port.IntVal, "must be greater than or equal to `port`"))
			}
			errs = append(errs, rule.Port(*p.EndPort, end)...)
		}
	default:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, rule.Invalid(p.Port.StrVal, path.Child("port"), validation.IsValidPortName(p.Port.StrVal))...)
	}
	return errs
}

func validatePeer(p *networkingv1.NetworkPolicyPeer, known []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	if p.PodSelector != nil {
		errs = append(errs, rule.Selector(p.PodSelector, path.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, rule.Selector(p.NamespaceSelector, path.Child("namespaceSelector"))...)
	}
	if p.IPBlock != nil {
		errs = append(errs, validateBlock(p.IPBlock, known, path.Child("ipBlock"))...)
	}
	switch {
	case !selects && p.IPBlock == nil:
		errs = append(errs, field.Required(path, "must specify a peer"))
	case selects && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
	}
	return errs
}

func validateBlock(b *networkingv1.IPBlock, known []string, path *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := validation.IsValidCIDRForLegacyField(path.Child("cidr"), b.CIDR, true, known)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs // said already
	}
	size, _ := whole.Mask.Size()
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, validation.IsValidCIDRForLegacyField(at, text, true, known)...)
		_, part, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if partSize, _ := part.Mask.Size(); !whole.Contains(part.IP) || partSize <= size {
			errs = append(errs, field.Invalid(at, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

func warnNetworkPolicy(p, _ *networkingv1.NetworkPolicy) []string {
	var warnings []string
	eachBlock(p, func(b *networkingv1.IPBlock, path *field.Path) {
		warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("cidr"), b.CIDR)...)
		for i, e := range b.Except {
			warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("except").Index(i), e)...)
		}
	})
	return warnings
}
