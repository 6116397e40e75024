package operators

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMain links yare, built from the repository around this module, as the programs that envtest looks for.
func TestMain(m *testing.M) {
	dir, err := assets()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Setenv("KUBEBUILDER_ASSETS", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func assets() (string, error) {
	dir, err := os.MkdirTemp("", "yare-assets-")
	if err != nil {
		return "", err
	}
	yare := filepath.Join(dir, "yare")
	for _, command := range [][]string{{"go", "build", "-C", "../..", "-o", yare, "./cmd/yare"}, {yare, "envtest", dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", command, err, out)
		}
	}
	return dir, nil
}
