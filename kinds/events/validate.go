package events

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

// The limits of an event's texts.
const (
	maxInstance = 128
	maxAction   = 128
	maxReason   = 128
	maxNote     = 1024
)

// validateEvent holds an event that has an eventTime to the newer rules, any other only to its namespace.
func validateEvent(e, _ *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.EventTime.IsZero() {
		errs = validateOldNamespace(e)
	} else {
		errs = validateReported(e)
	}
	return append(errs, rule.Subdomain(e.Namespace, field.NewPath("namespace"))...)
}

const otherNamespace = "does not match event.namespace"

func validateOldNamespace(e *corev1.Event) field.ErrorList {
	about, path := e.InvolvedObject.Namespace, field.NewPath("involvedObject", "namespace")
	// An object without namespace has its events in the default namespace, or nowhere for very old clients.
	if about == "" && (e.Namespace == metav1.NamespaceNone || e.Namespace == metav1.NamespaceDefault) || about == e.Namespace {
		return nil
	}
	return field.ErrorList{field.Invalid(path, about, otherNamespace)}
}

func validateReported(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.InvolvedObject.Namespace == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), "", otherNamespace))
	}
	controller := field.NewPath("reportingController")
	if e.ReportingController == "" {
		errs = append(errs, field.Required(controller, ""))
	}
	errs = append(errs, rule.QualifiedName(e.ReportingController, controller)...)
	limited := func(text, name string, limit int, required bool) {
		switch {
		case text == "" && required:
			errs = append(errs, field.Required(field.NewPath(name), ""))
		case len(text) > limit:
			errs = append(errs, field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", limit)))
		}
	}
	limited(e.ReportingInstance, "reportingInstance", maxInstance, true)
	limited(e.Action, "action", maxAction, true)
	limited(e.Reason, "reason", maxReason, true)
	limited(e.Message, "message", maxNote, false)
	return errs
}

// validateStrictly is events.k8s.io/v1: the old API's fields stay empty, and after creation only the series changes.
func validateStrictly(e, old *corev1.Event) field.ErrorList {
	errs := kind.CheckFinalizers(e.Finalizers, field.NewPath("metadata", "finalizers"))
	if old != nil {
		return append(errs, validateStrictUpdate(e, old)...)
	}
	errs = append(errs, validateSeries(e.Series)...)
	if e.Name != "" {
		errs = append(errs, rule.Subdomain(e.Name, field.NewPath("metadata", "name"))...)
	}
	if e.GenerateName != "" {
		errs = append(errs, rule.Invalid(e.GenerateName, field.NewPath("metadata", "generateName"), apivalidation.NameIsDNSSubdomain(e.GenerateName, true))...)
	}
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	unset := func(set bool, name string) {
		if set {
			errs = append(errs, field.Invalid(field.NewPath(name), "", "needs to be unset"))
		}
	}
	unset(!e.FirstTimestamp.IsZero(), "firstTimestamp")
	unset(!e.LastTimestamp.IsZero(), "lastTimestamp")
	unset(e.Count != 0, "count")
	unset(e.Source != corev1.EventSource{}, "source")
	return errs
}

func validateSeries(s *corev1.EventSeries) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series", "count"), "", "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
	}
	return errs
}

func validateStrictUpdate(e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(e.Series, old.Series) {
		errs = validateSeries(e.Series)
	}
	immutable := func(now, before any, name string) {
		errs = append(errs, rule.Immutable(now, before, field.NewPath(name))...)
	}
	immutable(e.InvolvedObject, old.InvolvedObject, "involvedObject")
	immutable(e.Reason, old.Reason, "reason")
	immutable(e.Message, old.Message, "message")
	immutable(e.Source, old.Source, "source")
	immutable(e.FirstTimestamp, old.FirstTimestamp, "firstTimestamp")
	immutable(e.LastTimestamp, old.LastTimestamp, "lastTimestamp")
	immutable(e.Count, old.Count, "count")
	immutable(e.Type, old.Type, "type")
	// Clients that keep more than microseconds must not fail: the wire has no more.
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		immutable(e.EventTime, old.EventTime, "eventTime")
	}
	immutable(e.Action, old.Action, "action")
	immutable(e.Related, old.Related, "related")
	immutable(e.ReportingController, old.ReportingController, "reportingController")
	immutable(e.ReportingInstance, old.ReportingInstance, "reportingInstance")
	return errs
}
