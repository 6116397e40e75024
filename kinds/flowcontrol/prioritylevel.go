package flowcontrol

import (
	"fmt"
	"math"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

type level = flowcontrolv1.PriorityLevelConfiguration

var _ = kind.Add(&Group, kind.Def[level]{
	Names:          kind.Names{Plural: "prioritylevelconfigurations"},
	Scope:          kind.Cluster,
	Default:        defaultLevel,
	Validate:       validateLevel,
	ValidateStatus: validateLevelStatus,
	Columns: []kind.Column[level]{
		{Name: "Type", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"],
			Value: func(l *level, _ time.Time) any { return string(l.Spec.Type) }},
		{Name: "NominalConcurrencyShares", Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"],
			Value: func(l *level, _ time.Time) any {
				if l.Spec.Limited == nil || l.Spec.Limited.NominalConcurrencyShares == nil {
					return cell.None
				}
				return int64(*l.Spec.Limited.NominalConcurrencyShares)
			}},
		{Name: "Queues", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queues"],
			Value: queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues })},
		{Name: "HandSize", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["handSize"],
			Value: queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize })},
		{Name: "QueueLengthLimit", Description: flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queueLengthLimit"],
			Value: queuing(func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit })},
	},
})

func queuing(of func(*flowcontrolv1.QueuingConfiguration) int32) func(*level, time.Time) any {
	return func(l *level, _ time.Time) any {
		if l.Spec.Limited == nil || l.Spec.Limited.LimitResponse.Queuing == nil {
			return cell.None
		}
		return int64(of(l.Spec.Limited.LimitResponse.Queuing))
	}
}

func defaultLevel(l *level) {
	orZero := func(p **int32) {
		if *p == nil {
			*p = ptr.To[int32](0)
		}
	}
	if e := l.Spec.Exempt; e != nil {
		orZero(&e.NominalConcurrencyShares)
		orZero(&e.LendablePercent)
	}
	if limited := l.Spec.Limited; limited != nil {
		if limited.NominalConcurrencyShares == nil {
			limited.NominalConcurrencyShares = ptr.To[int32](30)
		}
		orZero(&limited.LendablePercent)
		if q := limited.LimitResponse.Queuing; q != nil {
			defaultQueuing(q)
		}
	}
}

func defaultQueuing(q *flowcontrolv1.QueuingConfiguration) {
	if q.HandSize == 0 {
		q.HandSize = 8
	}
	if q.Queues == 0 {
		q.Queues = 64
	}
	if q.QueueLengthLimit == 0 {
		q.QueueLengthLimit = 50
	}
}

const (
	maxQueues = 10_000_000
	// maxEntropyBits is what a 64-bit hash gives to deal a hand of queues without bias.
	maxEntropyBits = 60
)

func validateLevel(l, _ *level) field.ErrorList {
	path := field.NewPath("spec")
	return slices.Concat(checkAnnotations(l), validateSpec(l, path), checkMandatoryLevel(l, path))
}

func validateSpec(l *level, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if (l.Name == exempt) != (l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(path.Child("type"), l.Spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch l.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if l.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(path.Child("limited"), "must be nil if the type is not Limited"))
		}
		if e := l.Spec.Exempt; e != nil {
			errs = append(errs, validateShares(e.NominalConcurrencyShares, e.LendablePercent, path.Child("exempt"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if l.Spec.Exempt != nil {
			errs = append(errs, field.Forbidden(path.Child("exempt"), "must be nil if the type is Limited"))
		}
		if l.Spec.Limited == nil {
			return append(errs, field.Required(path.Child("limited"), "must not be empty when type is Limited"))
		}
		errs = append(errs, validateLimited(l.Spec.Limited, path.Child("limited"))...)
	default:
		errs = append(errs, rule.OneOf(l.Spec.Type, path.Child("type"), flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)...)
	}
	return errs
}

func validateLevelStatus(l, _ *level) field.ErrorList {
	var types []string
	for _, c := range l.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return validateConditionTypes(types, field.NewPath("status", "conditions"))
}

func validateShares(shares, lendable *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := ptr.Deref(shares, 0); n < 0 {
		errs = append(errs, field.Invalid(path.Child("nominalConcurrencyShares"), n, "must be a non-negative integer"))
	}
	if n := ptr.Deref(lendable, 0); n < 0 || n > 100 {
		errs = append(errs, field.Invalid(path.Child("lendablePercent"), n, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, l.LendablePercent, path)
	if n := ptr.Deref(l.BorrowingLimitPercent, 0); n < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), n, "if specified, must be a non-negative integer"))
	}
	response, queues := path.Child("limitResponse"), path.Child("limitResponse", "queuing")
	switch l.LimitResponse.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if l.LimitResponse.Queuing != nil {
			errs = append(errs, field.Forbidden(queues, "must be nil if limited.limitResponse.type is not Limited"))
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if l.LimitResponse.Queuing == nil {
			return append(errs, field.Required(queues, "must not be empty if limited.limitResponse.type is Limited"))
		}
		errs = append(errs, validateQueuing(l.LimitResponse.Queuing, queues)...)
	default:
		errs = append(errs, rule.OneOf(l.LimitResponse.Type, response.Child("type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	}
	return errs
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	switch n := q.Queues; {
	case n <= 0:
		errs = append(errs, field.Invalid(path.Child("queues"), n, "must be positive"))
	case n > maxQueues:
		errs = append(errs, field.Invalid(path.Child("queues"), n, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := path.Child("handSize")
	switch n := q.HandSize; {
	case n <= 0:
		errs = append(errs, field.Invalid(hand, n, "must be positive"))
	case n > q.Queues:
		errs = append(errs, field.Invalid(hand, n, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	default:
		if bits := entropyBits(q.Queues, n); bits > maxEntropyBits {
			errs = append(errs, field.Invalid(hand, n, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, n, maxEntropyBits)))
		}
	}
	return errs
}

// entropyBits is how many random bits it takes to deal a hand of queues.
func entropyBits(deck, hand int32) int {
	return int(math.Ceil(math.Log2(float64(deck)) * float64(hand)))
}
