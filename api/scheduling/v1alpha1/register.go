package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is scheduling.yare.io/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "scheduling.yare.io", Version: "v1alpha1"}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SchedulingPolicy{}, &SchedulingPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
