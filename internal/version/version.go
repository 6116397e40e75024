// Package version says which Yare this is and which Kubernetes API it speaks.
package version

import (
	"runtime"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// build is set by the linker.
var build = "dev"

// Kubernetes is the API level that Yare speaks.
const Kubernetes = "v1.36.2"

// Build names this build of Yare.
func Build() string { return build }

// Info is what /version answers: the Kubernetes API level, with Yare as build metadata.
func Info() apiversion.Info {
	return apiversion.Info{
		Major: "1", Minor: "36",
		GitVersion: Kubernetes + "+yare",
		GitCommit:  build, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
