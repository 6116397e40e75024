// Package events declares the Event. It is stored as a core/v1 Event and served in two groups: core v1, whose rules are old and lenient, and
// events.k8s.io/v1, which holds writers to the fields of that API.
package events

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&core.Group, kind.Def[corev1.Event]{
	Names:          kind.Names{Plural: "events", Short: []string{"ev"}},
	Relaxed:        true,
	TTL:            func(s kind.Settings) time.Duration { return s.EventTTL },
	CreateOnUpdate: true,
	AnyFinalizer:   true,
	ValidateName:   rule.PathSegmentName, // recorders derive names from any object's
	Validate:       validateEvent,
	NoName:         true,
	NoAge:          true,
	Ordered:        true,
	Columns:        columns,
	Fields: fields("involvedObject", "reportingComponent", map[string]func(*corev1.Event) string{
		"source": func(e *corev1.Event) string { return orElse(e.Source.Component, e.ReportingController) },
	}),
	Served: []kind.Served[corev1.Event]{{
		GroupVersion: eventsv1.SchemeGroupVersion,
		New:          func() runtime.Object { return &eventsv1.Event{} },
		NewList:      func() runtime.Object { return &eventsv1.EventList{} },
		To:           func(e *corev1.Event) (runtime.Object, error) { return toEventsV1(e), nil },
		From:         fromEventsV1,
		Fields:       fields("regarding", "reportingController", nil),
		Validate:     validateStrictly,
	}},
})

// fields are the field selectors, under the names that each version has for the same fields.
func fields(object, controller string, more map[string]func(*corev1.Event) string) map[string]func(*corev1.Event) string {
	out := map[string]func(*corev1.Event) string{
		object + ".kind":            func(e *corev1.Event) string { return e.InvolvedObject.Kind },
		object + ".namespace":       func(e *corev1.Event) string { return e.InvolvedObject.Namespace },
		object + ".name":            func(e *corev1.Event) string { return e.InvolvedObject.Name },
		object + ".uid":             func(e *corev1.Event) string { return string(e.InvolvedObject.UID) },
		object + ".apiVersion":      func(e *corev1.Event) string { return e.InvolvedObject.APIVersion },
		object + ".resourceVersion": func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion },
		object + ".fieldPath":       func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
		"reason":                    func(e *corev1.Event) string { return e.Reason },
		"type":                      func(e *corev1.Event) string { return e.Type },
		controller:                  func(e *corev1.Event) string { return e.ReportingController },
	}
	for name, f := range more {
		out[name] = f
	}
	return out
}

var columns = []kind.Column[corev1.Event]{
	{Name: "Last Seen", Description: corev1.Event{}.SwaggerDoc()["lastTimestamp"],
		Value: func(e *corev1.Event, now time.Time) any { return cell.Age(lastSeen(e), now) }},
	{Name: "Type", Description: corev1.Event{}.SwaggerDoc()["type"], Value: func(e *corev1.Event, _ time.Time) any { return e.Type }},
	{Name: "Reason", Description: corev1.Event{}.SwaggerDoc()["reason"], Value: func(e *corev1.Event, _ time.Time) any { return e.Reason }},
	{Name: "Object", Description: corev1.Event{}.SwaggerDoc()["involvedObject"], Value: func(e *corev1.Event, _ time.Time) any { return object(e) }},
	{Name: "Subobject", Priority: 1, Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"],
		Value: func(e *corev1.Event, _ time.Time) any { return e.InvolvedObject.FieldPath }},
	{Name: "Source", Priority: 1, Description: corev1.Event{}.SwaggerDoc()["source"], Value: func(e *corev1.Event, _ time.Time) any { return source(e) }},
	{Name: "Message", Description: corev1.Event{}.SwaggerDoc()["message"],
		Value: func(e *corev1.Event, _ time.Time) any { return strings.TrimSpace(e.Message) }},
	{Name: "First Seen", Priority: 1, Description: corev1.Event{}.SwaggerDoc()["firstTimestamp"],
		Value: func(e *corev1.Event, now time.Time) any { return cell.Age(firstSeen(e), now) }},
	{Name: "Count", Priority: 1, Description: corev1.Event{}.SwaggerDoc()["count"], Value: func(e *corev1.Event, _ time.Time) any { return count(e) }},
	{Name: "Name", Priority: 1, Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"], Value: func(e *corev1.Event, _ time.Time) any { return e.Name }},
}

func firstSeen(e *corev1.Event) metav1.Time {
	if e.FirstTimestamp.IsZero() {
		return metav1.Time{Time: e.EventTime.Time}
	}
	return e.FirstTimestamp
}

func lastSeen(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.Time{Time: e.Series.LastObservedTime.Time}
	case e.LastTimestamp.IsZero():
		return firstSeen(e)
	}
	return e.LastTimestamp
}

func count(e *corev1.Event) int64 {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.Count == 0: // an event that happened once has no count
		return 1
	}
	return int64(e.Count)
}

func object(e *corev1.Event) string {
	kind := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + e.InvolvedObject.Name
}

func source(e *corev1.Event) string {
	component, host := orElse(e.Source.Component, e.ReportingController), orElse(e.Source.Host, e.ReportingInstance)
	if host == "" {
		return component
	}
	return component + ", " + host
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func toEventsV1(in *corev1.Event) *eventsv1.Event {
	e := in.DeepCopy()
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func fromEventsV1(obj runtime.Object) (*corev1.Event, error) {
	in, ok := obj.(*eventsv1.Event)
	if !ok {
		return nil, fmt.Errorf("convert to core/v1: %T is no events.k8s.io/v1 Event", obj)
	}
	e := in.DeepCopy()
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding, Related: e.Related, Message: e.Note, Type: e.Type,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out, nil
}
