// Package cell words what the cells of kubectl's tables say the same way for every kind: ages, durations, absent values, containers and
// selectors. Every function is pure.
package cell

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// None and Unset stand for an absent value, Unknown for a time that was never set.
const (
	None    = "<none>"
	Unset   = "<unset>"
	Unknown = "<unknown>"
)

// Created is the time at which something was made.
func Created(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// Age is the time from t until now in short form, such as 5m or 3d4h.
func Age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// OrNone replaces an empty text.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// Bool words an optional truth.
func Bool(b *bool) string {
	switch {
	case b == nil:
		return Unset
	case *b:
		return "True"
	}
	return "False"
}

// ContainerNames and ContainerImages list a pod template's containers.
func ContainerNames(containers []corev1.Container) string {
	names := make([]string, len(containers))
	for i := range containers {
		names[i] = containers[i].Name
	}
	return strings.Join(names, ",")
}

// ContainerImages lists the containers' images.
func ContainerImages(containers []corev1.Container) string {
	images := make([]string, len(containers))
	for i := range containers {
		images[i] = containers[i].Image
	}
	return strings.Join(images, ",")
}

// Selector words a label selector.
func Selector(s *metav1.LabelSelector) string { return metav1.FormatLabelSelector(s) }
