package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/kind"
)

// ComponentStatus has long been deprecated: its list is served, empty, so that clients that still ask get an answer.
var _ = kind.Add(&Group, kind.Def[corev1.ComponentStatus]{
	Names:   kind.Names{Plural: "componentstatuses", Short: []string{"cs"}},
	Scope:   kind.Cluster,
	Verbs:   []string{"get", "list"},
	NoAge:   true,
	Warning: "v1 ComponentStatus is deprecated in v1.19+",
	Columns: []kind.Column[corev1.ComponentStatus]{
		{Name: "Status", Description: "Status of the component conditions", Value: func(c *corev1.ComponentStatus, _ time.Time) any {
			healthy, _, _ := componentHealth(c)
			return healthy
		}},
		{Name: "Message", Description: "Message of the component conditions", Value: func(c *corev1.ComponentStatus, _ time.Time) any { _, m, _ := componentHealth(c); return m }},
		{Name: "Error", Description: "Error of the component conditions", Value: func(c *corev1.ComponentStatus, _ time.Time) any { _, _, e := componentHealth(c); return e }},
	},
})

func componentHealth(c *corev1.ComponentStatus) (healthy, message, err string) {
	for _, condition := range c.Conditions {
		if condition.Type != corev1.ComponentHealthy {
			continue
		}
		healthy = "Unhealthy"
		if condition.Status == corev1.ConditionTrue {
			healthy = "Healthy"
		}
		return healthy, condition.Message, condition.Error
	}
	return "Unknown", "", ""
}
