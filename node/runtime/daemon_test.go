package runtime_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/runtime"
)

// daemonPID reads the record that a running runtime keeps.
func daemonPID(t *testing.T, cfg runtime.Config) int {
	t.Helper()
	pid := tryDaemonPID(cfg)
	if pid == 0 {
		t.Fatal("no daemon is recorded")
	}
	return pid
}

func tryDaemonPID(cfg runtime.Config) int {
	records, _ := filepath.Glob("/run/yare/*/containerd.json")
	for _, path := range records {
		conf, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "containerd.toml"))
		if !containsPath(conf, cfg.Dir) {
			continue
		}
		b, _ := os.ReadFile(path)
		var r struct{ PID int }
		if json.Unmarshal(b, &r) == nil {
			return r.PID
		}
	}
	return 0
}

func containsPath(conf []byte, dir string) bool {
	return len(dir) > 0 && bytesContains(conf, `root = "`+dir+`/containerd"`)
}

func bytesContains(b []byte, s string) bool {
	for i := 0; i+len(s) <= len(b); i++ {
		if string(b[i:i+len(s)]) == s {
			return true
		}
	}
	return false
}

// awaitDaemon waits until another daemon than the old one answers: a bounded
// poll, because the successor's start is nobody's event.
func awaitDaemon(t *testing.T, c cri.RuntimeServiceClient, cfg runtime.Config, old int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			t.Fatal("the daemon did not come back")
		case <-tick.C:
		}
		if pid := tryDaemonPID(cfg); pid == 0 || pid == old {
			continue
		}
		if _, err := c.Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true)); err == nil {
			return
		}
	}
}
