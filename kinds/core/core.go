// Package core declares the kinds of the core group (v1), one file a kind; Pod and Service take several.
//
// Defaults, validation and tables are pure functions of the objects. They follow Kubernetes 1.36, whose error texts and field names clients depend
// on. Validation expects a defaulted object, reports everything that is wrong at once, and does not judge again what an update left as it was.
// DefaultPodTemplate, ValidatePodTemplate and WarnPodTemplate serve every kind that carries a pod template.
//
// Subresources that reach beyond their own object (binding, eviction, token, log, exec, proxy) act through kind.Env only. Nothing here keeps state,
// so everything may be called concurrently. Metadata is the engine's; privileges, quotas and other policy are admission's.
package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is the core group.
var Group = kind.Group{Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{corev1.AddToScheme}}
