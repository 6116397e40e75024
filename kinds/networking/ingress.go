package networking

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

// classAnnotation named an Ingress's class before spec.ingressClassName did.
const classAnnotation = "kubernetes.io/ingress.class"

var _ = kind.Add(&Group, kind.Def[networkingv1.Ingress]{
	Names:          kind.Names{Plural: "ingresses", Short: []string{"ing"}},
	Validate:       validateIngress,
	ValidateStatus: validateIngressStatus,
	Warn:           warnIngress,
	Columns: []kind.Column[networkingv1.Ingress]{
		{Name: "Class", Description: "The IngressClass whose controller serves this ingress.",
			Value: func(i *networkingv1.Ingress, _ time.Time) any { return ptr.Deref(i.Spec.IngressClassName, cell.None) }},
		{Name: "Hosts", Description: "The hosts that requests are matched against before the paths are.",
			Value: func(i *networkingv1.Ingress, _ time.Time) any { return hosts(i.Spec.Rules) }},
		{Name: "Address", Description: "Where the load balancer is reached.",
			Value: func(i *networkingv1.Ingress, _ time.Time) any { return addresses(i.Status.LoadBalancer.Ingress) }},
		{Name: "Ports", Description: "The ports that are open; 443 if there is a TLS configuration.",
			Value: func(i *networkingv1.Ingress, _ time.Time) any {
				if len(i.Spec.TLS) > 0 {
					return "80, 443"
				}
				return "80"
			}},
	},
})

// shownHosts bounds the HOSTS column.
const shownHosts = 3

func hosts(rules []networkingv1.IngressRule) string {
	var list []string
	for i, r := range rules {
		if len(list) == shownHosts {
			return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-i)
		}
		if r.Host != "" {
			list = append(list, r.Host)
		}
	}
	if len(list) == 0 {
		return "*"
	}
	return strings.Join(list, ",")
}

func addresses(ingress []networkingv1.IngressLoadBalancerIngress) string {
	var list []string
	for _, i := range ingress {
		switch {
		case i.IP != "":
			list = append(list, i.IP)
		case i.Hostname != "":
			list = append(list, i.Hostname)
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

func warnIngress(i, old *networkingv1.Ingress) []string {
	if _, set := i.Annotations[classAnnotation]; set && old == nil && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
	}
	return nil
}

func validateIngress(i, old *networkingv1.Ingress) field.ErrorList {
	path := field.NewPath("spec")
	spec := &i.Spec
	var errs field.ErrorList
	if class, set := i.Annotations[classAnnotation]; old == nil && set && spec.IngressClassName != nil && class != *spec.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(classAnnotation), class, "must match `ingressClassName` when both are specified"))
	}
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for n := range spec.Rules {
		errs = append(errs, validateIngressRule(&spec.Rules[n], path.Child("rules").Index(n))...)
	}
	for n := range spec.TLS {
		errs = append(errs, validateTLS(&spec.TLS[n], path.Child("tls").Index(n))...)
	}
	if spec.IngressClassName != nil {
		errs = append(errs, rule.Subdomain(*spec.IngressClassName, path.Child("ingressClassName"))...)
	}
	return errs
}

func validateIngressRule(r *networkingv1.IngressRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Host != "" {
		if netutils.ParseIPSloppy(r.Host) != nil {
			errs = append(errs, field.Invalid(path.Child("host"), r.Host, "must be a DNS name, not an IP address"))
		}
		errs = append(errs, validateHost(r.Host, path.Child("host"))...)
	}
	if r.HTTP == nil {
		return errs
	}
	paths := path.Child("http", "paths")
	if len(r.HTTP.Paths) == 0 {
		errs = append(errs, field.Required(paths, ""))
	}
	for i := range r.HTTP.Paths {
		errs = append(errs, validatePath(&r.HTTP.Paths[i], paths.Index(i))...)
	}
	return errs
}

func validateHost(host string, path *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return rule.Invalid(host, path, validation.IsWildcardDNS1123Subdomain(host))
	}
	return rule.Subdomain(host, path)
}

func validatePath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	at := path.Child("path")
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			errs = append(errs, field.Invalid(at, p.Path, "must be an absolute path"))
		}
		for _, s := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, s) {
				errs = append(errs, field.Invalid(at, p.Path, fmt.Sprintf("must not contain '%s'", s)))
			}
		}
		for _, s := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, s) {
				errs = append(errs, field.Invalid(at, p.Path, fmt.Sprintf("cannot end with '%s'", s)))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			errs = append(errs, field.Invalid(at, p.Path, "must be an absolute path"))
		}
	default:
		errs = rule.OneOf(*p.PathType, path.Child("pathType"), networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
	return append(errs, validateBackend(&p.Backend, path.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateTypedReference(b.Resource, path.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	var errs field.ErrorList
	service, port := path.Child("service"), b.Service.Port
	if b.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	} else {
		errs = append(errs, rule.Label(b.Service.Name, service.Child("name"))...)
	}
	switch {
	case port.Name != "" && port.Number != 0:
		return append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		return append(errs, rule.Invalid(port.Name, service.Child("port", "name"), validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		return append(errs, rule.Port(port.Number, service.Child("port", "number"))...)
	}
	return append(errs, field.Required(path, "port name or number is required"))
}

func validateTypedReference(r *corev1.TypedLocalObjectReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.APIGroup != nil {
		errs = append(errs, rule.Subdomain(*r.APIGroup, path.Child("apiGroup"))...)
	}
	errs = append(errs, requiredSegment(r.Kind, path.Child("kind"))...)
	return append(errs, requiredSegment(r.Name, path.Child("name"))...)
}

func requiredSegment(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rule.Invalid(name, path, rule.PathSegment(name))
}

func validateTLS(t *networkingv1.IngressTLS, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, host := range t.Hosts {
		errs = append(errs, validateHost(host, path.Child("hosts").Index(i))...)
	}
	if t.SecretName != "" {
		errs = append(errs, rule.Subdomain(t.SecretName, path.Child("secretName"))...)
	}
	return errs
}

func validateIngressStatus(i, old *networkingv1.Ingress) field.ErrorList {
	var known []string
	if old != nil {
		for _, a := range old.Status.LoadBalancer.Ingress {
			known = append(known, a.IP)
		}
	}
	var errs field.ErrorList
	for n, a := range i.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(n)
		if a.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), a.IP, true, known)...)
		}
		if a.Hostname != "" {
			errs = append(errs, rule.Subdomain(a.Hostname, at.Child("hostname"))...)
			if netutils.ParseIPSloppy(a.Hostname) != nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), a.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}
