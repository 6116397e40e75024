package verbs

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxFaults bounds how many faults an answer names: who makes more would not read them, and an object of a few hundred kilobytes can have tens of thousands.
const maxFaults = 1000

// Invalid is the answer to an object with faults, in the words and the form of [apierrors.NewInvalid]. That one takes time and memory in the square of their number.
func Invalid(gk schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	if len(errs) <= 1 {
		return apierrors.NewInvalid(gk, name, errs)
	}
	more := len(errs) - maxFaults
	if more > 0 {
		errs = errs[:maxFaults]
	}
	causes := make([]metav1.StatusCause, 0, len(errs))
	seen := map[string]bool{}
	var messages []string
	for _, err := range errs {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseType(err.Type), Message: err.ErrorBody(), Field: err.Field})
		if text := err.Error(); !seen[text] {
			seen[text] = true
			messages = append(messages, text)
		}
	}
	text := strings.Join(messages, ", ")
	if len(messages) > 1 {
		text = "[" + text + "]"
	}
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Group: gk.Group, Kind: gk.Kind, Name: name, Causes: causes},
		Message: fmt.Sprintf("%s %q is invalid: %s", gk.String(), name, text),
	}}
}
