package autoscaling

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

type hpa = autoscalingv2.HorizontalPodAutoscaler

var _ = kind.Add(&Group, kind.Def[hpa]{
	Names:           kind.Names{Plural: "horizontalpodautoscalers", Short: []string{"hpa"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	NoGeneration:    true,
	Default:         defaultHPA,
	Validate:        validateHPA,
	ValidateStatus:  validateHPAStatus,
	Columns: []kind.Column[hpa]{
		{Name: "Reference", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["scaleTargetRef"],
			Value: func(h *hpa, _ time.Time) any { return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name }},
		{Name: "Targets", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["metrics"],
			Value: func(h *hpa, _ time.Time) any { return targets(h) }},
		{Name: "MinPods", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["minReplicas"],
			Value: func(h *hpa, _ time.Time) any {
				if h.Spec.MinReplicas == nil {
					return cell.Unset
				}
				return strconv.Itoa(int(*h.Spec.MinReplicas))
			}},
		{Name: "MaxPods", Description: autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()["maxReplicas"],
			Value: func(h *hpa, _ time.Time) any { return int64(h.Spec.MaxReplicas) }},
		{Name: "Replicas", Description: autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"],
			Value: func(h *hpa, _ time.Time) any { return int64(h.Status.CurrentReplicas) }},
	},
	Served: []kind.Served[hpa]{{
		GroupVersion: autoscalingv1.SchemeGroupVersion,
		New:          func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
		NewList:      func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscalerList{} },
		To:           func(h *hpa) (runtime.Object, error) { return toV1(h) },
		From: func(obj runtime.Object) (*hpa, error) {
			v1, ok := obj.(*autoscalingv1.HorizontalPodAutoscaler)
			if !ok {
				return nil, fmt.Errorf("convert to autoscaling/v2: %T is no autoscaling/v1 HorizontalPodAutoscaler", obj)
			}
			return fromV1(v1)
		},
	}},
})

// defaultUtilization is the CPU percentage aimed at when no metric is given.
const defaultUtilization = 80

func cpuMetric(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

func defaultHPA(h *hpa) {
	if h.Spec.MinReplicas == nil {
		h.Spec.MinReplicas = ptr.To[int32](1)
	}
	if len(h.Spec.Metrics) == 0 {
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultUtilization)}
	}
	if b := h.Spec.Behavior; b != nil {
		// Up at once by 4 pods or by double, whichever is more; down by all, after a window that the controller is configured with.
		if b.ScaleUp == nil {
			b.ScaleUp = &autoscalingv2.HPAScalingRules{}
		}
		if b.ScaleUp.StabilizationWindowSeconds == nil {
			b.ScaleUp.StabilizationWindowSeconds = ptr.To[int32](0)
		}
		defaultRules(b.ScaleUp,
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15})
		if b.ScaleDown == nil {
			b.ScaleDown = &autoscalingv2.HPAScalingRules{}
		}
		defaultRules(b.ScaleDown, autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15})
	}
}

func defaultRules(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	if r.SelectPolicy == nil {
		r.SelectPolicy = ptr.To(autoscalingv2.MaxChangePolicySelect)
	}
	if r.Policies == nil {
		r.Policies = policies
	}
}

// shownTargets bounds the TARGETS column.
const shownTargets = 2

// targets words the metrics as current/wanted.
func targets(h *hpa) string {
	if len(h.Spec.Metrics) == 0 {
		return cell.None
	}
	var list []string
	for i := range h.Spec.Metrics {
		var status autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			status = h.Status.CurrentMetrics[i]
		}
		list = append(list, target(&h.Spec.Metrics[i], &status))
	}
	if more := len(list) - shownTargets; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:shownTargets], ", "), more)
	}
	return strings.Join(list, ", ")
}

func target(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	switch {
	case spec.External != nil && spec.Type == autoscalingv2.ExternalMetricSourceType:
		return valueTarget(&spec.External.Target, status.External != nil, func() autoscalingv2.MetricValueStatus { return status.External.Current })
	case spec.Object != nil && spec.Type == autoscalingv2.ObjectMetricSourceType:
		return valueTarget(&spec.Object.Target, status.Object != nil, func() autoscalingv2.MetricValueStatus { return status.Object.Current })
	case spec.Pods != nil && spec.Type == autoscalingv2.PodsMetricSourceType:
		current := cell.Unknown
		if status.Pods != nil {
			current = quantity(status.Pods.Current.AverageValue)
		}
		return current + "/" + quantity(spec.Pods.Target.AverageValue)
	case spec.Resource != nil && spec.Type == autoscalingv2.ResourceMetricSourceType:
		var current *autoscalingv2.MetricValueStatus
		if status.Resource != nil {
			current = &status.Resource.Current
		}
		return resourceTarget(spec.Resource.Name, &spec.Resource.Target, current)
	case spec.ContainerResource != nil && spec.Type == autoscalingv2.ContainerResourceMetricSourceType:
		var current *autoscalingv2.MetricValueStatus
		if status.ContainerResource != nil {
			current = &status.ContainerResource.Current
		}
		return resourceTarget(spec.ContainerResource.Name, &spec.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

// valueTarget words a metric that is wanted as a whole, or on average of the pods.
func valueTarget(t *autoscalingv2.MetricTarget, known bool, status func() autoscalingv2.MetricValueStatus) string {
	var current autoscalingv2.MetricValueStatus
	if known {
		current = status()
	}
	if t.AverageValue != nil {
		return quantity(current.AverageValue) + "/" + quantity(t.AverageValue) + " (avg)"
	}
	return quantity(current.Value) + "/" + quantity(t.Value)
}

func resourceTarget(name corev1.ResourceName, t *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if current == nil {
		current = &autoscalingv2.MetricValueStatus{}
	}
	if t.AverageValue != nil {
		return fmt.Sprintf("%s: %s/%s", name, quantity(current.AverageValue), quantity(t.AverageValue))
	}
	return fmt.Sprintf("%s: %s/%s", name, percent(current.AverageUtilization, cell.Unknown), percent(t.AverageUtilization, "<auto>"))
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return cell.Unknown
	}
	return q.String()
}

func percent(n *int32, absent string) string {
	if n == nil {
		return absent
	}
	return fmt.Sprintf("%d%%", *n)
}
