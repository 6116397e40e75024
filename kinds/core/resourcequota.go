package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.ResourceQuota]{
	Names:           kind.Names{Plural: "resourcequotas", Short: []string{"quota"}},
	AnyGenerateName: true,
	ReturnDeleted:   true,
	Default:         defaultResourceQuota,
	Validate:        validateResourceQuota,
	ValidateStatus:  func(q, _ *corev1.ResourceQuota) field.ErrorList { return checkQuotaStatus(q) },
	Warn:            warnResourceQuota,
	NoGeneration:    true,
	Columns: []kind.Column[corev1.ResourceQuota]{
		{Name: "Request", Description: "What is requested and may be.", Value: func(q *corev1.ResourceQuota, _ time.Time) any { return quotaUse(q, false) }},
		{Name: "Limit", Description: "What is limited to and may be.", Value: func(q *corev1.ResourceQuota, _ time.Time) any { return quotaUse(q, true) }},
	},
})

func quotaUse(q *corev1.ResourceQuota, limits bool) string {
	var out []string
	for _, name := range sets.List(sets.KeySet(q.Status.Hard)) {
		if strings.HasPrefix(string(name), "limits.") != limits {
			continue
		}
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		out = append(out, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
	}
	return strings.Join(out, ", ")
}

func defaultResourceQuota(q *corev1.ResourceQuota) {
	roundUp(q.Spec.Hard)
	roundUp(q.Status.Hard)
	roundUp(q.Status.Used)
}

func validateResourceQuota(q, old *corev1.ResourceQuota) field.ErrorList {
	var p problems
	path := field.NewPath("spec")
	checkQuotaList(&p, q.Spec.Hard, path.Child("hard"))
	checkQuotaScopes(&p, &q.Spec, path)
	checkScopeSelector(&p, &q.Spec, path.Child("scopeSelector", "matchExpressions"))
	if old != nil && !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		p.invalid(path.Child("scopes"), q.Spec.Scopes, isImmutable)
	}
	return p.list
}

func checkQuotaStatus(q *corev1.ResourceQuota) field.ErrorList {
	var p problems
	checkQuotaList(&p, q.Status.Hard, field.NewPath("status", "hard"))
	checkQuotaList(&p, q.Status.Used, field.NewPath("status", "used"))
	return p.list
}

func checkQuotaList(p *problems, list corev1.ResourceList, path *field.Path) {
	for name, amount := range list {
		at := path.Key(string(name))
		checkResourceName(p, name, at)
		if !strings.Contains(string(name), "/") && !isQuotaResource(name) {
			p.invalid(at, name, "must be a standard resource for quota")
		}
		checkAmount(p, name, amount, at)
	}
}

func isQuotaResource(name corev1.ResourceName) bool {
	return countResources.Has(name) || measuredResources.Has(name) || isQuotaHugePage(name)
}

var (
	podQuotaResources = sets.New(corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory)
	podScopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity}
)

// scopeFits says whether a scope can bound a resource, and whether the scope is known.
func scopeFits(scope corev1.ResourceQuotaScope, name corev1.ResourceName) (fits, known bool) {
	switch {
	case slices.Contains(podScopes, scope):
		return podQuotaResources.Has(name), true
	case scope == corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods, true
	case scope == corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage, true
	}
	return true, false
}

func checkScope(p *problems, scope corev1.ResourceQuotaScope, hard corev1.ResourceList, shown any, path, hardPath *field.Path) {
	if _, known := scopeFits(scope, ""); !known {
		p.invalid(path, shown, "unsupported scope")
	}
	for _, name := range sets.List(sets.KeySet(hard)) {
		if fits, _ := scopeFits(scope, name); isQuotaResource(name) && !fits {
			p.invalid(hardPath, shown, "unsupported scope applied to resource")
		}
	}
}

func checkScopePairs(p *problems, scopes sets.Set[corev1.ResourceQuotaScope], shown any, path *field.Path) {
	if scopes.HasAll(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort) {
		p.invalid(path, shown, "conflicting scopes")
	}
	if scopes.HasAll(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating) {
		p.invalid(path, shown, "conflicting scopes")
	}
}

func checkQuotaScopes(p *problems, spec *corev1.ResourceQuotaSpec, path *field.Path) {
	at := path.Child("scopes")
	for _, scope := range spec.Scopes {
		checkScope(p, scope, spec.Hard, spec.Scopes, at, at)
	}
	checkScopePairs(p, sets.New(spec.Scopes...), spec.Scopes, at)
}

func checkScopeSelector(p *problems, spec *corev1.ResourceQuotaSpec, path *field.Path) {
	if spec.ScopeSelector == nil {
		return
	}
	scopes := sets.New[corev1.ResourceQuotaScope]()
	for _, r := range spec.ScopeSelector.MatchExpressions {
		checkScope(p, r.ScopeName, spec.Hard, r.ScopeName, path.Child("scopeName"), path)
		valued := r.ScopeName == corev1.ResourceQuotaScopePriorityClass || r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
		if _, known := scopeFits(r.ScopeName, ""); known && !valued && r.Operator != corev1.ScopeSelectorOpExists {
			p.invalid(path.Child("operator"), r.Operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(r.Values) == 0 {
				p.required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				p.invalid(path.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
			}
		default:
			p.invalid(path.Child("operator"), r.Operator, "not a valid selector operator")
		}
		scopes.Insert(r.ScopeName)
	}
	checkScopePairs(p, scopes, spec.Scopes, path)
}

func warnResourceQuota(q, old *corev1.ResourceQuota) []string {
	var out []string
	if old != nil {
		return nil
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		requestName, limitName := "requests."+name, "limits."+name
		request, asked := q.Spec.Hard[requestName]
		if !asked && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			requestName = name
			request, asked = q.Spec.Hard[name]
		}
		if limit, limited := q.Spec.Hard[limitName]; asked && limited && request.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requestName, request.String(), limitName, limit.String()))
		}
	}
	return out
}
