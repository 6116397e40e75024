package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetricPrefix begins the annotations of nodes whose values are numbers that policies read: metrics.yare.io/price: "0.31" is metrics.price.
const MetricPrefix = "metrics.yare.io/"

// SchedulingPolicy is a cluster's own rule of placement: expressions that filter and score nodes for the pods that it selects.
type SchedulingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SchedulingPolicySpec   `json:"spec"`
	Status SchedulingPolicyStatus `json:"status,omitempty"`
}

// SchedulingPolicyList is a list of policies.
type SchedulingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SchedulingPolicy `json:"items"`
}

// SchedulingPolicySpec says whom a policy concerns and what it asks of nodes.
type SchedulingPolicySpec struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	SchedulerNames    []string              `json:"schedulerNames,omitempty"`
	Variables         []PolicyVariable      `json:"variables,omitempty"`
	Filters           []PolicyFilter        `json:"filters,omitempty"`
	Scores            []PolicyScore         `json:"scores,omitempty"`
}

// PolicyVariable names the value of an expression for those after it.
type PolicyVariable struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// FailurePolicy says what a node is worth that an expression can't be evaluated for, as when it lacks a metric.
type FailurePolicy string

// The failure policies.
const (
	FailRefuse FailurePolicy = "Refuse" // the node is refused
	FailSkip   FailurePolicy = "Skip"   // the expression says nothing about the node: a filter lets it pass, a score gives it 0
)

// PolicyFilter keeps pods from nodes for which its expression is false.
type PolicyFilter struct {
	Expression    string        `json:"expression"`
	Message       string        `json:"message,omitempty"`
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
}

// PolicyScore prefers nodes for which its expression is closer to Best.
type PolicyScore struct {
	Expression    string             `json:"expression"`
	Weight        int32              `json:"weight,omitempty"`
	Worst         *resource.Quantity `json:"worst,omitempty"`
	Best          *resource.Quantity `json:"best,omitempty"`
	FailurePolicy FailurePolicy      `json:"failurePolicy,omitempty"`
}

// SchedulingPolicyStatus says what became of a policy.
type SchedulingPolicyStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// PolicyActive is the condition that the scheduler places pods by the policy.
const PolicyActive = "Active"
