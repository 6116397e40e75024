// Package flowcontrol declares the kinds of the group flowcontrol.apiserver.k8s.io: which requests flow together, and what share of the server
// a flow gets.
package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

// Group is flowcontrol.apiserver.k8s.io.
var Group = kind.Group{Name: "flowcontrol.apiserver.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{flowcontrolv1.AddToScheme}}

// validateConditionTypes refuses conditions without type, or with another's.
func validateConditionTypes(types []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, t := range types {
		at := path.Index(i).Child("type")
		if seen[t] {
			errs = append(errs, field.Duplicate(at, t))
		}
		if t == "" {
			errs = append(errs, field.Required(at, ""))
		}
		seen[t] = true
	}
	return errs
}
