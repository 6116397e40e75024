package admissionregistration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[admissionv1.ValidatingWebhookConfiguration]{
	Names:          kind.Names{Plural: "validatingwebhookconfigurations", Categories: categories},
	Scope:          kind.Cluster,
	RequireVersion: true,
	SpecOf:         func(c *admissionv1.ValidatingWebhookConfiguration) any { return c.Webhooks },
	Default: func(c *admissionv1.ValidatingWebhookConfiguration) {
		for i := range c.Webhooks {
			defaultWebhook(validating(&c.Webhooks[i]))
		}
	},
	Validate: func(c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
		var now, before []hook
		for i := range c.Webhooks {
			now = append(now, validating(&c.Webhooks[i]))
		}
		for i := 0; old != nil && i < len(old.Webhooks); i++ {
			before = append(before, validating(&old.Webhooks[i]))
		}
		return validateWebhooks(now, before, old != nil)
	},
	Columns: []kind.Column[admissionv1.ValidatingWebhookConfiguration]{{Name: "Webhooks", Type: "integer", Description: "The number of webhooks.",
		Value: func(c *admissionv1.ValidatingWebhookConfiguration, _ time.Time) any { return int64(len(c.Webhooks)) }}},
})

var _ = kind.Add(&Group, kind.Def[admissionv1.MutatingWebhookConfiguration]{
	Names:          kind.Names{Plural: "mutatingwebhookconfigurations", Categories: categories},
	Scope:          kind.Cluster,
	RequireVersion: true,
	SpecOf:         func(c *admissionv1.MutatingWebhookConfiguration) any { return c.Webhooks },
	Default: func(c *admissionv1.MutatingWebhookConfiguration) {
		for i := range c.Webhooks {
			defaultWebhook(mutating(&c.Webhooks[i]))
			orDefault(&c.Webhooks[i].ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
		}
	},
	Validate: validateMutatingConfiguration,
	Columns: []kind.Column[admissionv1.MutatingWebhookConfiguration]{{Name: "Webhooks", Type: "integer", Description: "The number of webhooks.",
		Value: func(c *admissionv1.MutatingWebhookConfiguration, _ time.Time) any { return int64(len(c.Webhooks)) }}},
})

func validateMutatingConfiguration(c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
	var now, before []hook
	var errs field.ErrorList
	for i := range c.Webhooks {
		now = append(now, mutating(&c.Webhooks[i]))
		if p := c.Webhooks[i].ReinvocationPolicy; p != nil {
			errs = append(errs, rule.OneOf(*p, field.NewPath("webhooks").Index(i).Child("reinvocationPolicy"),
				admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
		}
	}
	for i := 0; old != nil && i < len(old.Webhooks); i++ {
		before = append(before, mutating(&old.Webhooks[i]))
	}
	return append(validateWebhooks(now, before, old != nil), errs...)
}

// hook points at what a webhook of either sort has.
type hook struct {
	name        string
	client      *admissionv1.WebhookClientConfig
	rules       []admissionv1.RuleWithOperations
	failure     **admissionv1.FailurePolicyType
	match       **admissionv1.MatchPolicyType
	namespaces  **metav1.LabelSelector
	objects     **metav1.LabelSelector
	sideEffects *admissionv1.SideEffectClass
	timeout     **int32
	reviews     []string
	conditions  []admissionv1.MatchCondition
}

func validating(w *admissionv1.ValidatingWebhook) hook {
	return hook{w.Name, &w.ClientConfig, w.Rules, &w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector,
		w.SideEffects, &w.TimeoutSeconds, w.AdmissionReviewVersions, w.MatchConditions}
}

func mutating(w *admissionv1.MutatingWebhook) hook {
	return hook{w.Name, &w.ClientConfig, w.Rules, &w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector,
		w.SideEffects, &w.TimeoutSeconds, w.AdmissionReviewVersions, w.MatchConditions}
}

func defaultWebhook(h hook) {
	orDefault(h.failure, admissionv1.Fail)
	orDefault(h.match, admissionv1.Equivalent)
	orDefault(h.namespaces, metav1.LabelSelector{})
	orDefault(h.objects, metav1.LabelSelector{})
	orDefault(h.timeout, 10)
	if h.client.Service != nil {
		orDefault(&h.client.Service.Port, 443)
	}
	for i := range h.rules {
		defaultRule(&h.rules[i].Rule)
	}
}

// reviewVersions are the versions of AdmissionReview that webhooks are sent.
var reviewVersions = []string{"v1", "v1beta1"}

// validateWebhooks checks the webhooks of a configuration. An update may keep what an old version allowed: repeated names, side effects, and
// reviews of a version unknown here.
func validateWebhooks(hooks, old []hook, update bool) field.ErrorList {
	strictNames := !update || uniqueNames(old)
	strictEffects := !update || !slices.ContainsFunc(old, func(h hook) bool { return !harmless(h.sideEffects) })
	strictReviews := !update || !slices.ContainsFunc(old, func(h hook) bool { return len(h.reviews) > 0 && !knownReview(h.reviews) })
	known := map[string]bool{}
	for _, h := range old {
		for _, c := range h.conditions {
			known[c.Expression] = true
		}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, h := range hooks {
		path := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(h, strictEffects, path)...)
		errs = append(errs, validateConditions(h.conditions, false, known, path.Child("matchConditions"))...)
		errs = append(errs, validateReviews(h.reviews, strictReviews, path.Child("admissionReviewVersions"))...)
		if strictNames && h.name != "" && seen[h.name] {
			errs = append(errs, field.Duplicate(path.Child("name"), h.name))
		}
		seen[h.name] = true
	}
	return errs
}

func uniqueNames(hooks []hook) bool {
	seen := map[string]bool{}
	for _, h := range hooks {
		if seen[h.name] {
			return false
		}
		seen[h.name] = true
	}
	return true
}

func harmless(s *admissionv1.SideEffectClass) bool {
	c := ptr.Deref(s, "")
	return c == admissionv1.SideEffectClassNone || c == admissionv1.SideEffectClassNoneOnDryRun
}

func knownReview(versions []string) bool {
	return slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(reviewVersions, v) })
}

func validateReviews(versions []string, strict bool, path *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(reviewVersions, ", "))}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		errs = append(errs, rule.Invalid(v, path.Index(i), validation.IsDNS1035Label(v))...)
	}
	if strict && !knownReview(versions) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+strings.Join(reviewVersions, ", ")))
	}
	return errs
}

