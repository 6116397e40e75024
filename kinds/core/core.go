// Package core declares the kinds of the core group (v1), one file a kind.
package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is the core group.
var Group = kind.Group{Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{corev1.AddToScheme}}
