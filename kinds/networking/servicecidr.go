package networking

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

const immutable = "field is immutable"

var _ = kind.Add(&Group, kind.Def[networkingv1.ServiceCIDR]{
	Names:           kind.Names{Plural: "servicecidrs", Kind: "ServiceCIDR"},
	AnyGenerateName: true,
	Scope:           kind.Cluster,
	NoGeneration:    true,
	Validate:        validateServiceCIDR,
	Columns: []kind.Column[networkingv1.ServiceCIDR]{
		{Name: "CIDRs", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"],
			Value: func(c *networkingv1.ServiceCIDR, _ time.Time) any { return strings.Join(c.Spec.CIDRs, ",") }},
	},
})

// validateServiceCIDR lets a range only ever grow a second family.
func validateServiceCIDR(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	path, cidrs := field.NewPath("spec", "cidrs"), c.Spec.CIDRs
	var errs field.ErrorList
	if old != nil {
		if len(cidrs) != len(old.Spec.CIDRs) && !(len(old.Spec.CIDRs) == 1 && len(cidrs) == 2) {
			return field.ErrorList{field.Invalid(path, cidrs, immutable)}
		}
		for i, was := range old.Spec.CIDRs {
			if cidrs[i] != was {
				errs = append(errs, field.Invalid(path.Index(i), cidrs[i], immutable))
			}
		}
		if len(cidrs) == len(old.Spec.CIDRs) {
			return errs
		}
	}
	switch n := len(cidrs); {
	case n == 0:
		return append(errs, field.Required(path, "at least one CIDR required"))
	case n > 2:
		return append(errs, field.Invalid(path, cidrs, "may only hold up to 2 values"))
	}
	for i, text := range cidrs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), text)...)
	}
	if len(cidrs) == 2 {
		if family := netutils.IPFamilyOfCIDRString(cidrs[0]); family == netutils.IPFamilyOfCIDRString(cidrs[1]) && family != netutils.IPFamilyUnknown {
			errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
	}
	return errs
}

var _ = kind.Add(&Group, kind.Def[networkingv1.IPAddress]{
	Names:        kind.Names{Plural: "ipaddresses", Short: []string{"ip"}, Kind: "IPAddress"},
	Scope:        kind.Cluster,
	NoGeneration: true,
	ValidateName: func(name string, _ bool) []string {
		var messages []string
		for _, err := range validation.IsValidIP(nil, name) {
			messages = append(messages, err.Detail)
		}
		return messages
	},
	Validate: validateIPAddress,
	NoAge:    true,
	Columns: []kind.Column[networkingv1.IPAddress]{
		{Name: "ParentRef", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"],
			Value: func(a *networkingv1.IPAddress, _ time.Time) any { return parent(a.Spec.ParentRef) }},
	},
})

func parent(r *networkingv1.ParentReference) string {
	if r == nil {
		return cell.None
	}
	out := strings.ToLower(schema.GroupResource{Group: r.Group, Resource: r.Resource}.String())
	if r.Namespace != "" {
		out += "/" + r.Namespace
	}
	return out + "/" + r.Name
}

func validateIPAddress(a, old *networkingv1.IPAddress) field.ErrorList {
	path := field.NewPath("spec", "parentRef")
	r := a.Spec.ParentRef
	if r == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if r.Group != "" {
		errs = append(errs, rule.Subdomain(r.Group, path.Child("group"))...)
	}
	errs = append(errs, requiredSegment(r.Resource, path.Child("resource"))...)
	errs = append(errs, requiredSegment(r.Name, path.Child("name"))...)
	if r.Namespace != "" {
		errs = append(errs, rule.Invalid(r.Namespace, path.Child("namespace"), rule.PathSegment(r.Namespace))...)
	}
	if old != nil {
		errs = append(errs, rule.Immutable(r, old.Spec.ParentRef, path)...)
	}
	return errs
}
