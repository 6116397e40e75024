// Package apps declares the kinds of the apps group (v1), one file a kind: Deployment, ReplicaSet, StatefulSet, DaemonSet and ControllerRevision.
//
// Rules of the pod templates are package core's. Defaults, validation and tables are pure; nothing here acts: that is the controllers' part.
package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is the apps group.
var Group = kind.Group{Name: "apps", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{appsv1.AddToScheme}}
