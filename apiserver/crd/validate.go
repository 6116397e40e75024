package crd

import (
	"context"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// validate checks a whole object by this version's rules. On an update, what was wrong before and did not change is let pass (ratcheting, KEP-4008).
func (f *form) validate(u, old *unstructured.Unstructured) field.ErrorList {
	c, err := f.ruled()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	var errs field.ErrorList
	var celOptions []cel.Option
	if old == nil {
		errs = validation.ValidateCustomResource(nil, u.Object, c.whole)
	} else {
		same := correlate(u, old, c.schema)
		errs = validation.ValidateCustomResourceUpdate(nil, u.Object, old.Object, c.whole, validation.WithRatcheting(same))
		celOptions = append(celOptions, cel.WithRatcheting(same))
	}
	errs = append(errs, f.validateScale(u, true)...)
	errs = append(errs, objectmeta.Validate(nil, u.Object, c.schema, false)...)
	errs = append(errs, c.lists(u, old)...)
	return append(errs, c.expressions(u, old, errs, celOptions)...)
}

// validateStatus checks a written status.
func (f *form) validateStatus(u, old *unstructured.Unstructured) field.ErrorList {
	c, err := f.ruled()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	same := correlate(u, old, c.schema)
	var errs field.ErrorList
	if status, has := u.Object["status"]; has {
		var options []validation.ValidationOption
		if c.schema != nil {
			options = append(options, validation.WithRatcheting(same.Key("status")))
		}
		errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old.Object["status"], c.status, options...)
	}
	errs = append(errs, f.validateScale(u, false)...)
	errs = append(errs, c.lists(u, old)...)
	return append(errs, c.expressions(u, old, errs, []cel.Option{cel.WithRatcheting(same)})...)
}

func correlate(u, old *unstructured.Unstructured, s *structuralschema.Structural) *common.CorrelatedObject {
	return common.NewCorrelatedObject(u.Object, old.Object, &model.Structural{Structural: s})
}

// lists checks that sets and maps hold nothing twice, unless they did before.
func (c *compiled) lists(u, old *unstructured.Unstructured) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, c.schema, u.Object)
	if len(errs) > 0 && old != nil && len(listtype.ValidateListSetsAndMaps(nil, c.schema, old.Object)) > 0 {
		return nil
	}
	return errs
}

// blocking are faults after which expressions would see values of the wrong type.
var blocking = map[field.ErrorType]bool{field.ErrorTypeNotSupported: true, field.ErrorTypeRequired: true, field.ErrorTypeTooLong: true, field.ErrorTypeTooMany: true,
	field.ErrorTypeTypeInvalid: true}

func (c *compiled) expressions(u, old *unstructured.Unstructured, found field.ErrorList, options []cel.Option) field.ErrorList {
	if c.cel == nil {
		return nil
	}
	for _, e := range found {
		if blocking[e.Type] {
			return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
		}
	}
	var before any
	if old != nil {
		before = old.Object
	}
	errs, _ := c.cel.Validate(context.Background(), nil, c.schema, u.Object, before, celconfig.RuntimeCELCostBudget, options...)
	return errs
}