func validateWebhook(h hook, strictEffects bool, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), h.name)
	for i := range h.rules {
		errs = append(errs, validateOperations(&h.rules[i], path.Child("rules").Index(i))...)
	}
	if *h.failure != nil {
		errs = append(errs, rule.OneOf(**h.failure, path.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	}
	if *h.match != nil {
		errs = append(errs, rule.OneOf(**h.match, path.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	}
	errs = append(errs, validateSideEffects(h.sideEffects, strictEffects, path.Child("sideEffects"))...)
	if t := ptr.Deref(*h.timeout, 10); t < 1 || t > 30 {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), t, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, rule.Selector(*h.namespaces, path.Child("namespaceSelector"))...)
	errs = append(errs, rule.Selector(*h.objects, path.Child("objectSelector"))...)
	client := path.Child("clientConfig")
	switch c := h.client; {
	case (c.URL == nil) == (c.Service == nil):
		errs = append(errs, field.Required(client, "exactly one of url or service is required"))
	case c.URL != nil:
		errs = append(errs, webhook.ValidateWebhookURL(client.Child("url"), *c.URL, true)...)
	default:
		errs = append(errs, webhook.ValidateWebhookService(client.Child("service"), c.Service.Namespace, c.Service.Name, c.Service.Path, ptr.Deref(c.Service.Port, 443))...)
	}
	return errs
}

func validateSideEffects(s *admissionv1.SideEffectClass, strict bool, path *field.Path) field.ErrorList {
	allowed := []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}
	if !strict {
		allowed = append(allowed, admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown)
	}
	if s == nil {
		var names []string
		for _, a := range allowed {
			names = append(names, string(a))
		}
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(names, ", "))}
	}
	return rule.OneOf(*s, path, allowed...)
}

func validateOperations(r *admissionv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	operations := path.Child("operations")
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(operations, ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		errs = append(errs, field.Invalid(operations, r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, o := range r.Operations {
		errs = append(errs, rule.OneOf(o, operations.Index(i), admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update)...)
	}
	return append(errs, validateRule(&r.Rule, path)...)
}

func validateRule(r *admissionv1.Rule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	list := func(values []string, name, what string) {
		at := path.Child(name)
		if len(values) == 0 {
			errs = append(errs, field.Required(at, ""))
		}
		if len(values) > 1 && slices.Contains(values, "*") {
			errs = append(errs, field.Invalid(at, values, "if '*' is present, must not specify other "+what))
		}
	}
	list(r.APIGroups, "apiGroups", "API groups") // the core group's name is empty
	list(r.APIVersions, "apiVersions", "API versions")
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
	if r.Scope != nil {
		errs = append(errs, rule.OneOf(*r.Scope, path.Child("scope"), admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope)...)
	}
	return errs
}

// validateResources refuses a resource that a wildcard before it covers already.
func validateResources(resources []string, path *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	plain := false
	wild := map[string]bool{} // the wildcards seen: x/* and */x
	for i, r := range resources {
		resource, sub, isSub := strings.Cut(r, "/")
		switch {
		case r == "":
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		case !isSub:
			plain = plain || r != "*"
			continue
		}
		for _, w := range []string{resource + "/*", "*/" + sub} {
			if wild[w] {
				errs = append(errs, field.Invalid(path.Index(i), r, fmt.Sprintf("if '%s' is present, must not specify %s", w, r)))
			}
		}
		if resource == "*" || sub == "*" {
			wild[r] = true
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(resources, "*") {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
