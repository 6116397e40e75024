package apps

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[appsv1.ControllerRevision]{
	Names:    kind.Names{Plural: "controllerrevisions"},
	Validate: validateRevision,
	Columns: []kind.Column[appsv1.ControllerRevision]{
		{Name: "Controller", Description: "Controller of the object", Value: func(r *appsv1.ControllerRevision, _ time.Time) any { return controllerOf(r) }},
		{Name: "Revision", Description: "Number of the revision.", Value: func(r *appsv1.ControllerRevision, _ time.Time) any { return r.Revision }},
	},
})

func controllerOf(r *appsv1.ControllerRevision) string {
	owner := metav1.GetControllerOf(r)
	if owner == nil {
		return cell.None
	}
	kind := strings.ToLower(owner.Kind)
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group != "" {
		kind += "." + gv.Group
	}
	return kind + "/" + owner.Name
}

// validateRevision: a revision is history, which does not change.
func validateRevision(r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := rule.NonNegative(r.Revision, field.NewPath("revision"))
	if old != nil {
		if !apiequality.Semantic.DeepEqual(r.Data, old.Data) {
			errs = append(errs, field.Invalid(field.NewPath("data"), "", "field is immutable"))
		}
		return errs
	}
	path, raw := field.NewPath("data"), bytes.TrimSpace(r.Data.Raw)
	if r.Data.Object != nil {
		return errs
	}
	if len(raw) == 0 {
		return append(errs, field.Required(path, "data is mandatory"))
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return append(errs, field.Invalid(path, "<value omitted>", "data must be a valid JSON object: "+err.Error()))
	}
	if object == nil {
		errs = append(errs, field.Required(path, "data is mandatory"))
	}
	return errs
}
