package roles

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Request is an authorization question, prepared for comparing with many rules.
type Request struct {
	verb, group, resource, sub, name string
	path                             string
	isResource                       bool
}

// RequestOf prepares the question.
func RequestOf(a authorizer.Attributes) Request {
	return Request{verb: a.GetVerb(), group: a.GetAPIGroup(), resource: a.GetResource(), sub: a.GetSubresource(), name: a.GetName(),
		path: a.GetPath(), isResource: a.IsResourceRequest()}
}

// AllowedBy tells whether a rule allows what is asked. A rule's "*" stands for every verb, group or resource (with every subresource);
// "*/scale" for that subresource of every resource; resource names, when given, must name the object; a URL that ends in "*" is a prefix.
func (q Request) AllowedBy(rule *rbacv1.PolicyRule) bool {
	if !has(rule.Verbs, q.verb) {
		return false
	}
	if !q.isResource {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			return url == q.path || strings.HasSuffix(url, "*") && strings.HasPrefix(q.path, strings.TrimRight(url, "*"))
		})
	}
	return has(rule.APIGroups, q.group) && slices.ContainsFunc(rule.Resources, q.is) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, q.name))
}

func has(list []string, v string) bool {
	for _, s := range list {
		if s == v || s == "*" {
			return true
		}
	}
	return false
}

// is tells whether a rule's resource is the one asked for.
func (q Request) is(resource string) bool {
	if resource == "*" {
		return true
	}
	if q.sub == "" {
		return resource == q.resource
	}
	main, sub, ok := strings.Cut(resource, "/")
	return ok && sub == q.sub && (main == "*" || main == q.resource)
}
