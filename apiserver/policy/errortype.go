package policy

import (
	"errors"

	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/yare-project/yare/apiserver/measure"
)

// errorType is what the metrics of policies call an error.
func errorType(err error) string {
	switch {
	case err == nil:
		return measure.NoError
	case errors.Is(err, apiservercel.ErrCompilation):
		return measure.Compile
	case errors.Is(err, apiservercel.ErrOutOfBudget):
		return measure.OutOfBudget
	}
	return measure.Invalid
}
