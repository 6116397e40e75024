package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkMandatorySchema refuses a spec of a mandatory schema that is not the one that it must have.
func checkMandatorySchema(s *flowcontrolv1.FlowSchema, path *field.Path) field.ErrorList {
	for _, want := range Mandatory().Schemas {
		if want.Name == s.Name && !equality.Semantic.DeepEqual(want.Spec, s.Spec) {
			return field.ErrorList{field.Invalid(path, s.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", s.Name))}
		}
	}
	return nil
}

// checkMandatoryLevel does the same for levels. How many shares the level "exempt" has, and how many it lends, is for administrators to say.
func checkMandatoryLevel(l *level, path *field.Path) field.ErrorList {
	for _, want := range Mandatory().Levels {
		switch {
		case want.Name != l.Name:
		case l.Name == exempt:
			have := l.Spec.DeepCopy()
			have.Exempt = want.Spec.Exempt
			if !equality.Semantic.DeepEqual(&want.Spec, have) {
				return field.ErrorList{field.Invalid(path, l.Spec, fmt.Sprintf("spec of '%s' except the 'spec.exempt' field must equal the fixed value", l.Name))}
			}
		case !equality.Semantic.DeepEqual(want.Spec, l.Spec):
			return field.ErrorList{field.Invalid(path, l.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", l.Name))}
		}
	}
	return nil
}

// zeroShares is an annotation that only the old version v1beta3 has a use for.
const zeroShares = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

func checkAnnotations(l *level) field.ErrorList {
	if _, set := l.Annotations[zeroShares]; set {
		return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations"), fmt.Sprintf("annotation '%s' is forbidden", zeroShares))}
	}
	return nil
}
