package openapi

import (
	"reflect"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// scaleType is the body of every scale subresource.
var scaleType = reflect.TypeFor[autoscalingv1.Scale]()
