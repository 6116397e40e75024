package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var _ = kind.Add(&Group, kind.Def[corev1.LimitRange]{
	Names:          kind.Names{Plural: "limitranges", Short: []string{"limits"}},
	Default:        defaultLimitRange,
	Prepare:        nameLimitRange,
	Validate:       validateLimitRange,
	NoGeneration:   true,
	CreateOnUpdate: true,
	NoAge:          true,
	Columns: []kind.Column[corev1.LimitRange]{
		{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			Value: func(l *corev1.LimitRange, _ time.Time) any { return cell.Created(l.CreationTimestamp) }},
	},
})

// nameLimitRange names what has no name, as Kubernetes.
func nameLimitRange(l, old *corev1.LimitRange) {
	if old == nil && l.Name == "" {
		l.Name = string(uuid.NewUUID())
	}
}

// defaultLimitRange derives what containers get by default: the limit from the maximum, the request from the limit and then from the minimum.
func defaultLimitRange(l *corev1.LimitRange) {
	any := func(corev1.ResourceName) bool { return true }
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type == corev1.LimitTypeContainer {
			item.Default, item.DefaultRequest = ensure(item.Default), ensure(item.DefaultRequest)
			fillMissing(item.Default, item.Max, any)
			fillMissing(item.DefaultRequest, item.Default, any)
			fillMissing(item.DefaultRequest, item.Min, any)
		}
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			roundUp(list)
		}
	}
}

func validateLimitRange(l, _ *corev1.LimitRange) field.ErrorList {
	var p problems
	seen := sets.New[corev1.LimitType]()
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		before := len(p.list)
		p.qualified(at.Child("type"), string(item.Type))
		standard := item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer || item.Type == corev1.LimitTypePersistentVolumeClaim
		if len(p.list) == before && !standard && !strings.Contains(string(item.Type), "/") {
			p.invalid(at.Child("type"), item.Type, "must be a standard limit type or fully qualified")
		}
		if seen.Has(item.Type) {
			p.add(field.Duplicate(at.Child("type"), item.Type))
		}
		seen.Insert(item.Type)
		checkLimitItem(&p, item, at)
	}
	return p.list
}

func checkLimitItem(p *problems, item *corev1.LimitRangeItem, at *field.Path) {
	isPod := item.Type == corev1.LimitTypePod
	names := sets.New[corev1.ResourceName]()
	for name, list := range map[string]corev1.ResourceList{
		"max": item.Max, "min": item.Min, "default": item.Default, "defaultRequest": item.DefaultRequest, "maxLimitRequestRatio": item.MaxLimitRequestRatio,
	} {
		if isPod && strings.HasPrefix(name, "default") {
			if len(list) > 0 {
				p.forbidden(at.Child(name), "may not be specified when `type` is 'Pod'")
			}
			continue
		}
		for resource := range list {
			names.Insert(resource)
			if isPod || item.Type == corev1.LimitTypeContainer {
				checkContainerResourceName(p, resource, at.Child(name).Key(string(resource)))
			} else {
				checkResourceName(p, resource, at.Child(name).Key(string(resource)))
			}
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, low := item.Min[corev1.ResourceStorage]
		_, high := item.Max[corev1.ResourceStorage]
		if !low && !high {
			p.required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	for _, name := range sets.List(names) {
		checkLimitOrder(p, item, name, isPod, at)
	}
}

// checkLimitOrder: minimum, default request, default and maximum must not cross.
func checkLimitOrder(p *problems, item *corev1.LimitRangeItem, name corev1.ResourceName, isPod bool, at *field.Path) {
	low, hasLow := item.Min[name]
	high, hasHigh := item.Max[name]
	limit, hasLimit := item.Default[name]
	request, hasRequest := item.DefaultRequest[name]
	if isPod {
		hasLimit, hasRequest = false, false
	}
	ordered := func(both bool, less, more resource.Quantity, in, lessName, moreName string, shown resource.Quantity) {
		if both && less.Cmp(more) > 0 {
			p.invalid(at.Child(in).Key(string(name)), shown.String(), fmt.Sprintf("%s value %s is greater than %s value %s", lessName, less.String(), moreName, more.String()))
		}
	}
	ordered(hasLow && hasHigh, low, high, "min", "min", "max", low)
	ordered(hasLow && hasRequest, low, request, "defaultRequest", "min", "default request", request)
	ordered(hasRequest && hasHigh, request, high, "defaultRequest", "default request", "max", request)
	ordered(hasRequest && hasLimit, request, limit, "defaultRequest", "default request", "default limit", request)
	ordered(hasLow && hasLimit, low, limit, "default", "min", "default", low)
	ordered(hasLimit && hasHigh, limit, high, "default", "default", "max", high)
	if ratio, ok := item.MaxLimitRequestRatio[name]; ok {
		checkRatio(p, ratio, low, high, hasLow && hasHigh, at.Child("maxLimitRequestRatio").Key(string(name)))
	}
	if !overcommitAllowed(name) && hasLimit && hasRequest && limit.Cmp(request) != 0 {
		p.invalid(at.Child("defaultRequest").Key(string(name)), request.String(), fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name))
	}
}

func checkRatio(p *problems, ratio, low, high resource.Quantity, bounded bool, at *field.Path) {
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		p.invalid(at, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String()))
	}
	if !bounded || low.Sign() == 0 {
		return
	}
	if most := high.AsApproximateFloat64() / low.AsApproximateFloat64(); ratio.AsApproximateFloat64() > most {
		p.invalid(at, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), most))
	}
}
