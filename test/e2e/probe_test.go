package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// probes are exec probes whose child keeps the output open after the command has ended: the command's exit code decides all the same.
const probes = `
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: yare.dev/busybox:1
    imagePullPolicy: Never
    command: [sleep, "3600"]
    livenessProbe:
      exec: {command: [sh, -c, "sleep 5 & exit 1"]}
      periodSeconds: 1
      failureThreshold: 1
---
apiVersion: v1
kind: Pod
metadata: {name: good}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: yare.dev/busybox:1
    imagePullPolicy: Never
    command: [sleep, "3600"]
    readinessProbe:
      exec: {command: [sh, -c, "sleep 5 & exit 0"]}
      periodSeconds: 1
`

func TestExecProbesThatLeaveAChild(t *testing.T) {
	c := newClusterAt(t, 9)
	defer os.RemoveAll(c.dir)
	defer c.down("--purge")
	c.up()
	c.run(c.yare, "image", "import", "--data-dir", c.data(), filepath.Join(c.root, "bin/images/busybox.tar"))
	file := filepath.Join(c.dir, "probes.yaml")
	if err := os.WriteFile(file, []byte(probes), 0o600); err != nil {
		t.Fatal(err)
	}
	c.kubectl("apply", "-f", file)
	c.kubectl("wait", "--for=condition=Ready", "pod/good", "--timeout=60s")
	c.until("a failing probe restarts its container", func() error {
		return wants(c.kubectl("get", "events"), "Liveness probe failed", "Container main failed liveness probe, will be restarted")
	})
	c.until("the restart is counted", func() error {
		return wants(c.kubectl("get", "pod", "bad", "-o", "jsonpath=restarts {.status.containerStatuses[0].restartCount}."), "restarts 1.")
	})
}
