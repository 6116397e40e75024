// Package autoscaling declares the kinds of the group autoscaling: the HorizontalPodAutoscaler, stored as v2 and served as v1 too.
package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is autoscaling.
var Group = kind.Group{
	Name: "autoscaling", Versions: []string{"v2", "v1"},
	AddToScheme: []func(*runtime.Scheme) error{autoscalingv2.AddToScheme, autoscalingv1.AddToScheme},
}
