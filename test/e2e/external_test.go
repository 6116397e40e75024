package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/runtime/runtimetest"
)

// TestRuntimeOfSomebodyElse: with --container-runtime-endpoint pods run in a containerd that was there before, and is there afterwards.
func TestRuntimeOfSomebodyElse(t *testing.T) {
	c := newClusterAt(t, 17)
	runtime := runtimetest.Start(t, runtimetest.Config(t, t.TempDir()))
	c.args = append(c.args, "--container-runtime-endpoint", runtime.Endpoint())
	defer c.remove()
	c.up()
	if out := commandLines(); strings.Contains(out, mark(filepath.Join(c.data(), "runtime"))) {
		t.Errorf("a containerd of its own was started:\n%s", out)
	}
	c.box("box", "sleep 86395")
	c.contains("the pod's output", c.kubectl("exec", "box", "--", "echo", "from the box"), "from the box")
	c.contains("the node's runtime", c.kubectl("get", "node", "harbour", "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}"), "containerd://v2")
	c.contains("image list", c.run(c.yare, "image", "list", "--data-dir", c.data()), "yare.dev/busybox:1")

	c.down()
	if left := c.traces(); len(left) > 0 {
		t.Errorf("left after down:\n%s", strings.Join(left, "\n"))
	}
	if strings.Contains(commandLines(), "sleep 86395") {
		t.Error("the container outlives down")
	}
	pods, err := cri.NewRuntimeServiceClient(runtime.Conn()).ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatalf("the containerd of somebody else does not answer after down: %v", err)
	}
	if len(pods.Items) > 0 {
		t.Errorf("pods left in the containerd of somebody else: %v", pods.Items)
	}
	images, err := cri.NewImageServiceClient(runtime.Conn()).ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c.contains("its images", images.String(), "yare.dev/busybox:1")
	runtimetest.RunPod(t, runtime, "own")
}
