package operators

import (
	"os"
	"os/exec"
	"testing"
)

// suites are those of controller-runtime that run in seconds and exercise the API from all sides. (The rest pass too, and take minutes.)
var suites = []string{
	"sigs.k8s.io/controller-runtime/pkg/envtest",
	"sigs.k8s.io/controller-runtime/pkg/client",
	"sigs.k8s.io/controller-runtime/pkg/builder",
	"sigs.k8s.io/controller-runtime/pkg/controller",
	"sigs.k8s.io/controller-runtime/pkg/webhook",
}

// TestControllerRuntimesOwnSuites runs them as they are in the module.
func TestControllerRuntimesOwnSuites(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT TESTED: builds and runs several suites")
	}
	command := exec.CommandContext(t.Context(), "go", append([]string{"test", "-count=1", "-p=1"}, suites...)...)
	command.Env = os.Environ()
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
