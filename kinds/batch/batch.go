// Package batch declares the kinds of the group batch: Jobs and CronJobs.
package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// Group is batch.
var Group = kind.Group{Name: "batch", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{batchv1.AddToScheme}}
