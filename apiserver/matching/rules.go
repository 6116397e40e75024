package matching

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	regv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

// registration is the group whose objects no webhook or policy is asked about: a wrong one could not be removed.
const registration = "admissionregistration.k8s.io"

// Exempt tells that the request is about webhooks or policies themselves.
func Exempt(r *kind.AdmissionRequest) bool { return r.Kind.Group == registration }

// Choice is what chooses requests, compiled: a webhook's, a policy's or a binding's.
type Choice struct {
	Rules []regv1.NamedRuleWithOperations
	// Exclude are rules for requests that are not chosen.
	Exclude []regv1.NamedRuleWithOperations
	// Exact says that a rule counts only for the version that it names.
	Exact bool
	// All says that without rules every request is chosen.
	All        bool
	namespaces labels.Selector
	objects    labels.Selector
	// err is why a selector cannot be used; it holds for requests that the rules choose.
	err error
}

// NewChoice compiles the selectors; nil ones choose everything. exact may be nil.
func NewChoice(rules, exclude []regv1.NamedRuleWithOperations, policy *regv1.MatchPolicyType, namespaceSelector, objectSelector *metav1.LabelSelector) *Choice {
	c := &Choice{Rules: rules, Exclude: exclude, Exact: policy == nil || *policy == regv1.Exact}
	c.namespaces = c.selector(namespaceSelector)
	c.objects = c.selector(objectSelector)
	return c
}

func (c *Choice) selector(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		c.err = err
		return labels.Everything()
	}
	return selector
}

// Match tells whether the request is chosen, and in which form. An error (a namespace that is not there) only comes with requests that the rules choose.
func (c *Choice) Match(ctx context.Context, r *Request) (Target, bool, error) {
	if _, excluded := c.rules(c.Exclude, r); excluded {
		return Target{}, false, nil
	}
	t, ok := c.rules(c.Rules, r)
	if !ok && c.All && len(c.Rules) == 0 {
		t, ok = r.own, true
	}
	if !ok {
		return Target{}, false, nil
	}
	if c.err != nil {
		return Target{}, false, apierrors.NewInternalError(c.err)
	}
	if !c.objects.Empty() && !r.labelled(c.objects) {
		return Target{}, false, nil
	}
	in, err := r.within(ctx, c.namespaces)
	return t, in && err == nil, err
}

// rules finds the form of the request that the first fitting rule names.
func (c *Choice) rules(rules []regv1.NamedRuleWithOperations, r *Request) (Target, bool) {
	for i := range rules {
		if r.fits(&rules[i], r.own.Resource) {
			return r.own, true
		}
	}
	if c.Exact {
		return Target{}, false
	}
	for i := range rules {
		for _, other := range r.Others() {
			if r.fits(&rules[i], other.Resource) {
				return other, true
			}
		}
	}
	return Target{}, false
}

// fits tells whether a rule chooses the request, were it made to resource.
func (r *Request) fits(rule *regv1.NamedRuleWithOperations, resource schema.GroupVersionResource) bool {
	return has(rule.Operations, regv1.OperationAll, regv1.OperationType(r.Operation)) &&
		has(rule.APIGroups, "*", resource.Group) && has(rule.APIVersions, "*", resource.Version) &&
		slices.ContainsFunc(rule.Resources, func(named string) bool { return r.resourceFits(named, resource.Resource) }) &&
		r.scopeFits(rule.Scope) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name()))
}

func has[T comparable](list []T, all, one T) bool {
	return slices.Contains(list, all) || slices.Contains(list, one)
}

func (r *Request) resourceFits(named, resource string) bool {
	name, sub, _ := strings.Cut(named, "/")
	return (name == "*" || name == resource) && (sub == "*" || sub == r.Ref.Subresource)
}

// scopeFits counts Namespaces as objects of the cluster.
func (r *Request) scopeFits(scope *regv1.ScopeType) bool {
	if scope == nil || *scope == regv1.AllScopes {
		return true
	}
	namespaced := r.Ref.Namespace != "" && !r.aboutNamespace()
	return namespaced == (*scope == regv1.NamespacedScope)
}

// labelled tells whether the new or the old object has labels that selector chooses.
func (r *Request) labelled(selector labels.Selector) bool {
	fits := func(obj runtime.Object) bool {
		m, err := meta.Accessor(obj)
		return err == nil && selector.Matches(labels.Set(m.GetLabels()))
	}
	if r.Body != nil {
		return fits(r.Body)
	}
	if r.Operation == admissionv1.Connect {
		return false
	}
	return r.Object != nil && fits(r.Object) || r.Old != nil && fits(r.Old)
}

// within tells whether the object's namespace is chosen. Objects of the cluster always are, but for Namespaces.
func (r *Request) within(ctx context.Context, selector labels.Selector) (bool, error) {
	if selector.Empty() || r.Namespace() == "" && !r.aboutNamespace() {
		return true, nil
	}
	if r.aboutNamespace() && r.Ref.Subresource == "" && r.Object != nil {
		return selector.Matches(labels.Set(r.Object.GetLabels())), nil
	}
	ns, err := r.NamespaceObject(ctx)
	if err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(ns.GetLabels())), nil
}

type found struct {
	object *corev1.Namespace
	err    error
}

// NamespaceObject is the Namespace of the request, as stored: shared, never to be changed.
func (r *Request) NamespaceObject(ctx context.Context) (*corev1.Namespace, error) {
	if r.namespace == nil {
		f := &found{}
		obj, err := r.Env.Get(ctx, namespaces.GroupResource(), "", r.Namespace())
		if ns, ok := obj.(*corev1.Namespace); err == nil && ok {
			f.object = ns
		} else if f.err = err; err == nil {
			f.err = apierrors.NewNotFound(namespaces.GroupResource(), r.Namespace())
		}
		r.namespace = f
	}
	return r.namespace.object, r.namespace.err
}
