package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// The annotations in which a v1 object carries what v1 has no fields for. They never reach the stored object.
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
	downAnnotation       = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
	upAnnotation         = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
)

// behavior is how the behavior annotation spells HorizontalPodAutoscalerBehavior: with the names of Go fields.
type behavior struct{ ScaleUp, ScaleDown *rules }

type rules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policy
	Tolerance                  *resource.Quantity
}

type policy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func toV1(in *hpa) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	h := in.DeepCopy() // so that nothing below shares memory with the stored object
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: h.ObjectMeta}
	out.Annotations = plainAnnotations(out.Annotations)
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(h.Spec.ScaleTargetRef),
		MinReplicas:    h.Spec.MinReplicas, MaxReplicas: h.Spec.MaxReplicas,
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: h.Status.ObservedGeneration, LastScaleTime: h.Status.LastScaleTime,
		CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas,
	}
	var others []autoscalingv1.MetricSpec
	for i := range h.Spec.Metrics {
		if percent := cpuUtilization(&h.Spec.Metrics[i]); percent != nil {
			if out.Spec.TargetCPUUtilizationPercentage == nil {
				out.Spec.TargetCPUUtilizationPercentage = percent
			}
			continue
		}
		others = append(others, metricToV1(&h.Spec.Metrics[i]))
	}
	var current []autoscalingv1.MetricStatus
	for i := range h.Status.CurrentMetrics {
		m := &h.Status.CurrentMetrics[i]
		current = append(current, statusToV1(m))
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	return out, annotate(out, others, current, h)
}

func cpuUtilization(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU {
		return m.Resource.Target.AverageUtilization
	}
	return nil
}

func annotate(out *autoscalingv1.HorizontalPodAutoscaler, others []autoscalingv1.MetricSpec, current []autoscalingv1.MetricStatus, h *hpa) error {
	set := func(key string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("convert to autoscaling/v1: %s: %w", key, err)
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[key] = string(text)
		return nil
	}
	if len(others) > 0 {
		if err := set(metricsAnnotation, others); err != nil {
			return err
		}
	}
	if len(current) > 0 {
		if err := set(currentAnnotation, current); err != nil {
			return err
		}
	}
	if h.Spec.Behavior != nil {
		if err := set(behaviorAnnotation, behavior{rulesOf(h.Spec.Behavior.ScaleUp), rulesOf(h.Spec.Behavior.ScaleDown)}); err != nil {
			return err
		}
	}
	if len(h.Status.Conditions) > 0 {
		conditions := make([]autoscalingv1.HorizontalPodAutoscalerCondition, len(h.Status.Conditions))
		for i, c := range h.Status.Conditions {
			conditions[i] = autoscalingv1.HorizontalPodAutoscalerCondition{Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type),
				Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
		}
		return set(conditionsAnnotation, conditions)
	}
	return nil
}

// fromV1 ignores an annotation that it cannot read, as the API always has: users copy them about.
func fromV1(in *autoscalingv1.HorizontalPodAutoscaler) (*hpa, error) {
	v1 := in.DeepCopy()
	out := &hpa{ObjectMeta: v1.ObjectMeta}
	out.Annotations = plainAnnotations(v1.Annotations)
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(v1.Spec.ScaleTargetRef),
		MinReplicas:    v1.Spec.MinReplicas, MaxReplicas: v1.Spec.MaxReplicas,
	}
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: v1.Status.ObservedGeneration, LastScaleTime: v1.Status.LastScaleTime,
		CurrentReplicas: v1.Status.CurrentReplicas, DesiredReplicas: v1.Status.DesiredReplicas,
	}
	var others []autoscalingv1.MetricSpec
	if read(v1.Annotations, metricsAnnotation, &others) {
		for i := range others {
			out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&others[i]))
		}
	}
	if v1.Spec.TargetCPUUtilizationPercentage != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*v1.Spec.TargetCPUUtilizationPercentage))
	}
	var b behavior
	if read(v1.Annotations, behaviorAnnotation, &b) && (b.ScaleUp != nil || b.ScaleDown != nil) {
		out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: b.ScaleUp.toV2(), ScaleDown: b.ScaleDown.toV2()}
	}
	var current []autoscalingv1.MetricStatus
	switch {
	case read(v1.Annotations, currentAnnotation, &current):
		for i := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusFromV1(&current[i]))
		}
	case v1.Status.CurrentCPUUtilizationPercentage != nil:
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: v1.Status.CurrentCPUUtilizationPercentage}}}}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if read(v1.Annotations, conditionsAnnotation, &conditions) {
		for _, c := range conditions {
			out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
		}
	}
	return out, nil
}

func read(annotations map[string]string, key string, into any) bool {
	text, ok := annotations[key]
	return ok && json.Unmarshal([]byte(text), into) == nil
}

func plainAnnotations(in map[string]string) map[string]string {
	out := maps.Clone(in)
	for _, key := range []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation, downAnnotation, upAnnotation} {
		delete(out, key)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func rulesOf(in *autoscalingv2.HPAScalingRules) *rules {
	if in == nil {
		return nil
	}
	out := &rules{StabilizationWindowSeconds: in.StabilizationWindowSeconds, SelectPolicy: in.SelectPolicy, Tolerance: in.Tolerance}
	for _, p := range in.Policies {
		out.Policies = append(out.Policies, policy(p))
	}
	return out
}

func (r *rules) toV2() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
	}
	return out
}

func value(q *resource.Quantity) resource.Quantity { return ptr.Deref(q, resource.Quantity{}) }
