package flowcontrol

import (
	"fmt"
	"slices"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[flowcontrolv1.FlowSchema]{
	Names: kind.Names{Plural: "flowschemas"},
	Scope: kind.Cluster,
	Default: func(s *flowcontrolv1.FlowSchema) {
		if s.Spec.MatchingPrecedence == 0 {
			s.Spec.MatchingPrecedence = defaultPrecedence
		}
	},
	Validate:       validateFlowSchema,
	ValidateStatus: validateFlowSchemaStatus,
	NoAge:          true,
	Columns: []kind.Column[flowcontrolv1.FlowSchema]{
		{Name: "PriorityLevel", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"],
			Value: func(s *flowcontrolv1.FlowSchema, _ time.Time) any { return s.Spec.PriorityLevelConfiguration.Name }},
		{Name: "MatchingPrecedence", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["matchingPrecedence"],
			Value: func(s *flowcontrolv1.FlowSchema, _ time.Time) any { return int64(s.Spec.MatchingPrecedence) }},
		{Name: "DistinguisherMethod", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["distinguisherMethod"],
			Value: func(s *flowcontrolv1.FlowSchema, _ time.Time) any {
				if s.Spec.DistinguisherMethod == nil {
					return cell.None
				}
				return string(s.Spec.DistinguisherMethod.Type)
			}},
		{Name: "Age", Description: "Time since the object was created.",
			Value: func(s *flowcontrolv1.FlowSchema, now time.Time) any { return cell.Age(s.CreationTimestamp, now) }},
		{Name: "MissingPL", Description: "Whether the priority level is missing or broken.",
			Value: func(s *flowcontrolv1.FlowSchema, _ time.Time) any { return dangling(s) }},
	},
})

func dangling(s *flowcontrolv1.FlowSchema) string {
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}

const (
	defaultPrecedence = 1000
	maxPrecedence     = 10000
	exempt            = "exempt" // the schema and the level that are never limited
)

func validateFlowSchema(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	precedence := path.Child("matchingPrecedence")
	switch n := s.Spec.MatchingPrecedence; {
	case n <= 0:
		errs = append(errs, field.Invalid(precedence, n, "must be a positive value"))
	case n > maxPrecedence:
		errs = append(errs, field.Invalid(precedence, n, fmt.Sprintf("must not be greater than %d", maxPrecedence)))
	case n == 1 && s.Name != exempt:
		errs = append(errs, field.Invalid(precedence, n, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		errs = append(errs, rule.OneOf(m.Type, path.Child("distinguisherMethod", "type"),
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	level := path.Child("priorityLevelConfiguration", "name")
	if name := s.Spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, rule.Subdomain(name, level)...)
	}
	for i := range s.Spec.Rules {
		errs = append(errs, validateFlowRule(&s.Spec.Rules[i], path.Child("rules").Index(i))...)
	}
	return append(errs, checkMandatorySchema(s, path)...)
}

func validateFlowSchemaStatus(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	var types []string
	for _, c := range s.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return validateConditionTypes(types, field.NewPath("status", "conditions"))
}

func validateFlowRule(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(&r.Subjects[i], path.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		errs = append(errs, validateNonResourceRule(&r.NonResourceRules[i], path.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

func validateSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	errs := rule.OneOf(s.Kind, path.Child("kind"), flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	if len(errs) > 0 {
		return errs
	}
	only := func(set bool, name string, kind flowcontrolv1.SubjectKind) {
		switch {
		case s.Kind == kind && !set:
			errs = append(errs, field.Required(path.Child(name), fmt.Sprintf("%s is required when subject kind is '%s'", name, kind)))
		case s.Kind != kind && set:
			errs = append(errs, field.Forbidden(path.Child(name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", name, kind)))
		}
	}
	only(s.ServiceAccount != nil, "serviceAccount", flowcontrolv1.SubjectKindServiceAccount)
	only(s.User != nil, "user", flowcontrolv1.SubjectKindUser)
	only(s.Group != nil, "group", flowcontrolv1.SubjectKindGroup)
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil && s.User.Name == "":
		errs = append(errs, field.Required(path.Child("user", "name"), ""))
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil && s.Group.Name == "":
		errs = append(errs, field.Required(path.Child("group", "name"), ""))
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		errs = append(errs, validateServiceAccount(s.ServiceAccount, path.Child("serviceAccount"))...)
	}
	return errs
}

func validateServiceAccount(s *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s.Name {
	case "":
		errs = append(errs, field.Required(path.Child("name"), ""))
	case flowcontrolv1.NameAll:
	default:
		errs = append(errs, rule.Subdomain(s.Name, path.Child("name"))...)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, rule.Label(s.Namespace, path.Child("namespace"))...)
}

var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateVerbs(list []string, path *field.Path) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, "verbs must contain at least one value")}
	case slices.Contains(list, "*"):
		return alone(list, path, "verbs")
	case slices.ContainsFunc(list, func(v string) bool { return !slices.Contains(verbs, v) }):
		return field.ErrorList{field.NotSupported(path, list, verbs)}
	}
	return nil
}

// alone refuses a list that has a "*" and anything else.
func alone(list []string, path *field.Path, what string) field.ErrorList {
	if len(list) > 1 && slices.Contains(list, "*") {
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

func validateNonResourceRule(r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	urls := path.Child("nonResourceURLs")
	switch {
	case len(r.NonResourceURLs) == 0:
		return append(errs, field.Required(urls, "nonResourceURLs must contain at least one value"))
	case slices.Contains(r.NonResourceURLs, "*"):
		return append(errs, alone(r.NonResourceURLs, urls, "non-resource URLs")...)
	}
	for i, u := range r.NonResourceURLs {
		if problem := urlProblem(u); problem != "" {
			errs = append(errs, field.Invalid(urls.Index(i), u, problem))
		}
	}
	return errs
}

func urlProblem(path string) string {
	stars := strings.Count(path, "*")
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case !strings.HasPrefix(path, "/"):
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1, stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	errs = append(errs, alone(r.APIGroups, path.Child("apiGroups"), "api groups")...)
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	errs = append(errs, alone(r.Resources, path.Child("resources"), "resources")...)
	namespaces := path.Child("namespaces")
	switch {
	case len(r.Namespaces) == 0 && !r.ClusterScope:
		return append(errs, field.Required(namespaces, "resource rules that are not cluster scoped must supply at least one namespace"))
	case slices.Contains(r.Namespaces, "*"):
		return append(errs, alone(r.Namespaces, namespaces, "namespaces")...)
	}
	for i, n := range r.Namespaces {
		for _, m := range validation.IsDNS1123Label(n) {
			errs = append(errs, field.Invalid(namespaces.Index(i), n, "each member of this list must be '*' or a DNS-1123 label; "+m))
		}
	}
	return errs
}
