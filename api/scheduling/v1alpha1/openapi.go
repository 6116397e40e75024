package v1alpha1

// The documentation of the types' fields, for OpenAPI and `kubectl explain`, and the names of their schemas.

// SwaggerDoc documents the type.
func (SchedulingPolicy) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "SchedulingPolicy is a rule of placement of the cluster's own: CEL expressions that filter and score nodes for the pods that it selects. A change takes effect at once, for pods that are yet to be placed.",
		"metadata": "Standard object's metadata.",
		"spec":     "Whom the policy concerns and what it asks of nodes.",
		"status":   "What became of the policy. Written by the scheduler.",
	}
}

// SwaggerDoc documents the type.
func (SchedulingPolicyList) SwaggerDoc() map[string]string {
	return map[string]string{"": "SchedulingPolicyList is a list of SchedulingPolicies.", "metadata": "Standard list metadata.", "items": "The policies."}
}

// SwaggerDoc documents the type.
func (SchedulingPolicySpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"": "SchedulingPolicySpec says whom a policy concerns and what it asks of nodes. At least one filter or score is required. " +
			"Expressions see `pod` (namespace, labels, annotations, nodeSelector, priority, schedulerName, requests, images), `node` (name, labels, annotations, allocatable, requested, conditions, unschedulable), " +
			"`metrics` (numbers by name: annotations of the node under metrics.yare.io/, and cpu and memory in use where the cluster serves metrics.k8s.io) and `variables`. " +
			"allocatable, requested and requests are numbers by resource: CPU in cores, the others in bytes or units; conditions are \"True\", \"False\" or \"Unknown\" by type.",
		"podSelector":       "Selects pods by their labels. Left out or empty, it selects all.",
		"namespaceSelector": "Selects pods by the labels of their namespace. Left out or empty, it selects all namespaces.",
		"schedulerNames":    "Selects pods by their schedulerName. Empty means every profile of the scheduler.",
		"variables":         "Expressions by name, seen as variables.NAME by those that follow. Evaluated when used, once per node and expression. At most 16.",
		"filters":           "What a node must satisfy, all of it. At most 16.",
		"scores":            "What makes a node better. At most 16.",
	}
}

// SwaggerDoc documents the type.
func (PolicyVariable) SwaggerDoc() map[string]string {
	return map[string]string{"": "PolicyVariable names the value of an expression.", "name": "A CEL identifier.", "expression": "A CEL expression of any type."}
}

// SwaggerDoc documents the type.
func (PolicyFilter) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "PolicyFilter keeps pods from nodes for which its expression is false.",
		"expression":    "A CEL expression that gives a bool: true lets the pod have the node.",
		"message":       "What the user of a pod reads if a node is refused. Left out, it is the expression.",
		"failurePolicy": "What happens where the expression can't be evaluated, for example because the node lacks a metric: Refuse (the default) refuses the node, Skip lets it pass.",
	}
}

// SwaggerDoc documents the type.
func (PolicyScore) SwaggerDoc() map[string]string {
	return map[string]string{
		"": "PolicyScore prefers nodes. The expression's number x becomes the score (x - worst) / (best - worst) * 100, cut to 0..100 and rounded to the nearest integer, which counts weight times, " +
			"beside the scores of the scheduler's plugins with theirs.",
		"expression":    "A CEL expression that gives an int or a double.",
		"weight":        "1 to 100; 1 if left out.",
		"worst":         "The number that scores 0; 0 if left out. Above best, smaller numbers are better.",
		"best":          "The number that scores 100; 100 if left out.",
		"failurePolicy": "What happens where the expression can't be evaluated: Skip (the default) scores the node 0, Refuse refuses it.",
	}
}

// SwaggerDoc documents the type.
func (SchedulingPolicyStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "SchedulingPolicyStatus says what became of a policy.",
		"observedGeneration": "The generation that the scheduler places pods by.",
		"conditions":         "Active: whether the scheduler places pods by the policy, and if not, why.",
	}
}

const model = "io.yare.api.scheduling.v1alpha1."

// OpenAPIModelName names the type's schema.
func (SchedulingPolicy) OpenAPIModelName() string { return model + "SchedulingPolicy" }

// OpenAPIModelName names the type's schema.
func (SchedulingPolicyList) OpenAPIModelName() string { return model + "SchedulingPolicyList" }

// OpenAPIModelName names the type's schema.
func (SchedulingPolicySpec) OpenAPIModelName() string { return model + "SchedulingPolicySpec" }

// OpenAPIModelName names the type's schema.
func (PolicyVariable) OpenAPIModelName() string { return model + "PolicyVariable" }

// OpenAPIModelName names the type's schema.
func (PolicyFilter) OpenAPIModelName() string { return model + "PolicyFilter" }

// OpenAPIModelName names the type's schema.
func (PolicyScore) OpenAPIModelName() string { return model + "PolicyScore" }

// OpenAPIModelName names the type's schema.
func (SchedulingPolicyStatus) OpenAPIModelName() string { return model + "SchedulingPolicyStatus" }
